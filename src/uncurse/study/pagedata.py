"""What the page of a study shows, as one JSON value."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from uncurse.evaluation.bootstrap import bleu_of
from uncurse.rescoring import SCORES
from uncurse.result import Optimality
from uncurse.stopping import RULES
from uncurse.study.findings import GROUPS, Findings
from uncurse.study.judged import Judged
from uncurse.study.measures import deciles, length_ratio
from uncurse.study.methods import METHODS, Method
from uncurse.trace import Trace

MOST_TEXTS = 12  # candidates of a sentence that can be read, beside those that a method chose
MOST_POINTS = 80  # candidates of a sentence that are drawn


def page_data(findings: Findings) -> dict[str, Any]:
    """Everything but the tables."""
    study, plan = findings.study, findings.study.plan
    shown = shown_methods(findings)
    return {
        "title": plan.title,
        "model": study.model.signature,
        "limit": plan.limit if plan.again is None else f"{plan.limit}, then {plan.again}",
        "slots": plan.slots,
        "ratio": study.ratio,
        "lowercase": plan.lowercase,
        "widths": list(plan.all_widths),
        "groups": {group: list(findings.widths(group)) for group in GROUPS},
        "focus": plan.focus,
        "methods": [
            {"name": method.name, "label": method.label, "stop": RULES.name(method.stop)}
            | {"score": {group: SCORES.spec(findings.scores(group)[method.name]) for group in GROUPS}}
            for method in shown
        ],
        "sets": {
            name: {"lines": len(material.lines), "references": len(material.references)}
            for name, material in study.materials.items()
        },
        "curves": {
            name: {
                method.name: [
                    {"width": width, **asdict(found.measures[method.name])} for width, found in at.items()
                ]
                for method in shown
            }
            for name, at in findings.at.items()
        },
        "ends": {name: asdict(ends) for name, ends in findings.ends.items()},
        "deciles": {method.name: decile_rows(findings, method) for method in shown},
        "tuning": {
            group: {
                "curves": [
                    {"name": curve.name, "values": curve.values, "bleu": curve.bleu, "best": curve.best}
                    for curve in tuning.curves
                ],
                "perceptron": tuning.perceptron,
            }
            for group, tuning in findings.tuning.items()
        },
        "grid": [asdict(cell) for cell in findings.grid],
        "limits": [asdict(cell) for cell in findings.limits],
        "limits_width": study.limits_width,
        "lengths": {name: asdict(error) for name, error in findings.lengths.items()},
        "sentences": _sentences(findings, shown),
    }


def shown_methods(findings: Findings) -> list[Method]:
    """The methods that were judged at every width, in the order of the tables."""
    known = findings.at["dev"][findings.study.plan.focus].judged
    return [method for method in METHODS if method.name in known]


def decile_rows(findings: Findings, method: Method) -> list[dict[str, float]]:
    """BLEU and length ratio from the shortest to the longest tenth of test, at the width of focus."""
    material = findings.study.materials["test"]
    statistics = findings.at["test"][findings.study.plan.focus].judged[method.name].statistics
    rows = []
    for part in deciles(material.source_lengths):
        sums = statistics[part].sum(axis=0)
        rows.append(
            {
                "source_length": float(material.source_lengths[part].mean()),
                "bleu": bleu_of(sums),
                "ratio": length_ratio(sums),
                "sentences": len(part),
            }
        )
    return rows


def _sentences(findings: Findings, methods: list[Method]) -> list[dict[str, Any]]:
    """Each test sentence with its candidates at the width of focus and what each method chooses."""
    study = findings.study
    traces = study.store.load(study.recording("test", study.plan.focus))
    limits = study.materials["test"].limits_in(traces)
    return [
        _sentence(findings, methods, index, trace, limit)
        for index, (trace, limit) in enumerate(zip(traces, limits, strict=True))
    ]


def _sentence(findings: Findings, methods: list[Method], index: int, trace: Trace, limit: int) -> dict[str, Any]:
    study = findings.study
    material = study.materials["test"]
    judged = findings.at["test"][study.plan.focus].judged
    text = study.translator.text
    steps, ranks = trace.finished
    likely = np.argsort(-trace.finished_sums, kind="stable")
    likely = likely[steps[likely] < limit]
    texts: dict[str, dict[str, Any]] = {}
    points: list[tuple[int, float]] = []
    for place in likely.tolist():
        length, log_prob = int(steps[place]) + 1, round(float(trace.finished_sums[place]), 3)
        if len(points) < MOST_POINTS:
            points.append((length, log_prob))
        if len(texts) < MOST_TEXTS:
            words = text(trace.hypothesis(int(steps[place]), int(ranks[place]), 0.0).tokens)
            texts.setdefault(words, {"text": words, "length": length, "log_prob": log_prob})
    choices = {method.name: _choice(judged[method.name], index) for method in methods}
    lengths = material.reference_lengths[index]
    return {
        "source": material.lines[index],
        "references": material.references_of(index),
        "reference_lengths": lengths.tolist(),
        "predicted": None if material.predicted[index] is None else round(material.predicted[index], 2),  # type: ignore[arg-type]
        "limit": limit,
        "candidates": list(texts.values()),
        "points": points,
        "choices": choices,
        "proved": all(Optimality[choice["optimality"]].proved for choice in choices.values()),
    }


def _choice(judged: Judged, index: int) -> dict[str, Any]:
    """What a method gives for a sentence; an output that is cut off has no place among the finished."""
    optimality = judged.optimality[index]
    given = judged.log_probs[index] > -np.inf and optimality is not Optimality.TRUNCATED
    return {
        "text": judged.texts[index],
        "length": int(judged.lengths[index]),
        "log_prob": round(float(judged.log_probs[index]), 3) if given else None,
        "score": round(float(judged.scores[index]), 4) if given else None,
        "steps": int(judged.steps[index]),
        "rows": int(judged.rows[index]),
        "optimality": optimality.name,
    }
