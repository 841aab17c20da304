"""Tables beyond the paper: faults, stopping rules, limits, errors, lengths, costs."""

from __future__ import annotations

from sacrebleu.metrics.chrf import CHRF

from uncurse.study.findings import GROUPS, Findings
from uncurse.study.methods import METHODS
from uncurse.study.opened import SETS
from uncurse.study.pagedata import shown_methods
from uncurse.study.table import Table, frozen, pair, share


def faults_table(findings: Findings) -> Table:
    """Empty and repeating outputs."""
    methods = shown_methods(findings)
    rows = [
        [
            str(width),
            *(
                f"{share(at.measures[each.name].empty)} / {share(at.measures[each.name].repeating)}"
                for each in methods
            ),
        ]
        for width, at in findings.at["test"].items()
    ]
    note = "An output repeats if a run of four words occurs three times or more."
    columns = ("b", *(method.label for method in methods))
    return Table("faults", "Empty / repeating outputs on test", columns, frozen(rows), note)


def grid_table(findings: Findings) -> Table:
    """Every score with every stopping rule."""
    rules = tuple(dict.fromkeys(cell.stop for cell in findings.grid))
    cells = {(cell.score, cell.stop): cell for cell in findings.grid}
    labels = {method.name: method.label for method in METHODS}
    rows = [
        [
            labels[score],
            *(f"{cells[score, rule].measures.bleu:.2f} / {share(cells[score, rule].lost)}" for rule in rules),
        ]
        for score in dict.fromkeys(cell.score for cell in findings.grid)
    ]
    note = "Lost: sentences for which something with a better score finishes after the rule has stopped."
    title = f"BLEU / lost optima of every stopping rule, test, b = {findings.study.plan.focus}"
    return Table("grid", title, ("", *rules), frozen(rows), note)


def limits_table(findings: Findings) -> Table:
    """The effect of R."""
    labels = {method.name: method.label for method in METHODS}
    rows = [
        [
            cell.limit,
            f"{cell.mean_limit:.1f}",
            labels[cell.method],
            cell.stop,
            f"{cell.measures.bleu:.2f}",
            f"{cell.measures.ratio:.3f}",
            share(cell.measures.empty),
            share(cell.measures.repeating),
            f"{cell.measures.steps:.1f}",
            share(cell.measures.proved),
        ]
        for cell in findings.limits
    ]
    columns = ("limit", "mean R", "score", "stop", "BLEU", "ratio", "empty", "repeating", "steps", "proved")
    return Table("limits", f"The limit R, dev, b = {findings.study.limits_width}", columns, frozen(rows))


def errors_table(findings: Findings) -> Table:
    """Whose fault a wrong output is."""
    rows = []
    for method in shown_methods(findings):
        cells = [method.label]
        for width in (findings.study.plan.baseline_width, findings.study.plan.focus):
            found = findings.at["test"][width].measures[method.name]
            cells += [
                share(found.search_errors),
                share(found.model_errors),
                share(found.proved),
                share(found.proved_global),
            ]
        rows.append(cells)
    widths = (findings.study.plan.baseline_width, findings.study.plan.focus)
    columns = (
        "",
        *(f"{what}, b = {width}" for width in widths for what in ("search", "model", "proved", "global")),
    )
    known = [
        f"{score}: " + ", ".join(f"{missed} of {count} at b = {width}" for width, (missed, count) in found.items())
        for score, found in findings.missed("test", widths).items()
    ]
    note = (
        "Search: a reference within the limit scores higher than the output; model: every reference scores lower."
        f" Proved: by the certificate. True optima that no beam of the width finishes, among short sentences whose"
        f" optimum an exact search has proved: {'; '.join(known)}."
    )
    return Table("errors", "Search errors, model errors and proofs on test", columns, frozen(rows), note)


def lengths_table(findings: Findings) -> Table:
    """How well lengths are expected."""
    rows = []
    for name, found in findings.lengths.items():
        predictor, reference = (
            "" if error is None else f"{error:.2f}" for error in (found.predictor, found.reference)
        )
        within = (share(found.within[limit]) for limit in findings.study.plan.limits)
        rows.append(
            [
                name,
                f"{found.mean_length:.1f}",
                predictor,
                f"{found.ratio:.2f}",
                f"{found.line:.2f}",
                reference,
                *within,
            ]
        )
    columns = (
        "",
        "mean length",
        "predictor",
        "fixed ratio",
        "line",
        "reference",
        *(f"≤ {each}" for each in findings.study.plan.limits),
    )
    note = (
        "Mean absolute error against all references, in tokens; the line was fitted to dev, a reference compared"
        " with the others. The last columns have the share of references that do not exceed a limit."
    )
    return Table("lengths", "Expected lengths", columns, frozen(rows), note)


def true_lengths_table(findings: Findings) -> Table:
    """What a better length predictor could bring."""
    plan = findings.study.plan
    rows = []
    for method in shown_methods(findings):
        if method.name not in findings.true_lengths["test"]:
            continue
        cells = [method.label]
        for name in SETS:
            found = findings.at[name][plan.focus].measures[method.name], findings.true_lengths[name][method.name]
            cells += [pair(each.bleu, each.ratio) for each in found]
        rows.append(cells)
    columns = ("", *(f"{name}, {what}" for name in SETS for what in ("predicted", "true")))
    note = "True: L is the mean length of the references; everything else, R too, is as it was."
    title = f"BLEU (length ratio) with predicted and with true lengths, b = {plan.focus}"
    return Table("true-lengths", title, columns, frozen(rows), note)


def tuning_table(findings: Findings) -> Table:
    """The numbers that dev has chosen, and those that test would have."""
    rows = []
    for group in GROUPS:
        for curve in findings.tuning[group].curves:
            test = findings.hindsight[group][curve.name]
            best, best_on_test = (", ".join(f"{value:g}" for value in each.best) for each in (curve, test))
            second = findings.tuning[group].perceptron.get(curve.name)
            bleus = f"{max(curve.bleu):.2f}", f"{test.at(curve.best):.2f}"
            third = "" if second is None else f"{second:.2f}"
            rows.append([curve.name, group, best, *bleus, third, best_on_test, f"{max(test.bleu):.2f}"])
    columns = ("score", "beams", "grid", "dev BLEU", "test BLEU", "perceptron", "best for test", "its test BLEU")
    note = (
        "GNMT: α, β. The perceptron (Murray and Chiang 2018) makes outputs as long as references, on average. What"
        " would have been best for test is shown to say how much is lost by the choice, and is used nowhere."
    )
    return Table("tuning", "Numbers chosen on dev", columns, frozen(rows), note)


def characters_table(findings: Findings) -> Table:
    """chrF at the widths of the main table."""
    metrics = {
        name: CHRF(
            lowercase=findings.study.plan.lowercase, references=[list(each) for each in material.references]
        )
        for name, material in findings.study.materials.items()
    }
    widths = (findings.study.plan.baseline_width, findings.study.plan.focus)
    rows = []
    for method in shown_methods(findings):
        texts = [list(findings.at[name][width].judged[method.name].texts) for name in SETS for width in widths]
        names = [name for name in SETS for _ in widths]
        rows.append(
            [
                method.label,
                *(
                    f"{metrics[name].corpus_score(each, None).score:.2f}"
                    for name, each in zip(names, texts, strict=True)
                ),
            ]
        )
    columns = ("", *(f"{name}, b = {width}" for name in SETS for width in widths))
    return Table("characters", "chrF", columns, frozen(rows), str(metrics["test"].get_signature()))


def costs_table(findings: Findings) -> Table:
    """What each method would have cost in a search of its own."""
    plan = findings.study.plan
    rows = []
    methods = shown_methods(findings)
    for method in methods:
        cells = [method.label]
        for width in (plan.baseline_width, plan.focus):
            at = findings.at["test"][width]
            found = at.measures[method.name]
            cells += [
                f"{found.steps:.1f}",
                f"{found.saved_steps:.1f}",
                f"{found.rows:.0f}",
                share(found.rows / at.exhaustive_rows),
            ]
        rows.append(cells)
    columns = (
        "",
        *(
            f"{what}, b = {width}"
            for width in (plan.baseline_width, plan.focus)
            for what in ("steps", "saved", "rows", "of all")
        ),
    )
    note = (
        "Rows: prefixes that the model is run on, for a sentence. All methods at all widths, decoded one by one,"
        f" would have taken {findings.rows_one_by_one / 1e6:.2f} million rows; the recorded searches took"
        f" {findings.rows_recorded / 1e6:.2f} million."
    )
    return Table("costs", "What a live search costs, on test", columns, frozen(rows), note)
