"""What the script of a study's page draws, as one JSON value."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from uncurse.scoring.result import Certificate
from uncurse.study.findings import Findings
from uncurse.study.gains import GainBin
from uncurse.study.methods import RAW, StudyMethod
from uncurse.study.plan import GROUPS


def page_data(findings: Findings) -> dict[str, Any]:
    """Everything that the script draws; tables and facts are in the page itself."""
    study, plan = findings.study, findings.study.plan
    return {
        "baseline": RAW,
        "groups": {group: list(plan.beam_sizes_of(group)) for group in GROUPS},
        "display_beam_size": plan.display_beam_size,
        "comparison_beam_size": study.comparison_beam_size,
        "methods": [
            {"name": method.name, "label": method.label, "place": method.place} for method in findings.methods
        ],
        "sets": {name: len(test_set.lines) for name, test_set in study.test_sets.items()},
        "curves": {
            name: {
                method.name: [
                    {"beam_size": size, **asdict(each.measures[method.name])} for size, each in at.items()
                ]
                for method in findings.methods
            }
            for name, at in findings.at.items()
        },
        "eos_positions": {name: asdict(found) for name, found in findings.eos_positions.items()},
        "deciles": {
            method.name: [asdict(tenth) for tenth in findings.deciles(method)] for method in findings.methods
        },
        "tuning": {group: _tuning(findings, group) for group in GROUPS},
        "stop_cells": [asdict(cell) for cell in findings.stop_cells],
        "max_length_cells": [asdict(cell) for cell in findings.max_length_cells],
        "references_within": findings.length_errors["dev"].within,
        "gains": {name: [_gain(findings, each) for each in bins] for name, bins in findings.gains.items()},
        "sentences": [_sentence(findings, index) for index in range(len(findings.sentences))],
    }


def _tuning(findings: Findings, group: str) -> list[dict[str, Any]]:
    """The curves of one or two parameters; the table has all."""
    tuning = findings.tuning[group]
    curves = {name: curve.varied for name, curve in tuning.curves.items()}
    return [
        {"method": name, **asdict(curve), "best": curve.best, "perceptron": tuning.perceptron.get(name)}
        for name, curve in curves.items()
        if len(curve.parameters) in (1, 2)
    ]


def _gain(findings: Findings, each: GainBin) -> dict[str, Any]:
    """The methods that aim at a length; the table has all."""
    gains = {method.name: asdict(each.gains[method.name]) for method in findings.methods if method.aims_at_length}
    return {"label": each.label, "sentences": each.sentences, "gains": gains}


def _sentence(findings: Findings, index: int) -> dict[str, Any]:
    """A test sentence with its candidates at the beam size of display and what each method chooses."""
    test_set, found = findings.study.test_sets["test"], findings.sentences[index]
    choices = {method.name: _choice(findings, method, index) for method in findings.methods}
    expected = test_set.expected_lengths[index]
    return {
        "source": test_set.lines[index],
        "references": test_set.references_of(index),
        "reference_lengths": test_set.reference_lengths[index].tolist(),
        "expected_length": None if expected is None else round(expected, 2),
        "max_length": found.max_length,
        "candidates": [
            {"text": each.text, "length": each.length, "log_prob": round(each.log_prob, 3)} for each in found.texts
        ],
        "points": [(length, round(log_prob, 3)) for length, log_prob in found.points],
        "choices": choices,
        "proved": all(Certificate[choice["certificate"]].proved for choice in choices.values()),
    }


def _choice(findings: Findings, method: StudyMethod, index: int) -> dict[str, Any]:
    """What a method gives for a sentence; a truncated output has no place among the finished."""
    outputs = findings.displayed(method)
    certificate = outputs.certificates[index]
    finished = certificate is not Certificate.TRUNCATED
    return {
        "text": outputs.texts[index],
        "length": int(outputs.lengths[index]),
        "log_prob": round(float(outputs.log_probs[index]), 3) if finished else None,
        "score": round(float(outputs.scores[index]), 4) if finished else None,
        "steps": int(outputs.steps[index]),
        "model_rows": int(outputs.model_rows[index]),
        "certificate": certificate.name,
    }
