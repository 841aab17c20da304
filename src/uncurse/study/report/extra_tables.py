"""Tables beyond the paper: degenerate outputs, stopping rules, maximum lengths, errors, lengths, costs."""

from __future__ import annotations

from uncurse.study.findings import Findings
from uncurse.study.gains import GainBin
from uncurse.study.methods import NORM
from uncurse.study.plan import GROUPS
from uncurse.study.report.table import Table, interval, pair, rows_of, share
from uncurse.study.test_set import SETS


def gains_table(findings: Findings, name: str) -> Table:
    """Where each method is better than length norm."""
    size = findings.study.plan.display_beam_size
    methods = [method for method in findings.methods if method.name != NORM]
    everything = {
        method.name: findings.difference(name, (NORM, [size]), (method.name, [size])) for method in methods
    }
    total = GainBin("all", len(findings.study.test_sets[name].lines), everything)
    bins = findings.gains[name] if len(findings.gains[name]) > 1 else ()
    rows = [
        [each.label, str(each.sentences), *(interval(each.gains[method.name]) for method in methods)]
        for each in (*bins, total)
    ]
    norm = findings.label(NORM)
    note = (
        f"Sentences by the length of {norm}'s output (beam-full) as a share of the expected length L; BLEU of each"
        " method minus that of length norm on the same sentences, with the 95 % interval of a paired bootstrap."
    )
    title = f"Gain over {norm} by how short its outputs are, {name}, b = {size}"
    columns = ("|y| / L", "sentences", *(method.label for method in methods))
    return Table(name=f"gains-{name}", title=title, columns=columns, rows=rows_of(rows), note=note)


def degenerate_table(findings: Findings) -> Table:
    """Empty and repeating outputs."""
    rows = []
    for size, at in findings.at["test"].items():
        measures = [at.measures[method.name] for method in findings.methods]
        rows.append([str(size), *(f"{share(each.empty)} / {share(each.repeating)}" for each in measures)])
    note = "An output repeats itself if a run of four words occurs three times or more."
    columns = ("b", *(method.label for method in findings.methods))
    return Table(
        name="degenerate",
        title="Empty / repeating outputs on test",
        columns=columns,
        rows=rows_of(rows),
        note=note,
    )


def stopping_table(findings: Findings) -> Table:
    """Every score with every stopping rule."""
    rules = tuple(dict.fromkeys(cell.stop for cell in findings.stop_cells))
    cells = {(cell.method, cell.stop): cell for cell in findings.stop_cells}
    rows = []
    for method in dict.fromkeys(cell.method for cell in findings.stop_cells):
        found = [cells[method, rule] for rule in rules]
        texts = (f"{each.measures.bleu:.2f} / {share(each.lost)}" for each in found)
        rows.append([findings.label(method), *texts])
    note = "Lost: sentences for which something with a better score finishes after the rule has stopped."
    title = f"BLEU / lost optima of every stopping rule, test, b = {findings.study.plan.display_beam_size}"
    return Table(name="stopping", title=title, columns=("", *rules), rows=rows_of(rows), note=note)


def max_lengths_table(findings: Findings) -> Table:
    """The effect of R."""
    rows = [
        [
            cell.max_length,
            f"{cell.mean_max_length:.1f}",
            findings.label(cell.method),
            cell.stop,
            f"{cell.measures.bleu:.2f}",
            f"{cell.measures.ratio:.3f}",
            share(cell.measures.empty),
            share(cell.measures.repeating),
            f"{cell.measures.steps:.1f}",
            share(cell.measures.proved),
        ]
        for cell in findings.max_length_cells
    ]
    columns = ("max_length", "mean R", "score", "stop", "BLEU", "ratio", "empty", "repeating", "steps", "proved")
    title = f"The maximum length R, dev, b = {findings.study.comparison_beam_size}"
    return Table("max-lengths", title, columns, rows_of(rows))


def errors_table(findings: Findings) -> Table:
    """Whether the search or the model is to blame for an output."""
    plan = findings.study.plan
    sizes = (plan.baseline_beam_size, plan.display_beam_size)
    rows = []
    for method in findings.methods:
        cells = [method.label]
        for size in sizes:
            found = findings.at["test"][size].measures[method.name]
            shares = (found.search_errors, found.model_errors, found.proved, found.proved_global)
            cells += [share(each) for each in shares]
        rows.append(cells)
    columns = ("", *(f"{what}, b = {size}" for size in sizes for what in ("search", "model", "proved", "global")))
    known = []
    for spec in findings.study.reference_scores.exact_scores:
        counts = {size: findings.at["test"][size].missed[spec] for size in sizes}
        texts = (f"{each.missed} of {each.known} at b = {size}" for size, each in counts.items())
        known.append(f"{spec}: {', '.join(texts)}")
    note = (
        "Search: a reference within the maximum length scores higher than the output; model: every reference"
        " scores lower. Proved: by the certificate. True optima that no beam of this size finishes, among short"
        f" sentences whose optimum an exact search has proved: {'; '.join(known)}."
    )
    return Table(
        name="errors",
        title="Search errors, model errors and certificates on test",
        columns=columns,
        rows=rows_of(rows),
        note=note,
    )


def lengths_table(findings: Findings) -> Table:
    """How good expected lengths are."""
    names = findings.study.plan.max_lengths
    rows = []
    for name, found in findings.length_errors.items():
        errors = (found.predictor, found.fixed_ratio, found.line, found.reference)
        texts = ("" if error is None else f"{error:.2f}" for error in errors)
        rows.append([name, f"{found.mean_length:.1f}", *texts, *(share(found.within[each]) for each in names)])
    columns = ("", "mean length", "predictor", "fixed ratio", "line", "reference")
    note = (
        "Mean absolute error against all references, in tokens; the line was fitted to dev, and a reference is"
        " compared with the others. The last columns have the share of references that do not exceed a maximum"
        " length."
    )
    heads = (*columns, *(f"≤ {each}" for each in names))
    return Table(name="lengths", title="Expected lengths", columns=heads, rows=rows_of(rows), note=note)


def true_lengths_table(findings: Findings) -> Table:
    """What a better length predictor could bring."""
    size = findings.study.plan.display_beam_size
    rows = []
    for method in findings.methods:
        if method.reads_length:
            cells = [method.label]
            for name in SETS:
                expected = findings.at[name][size].measures[method.name]
                true = findings.true_lengths[name][method.name]
                cells += [pair(each.bleu, each.ratio) for each in (expected, true)]
            rows.append(cells)
    columns = ("", *(f"{name}, {what}" for name in SETS for what in ("expected", "true")))
    note = "True: L is the mean length of the references; everything else, R too, is as it was."
    title = f"BLEU (length ratio) with expected and with true lengths, b = {size}"
    return Table(name="true-lengths", title=title, columns=columns, rows=rows_of(rows), note=note)


def tuning_table(findings: Findings) -> Table:
    """The values that dev has chosen, and those that test would have."""
    rows = []
    for group in GROUPS:
        tuning = findings.tuning[group]
        for method, curve in tuning.curves.items():
            test = findings.oracle_tuning[group][method]
            best, best_on_test = (
                ", ".join(f"{name} = {value:g}" for name, value in zip(each.parameters, each.best, strict=True))
                for each in (curve, test)
            )
            bleus = f"{max(curve.bleu):.2f}", f"{test.at(curve.best):.2f}"
            reward = f"{tuning.perceptron[method]:.2f}" if method in tuning.perceptron else ""
            rows.append(
                [findings.label(method), group, best, *bleus, reward, best_on_test, f"{max(test.bleu):.2f}"]
            )
    columns = ("score", "beams", "best on dev", "dev BLEU", "test BLEU", "perceptron", "best on test", "its BLEU")
    note = (
        "The perceptron (Murray and Chiang 2018) makes outputs as long as references, on average. What would have"
        " been best on test shows how much the choice on dev loses; it is used nowhere."
    )
    return Table(name="tuning", title="Parameters chosen on dev", columns=columns, rows=rows_of(rows), note=note)


def costs_table(findings: Findings) -> Table:
    """What each method would have cost in a search of its own."""
    plan = findings.study.plan
    sizes = (plan.baseline_beam_size, plan.display_beam_size)
    rows = []
    for method in findings.methods:
        cells = [method.label]
        for size in sizes:
            at = findings.at["test"][size]
            found = at.measures[method.name]
            cells += [f"{found.steps:.1f}", f"{found.saved_steps:.1f}", f"{found.model_rows:.0f}"]
            cells.append(share(found.model_rows / at.recorded_rows))
        rows.append(cells)
    columns = ("", *(f"{what}, b = {size}" for size in sizes for what in ("steps", "saved", "rows", "of all")))
    note = (
        "Rows: prefixes that the model is run on, for a sentence. All methods at all beam sizes, decoded one by"
        f" one, would have taken {findings.rows_one_by_one / 1e6:.2f} million rows; the recorded searches took"
        f" {findings.rows_recorded / 1e6:.2f} million."
    )
    return Table(
        name="costs", title="What a live search costs, on test", columns=columns, rows=rows_of(rows), note=note
    )
