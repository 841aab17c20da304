"""What a study says, in words and numbers."""

from __future__ import annotations

from uncurse.evaluation.bootstrap import Difference
from uncurse.study.findings import Findings
from uncurse.study.methods import NORM, RAW
from uncurse.study.report.paper_tables import SIGNIFICANT, mean_of
from uncurse.study.report.table import share


def headline(findings: Findings) -> list[str]:
    """What the study says, in words and numbers."""
    plan = findings.study.plan
    first, last = plan.baseline_beam_size, plan.all_beam_sizes[-1]
    test = findings.at["test"]
    before, after = test[first].measures[RAW], test[last].measures[RAW]
    change = findings.difference("test", (RAW, [first]), (RAW, [last]))
    found = [
        f"From a beam of {first} to one of {last} the raw score goes from BLEU {before.bleu:.1f} (length ratio"
        f" {before.ratio:.2f}) to {after.bleu:.1f} ({after.ratio:.2f}), with {share(after.empty)} of its outputs"
        f" empty. {_verdict(change)}"
    ]
    free = [method for method in findings.methods if method.reads_length and not method.tuned]
    if not free:
        return found
    large = plan.large
    best = max(free, key=lambda method: mean_of(findings, "dev", method.name, large).bleu)
    kept = findings.difference("test", (best.name, [first]), (best.name, [last]))
    against = findings.difference("test", (NORM, large), (best.name, large))
    wide = test[last].measures[best.name]
    found.append(
        f"{best.label[:1].upper()}{best.label[1:]} has nothing to tune and is the best of its kind on dev: BLEU"
        f" {wide.bleu:.1f} ({wide.ratio:.2f}) at {last}, {kept.bleu:+.1f} from {first}. {_verdict(kept)}"
    )
    found.append(
        f"With large beams it is {against.bleu:+.2f} BLEU from {findings.label(NORM)} as toolkits stop it (95 %"
        f" interval {against.low:+.2f} to {against.high:+.2f}, p = {against.p:.3f}). {share(wide.proved)} of its"
        " outputs are proved to be the best that the search could have found."
    )
    return found


def _verdict(change: Difference) -> str:
    if change.p >= SIGNIFICANT:
        return f"The difference could be chance (p = {change.p:.2f})."
    return (
        f"That is {'a gain' if change.bleu > 0 else 'a loss'} that chance does not explain (p = {change.p:.3f})."
    )
