"""What a reader should conclude from a study, in words and numbers."""

from __future__ import annotations

from uncurse.evaluation.bootstrap import Difference
from uncurse.study.findings import Findings
from uncurse.study.methods import NORM, OPTIMAL, RAW, StudyMethod
from uncurse.study.report.paper_tables import mean_of
from uncurse.study.report.table import share


def headline(findings: Findings) -> list[str]:
    """The conclusions, one sentence or two each; every difference has its interval."""
    found = [_curse(findings)]
    optimal = [method for method in findings.methods if (method.score, method.stop) == (NORM, OPTIMAL)]
    found += [_stopping(findings, method) for method in optimal]
    free = [method for method in findings.methods if method.reads_length and not method.tuned]
    if free:
        large = findings.study.plan.large
        best = max(free, key=lambda method: mean_of(findings, "dev", method.name, large).bleu)
        found += [_cure(findings, best), _against_norm(findings, best)]
        if len(findings.gains["test"]) > 1:
            found.append(_where(findings, best))
        found.append(_proofs(findings, best))
    return found


def _curse(findings: Findings) -> str:
    """What a larger beam does to the raw score."""
    last = findings.study.plan.all_beam_sizes[-1]
    after = findings.at["test"][last].measures[RAW]
    empty = f"{share(after.empty)} of its outputs are empty."
    if findings.widening is None:
        return (
            f"With a beam of {last} the raw score has BLEU {after.bleu:.1f} (length ratio {after.ratio:.2f});"
            f" {empty}"
        )
    first = findings.widening[0]
    before = findings.at["test"][first].measures[RAW]
    change = findings.difference("test", (RAW, [first]), (RAW, [last]))
    verdict = _verdict(
        change,
        better="A larger beam helps even the raw score here.",
        worse="That is the beam search curse.",
        open_="Whether the beam search curse is there, these sentences cannot tell.",
    )
    return (
        f"From a beam of {first} to one of {last} the raw score goes from BLEU {before.bleu:.1f} to"
        f" {after.bleu:.1f} ({_interval(change)}) and its length ratio from {before.ratio:.2f} to"
        f" {after.ratio:.2f}; {empty} {verdict}"
    )


def _stopping(findings: Findings, optimal: StudyMethod) -> str:
    """What optimal stopping does to length norm, the paper's first claim."""
    large = findings.study.plan.large
    change = findings.difference("test", (NORM, large), (optimal.name, large))
    verdict = _verdict(
        change,
        better="Stopping too early costs quality here.",
        worse="What an earlier stop misses scores better, but is not better.",
        open_="Whether that helps, these sentences cannot tell.",
    )
    return (
        f"With large beams, optimal stopping changes {findings.label(NORM)} by {_interval(change)} against the"
        f" stopping rule of toolkits. {verdict}"
    )


def _cure(findings: Findings, best: StudyMethod) -> str:
    """What a larger beam does to the best score that needs no tuning."""
    last = findings.study.plan.all_beam_sizes[-1]
    after = findings.at["test"][last].measures[best.name]
    name = f"{best.label[:1].upper()}{best.label[1:]}, the best on dev of the scores that need no tuning,"
    if findings.widening is None:
        return f"{name} has BLEU {after.bleu:.1f} (length ratio {after.ratio:.2f})."
    first = findings.widening[0]
    before = findings.at["test"][first].measures[best.name]
    change = findings.difference("test", (best.name, [first]), (best.name, [last]))
    verdict = _verdict(
        change,
        better="It gets better with the beam.",
        worse="It gets worse with the beam, too.",
        open_="No loss is shown, and no gain.",
    )
    return (
        f"{name} goes from BLEU {before.bleu:.1f} to {after.bleu:.1f} ({_interval(change)}), with a length ratio"
        f" of {after.ratio:.2f}. {verdict}"
    )


def _against_norm(findings: Findings, best: StudyMethod) -> str:
    large = findings.study.plan.large
    against = findings.difference("test", (NORM, large), (best.name, large))
    count = len(findings.study.test_sets["test"].lines)
    verdict = _verdict(
        against,
        better=f"For text like this, {best.label} is the better choice.",
        worse=f"For text like this, {findings.label(NORM)} is the better choice.",
        open_=f"These {count:,} sentences do not decide between the two.",
    )
    return (
        f"With large beams its distance from {findings.label(NORM)}, as toolkits stop that, is"
        f" {_interval(against)}. {verdict}"
    )


def _where(findings: Findings, best: StudyMethod) -> str:
    """What is gained where the outputs of length norm are shortest and longest."""
    short, *_, long = findings.gains["test"]
    parts = [
        f"{_interval(each.gains[best.name])} where {findings.label(NORM)} gives {_share_of_length(each.label)}"
        f" of the expected length ({each.sentences:,} sentences)"
        for each in (short, long)
    ]
    return f"Its gain is {parts[0]}, and {parts[1]}."


def _share_of_length(label: str) -> str:
    """The label of the first or the last bin, in words."""
    return label.replace("<", "less than").replace("≥", "at least")


def _proofs(findings: Findings, best: StudyMethod) -> str:
    size = findings.study.plan.all_beam_sizes[-1]
    at = findings.at["test"][size]
    found = at.measures[best.name]
    return (
        f"With a beam of {size}, {share(found.proved)} of its outputs are proved to be the best that the search"
        f" could have found, for {share(found.model_rows / at.recorded_rows)} of the model rows that a search to"
        " the maximum length takes."
    )


def _verdict(change: Difference, *, better: str, worse: str, open_: str) -> str:
    """What may be said if the interval lies above 0, below it, or around it."""
    return better if change.low > 0 else worse if change.high < 0 else open_


def _interval(change: Difference) -> str:
    return f"{change.bleu:+.2f} BLEU, 95 % interval {change.low:+.2f} to {change.high:+.2f}"
