"""Second opinions beside BLEU: chrF, and similarity of meaning by sentence embeddings."""

from __future__ import annotations

from sacrebleu.metrics.chrf import CHRF

from uncurse.arrays import Floats
from uncurse.evaluation.bootstrap import mean_interval
from uncurse.evaluation.similarity import SentenceEmbedder, can_embed, similarities
from uncurse.study.findings import Findings
from uncurse.study.methods import NORM
from uncurse.study.report.table import Table, rows_of
from uncurse.study.test_set import SETS


def chrf_table(findings: Findings) -> Table:
    """chrF at a usual and at a large beam size."""
    plan = findings.study.plan
    metrics = {
        name: CHRF(lowercase=plan.lowercase, references=[list(each) for each in test_set.references])
        for name, test_set in findings.study.test_sets.items()
    }
    places = [(name, size) for name in SETS for size in (plan.baseline_beam_size, plan.display_beam_size)]
    rows = []
    for method in findings.methods:
        cells = [method.label]
        for name, size in places:
            texts = list(findings.at[name][size].outputs[method.name].texts)
            cells.append(f"{metrics[name].corpus_score(texts, None).score:.2f}")
        rows.append(cells)
    columns = ("", *(f"{name}, b = {size}" for name, size in places))
    return Table(
        name="chrf", title="chrF", columns=columns, rows=rows_of(rows), note=str(metrics["test"].get_signature())
    )


def similarity_table(findings: Findings) -> Table:
    """A second opinion on meaning: sentence embeddings of outputs and references, if their model is installed."""
    plan = findings.study.plan
    places = [(name, size) for name in SETS for size in (plan.baseline_beam_size, plan.display_beam_size)]
    columns = ("", *(text for name, size in places for text in (f"{name}, b = {size}", "against norm")))
    title = "Similarity to the references in meaning"
    if not can_embed():
        return Table("similarity", title, columns, ())
    embedder = SentenceEmbedder()
    found: list[dict[str, Floats]] = []  # 100 × similarity of each sentence, by method
    for name, size in places:
        outputs, references = findings.at[name][size].outputs, findings.study.test_sets[name].references
        found.append(
            {
                each.name: 100 * similarities(embedder, outputs[each.name].texts, references)
                for each in findings.methods
            }
        )
    rows = []
    for method in findings.methods:
        cells = [method.label]
        for values in found:
            cells.append(f"{values[method.name].mean():.2f}")
            if method.name == NORM:
                cells.append("")
                continue
            difference = values[method.name] - values[NORM]
            low, high = mean_interval(difference)
            cells.append(f"{difference.mean():+.2f} ({low:+.2f} … {high:+.2f})")
        rows.append(cells)
    note = (
        "100 × the cosine of sentence embeddings (all-MiniLM-L6-v2) of an output and the closest of its"
        " references, mean over sentences; an empty output has 0. Differences from"
        f" {findings.label(NORM)}, with the 95 % interval of a paired bootstrap."
    )
    return Table(name="similarity", title=title, columns=columns, rows=rows_of(rows), note=note)
