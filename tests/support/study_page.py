"""A made-up study with everything that its page can show, and texts that would break a careless page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uncurse.study.report.html_report import Page
from uncurse.study.report.table import Table

SIZES = (1, 2, 5, 10, 20, 40)
DISPLAYED = 40
LABELS = {
    "log-prob": "raw score",
    "length-norm": "length norm",
    "gnmt": "GNMT",
    "word-reward": "word reward",
    "bounded-word-reward": "bounded word reward, expected length",
    "bp-norm": "BP-Norm",
}
RULES = ("optimal", "first-finished", "beam-full", "exhaustive")
MAX_LENGTHS = {"predicted": 31.0, "q0.9": 37.0, "2x+10": 61.0}
SENTENCES = 150
NASTY = "</script><script>window.hacked = true</script><img src=x onerror='window.hacked = true'> & \u2028 末尾"


def measures(method: str, size: int, offset: float) -> dict[str, float]:
    """The curse for the raw score, and none for the others."""
    place, steps = list(LABELS).index(method), 30.0 + math.log(size)
    fall = math.log(size) if method == "log-prob" else 0.0
    ratio = 1.0 + place / 100 - 0.06 * fall
    return {
        "bleu": 20 + offset + place / 5 + math.log(size) / 3 - fall,
        "brevity_penalty": min(1.0, math.exp(1 - 1 / ratio)),
        "ratio": ratio,
        "empty": 0.01 * fall,
        "repeating": 0.05,
        "proved": 1.0 if method != "length-norm" else 0.8,
        "proved_global": 0.1,
        "steps": steps,
        "saved_steps": 5.0,
        "model_rows": steps * size * (1 + place / 20),
        "search_errors": 0.0,
        "model_errors": 0.9,
    }


def sentence(index: int) -> dict[str, Any]:
    """Every third sentence is one that the methods disagree about; every fifth has a choice that is not proved."""
    names = list(LABELS)
    long = {"text": f"the house number {index} is on the hill", "length": 12, "log_prob": -9.25}
    short = {"text": f"house number {index}", "length": 5, "log_prob": -4.5}
    extra = [
        {"text": f"a candidate {place} of {index}", "length": 7 + place, "log_prob": -10.0 - place}
        for place in range(4)
    ]
    chosen = {name: short if name == "log-prob" and index % 3 == 0 else long for name in names}
    return {
        "source": f"第{index}号房子在山上。" + (NASTY if index == 7 else ""),
        "references": [f"house {index} stands on the hill", f"the house number {index} is on a hill"],
        "reference_lengths": [10, 12],
        "expected_length": 11.4,
        "max_length": 18,
        "candidates": [short, long, *extra],
        "points": [[each["length"], each["log_prob"]] for each in (short, long, *extra)] + [[16, -17.5]],
        "choices": {
            name: choice
            | {"score": -1.5, "steps": 14, "model_rows": 300}
            | {"certificate": "NONE" if name == "gnmt" and index % 5 == 0 else "BEAM"}
            for name, choice in chosen.items()
        },
        "proved": index % 5 != 0,
    }


def data() -> dict[str, Any]:
    """What `page_data` gives for a made-up study."""
    rewards = [[value / 10] for value in range(11)]
    pairs = [[alpha, beta] for alpha in (0.0, 0.5, 1.0) for beta in (0.0, 0.2)]
    bleu = [20 + 4 * value * (1.2 - value) for (value,) in rewards]
    alone = {"parameters": ["reward"], "values": rewards, "bleu": bleu, "best": [0.6]}
    together = {"parameters": ["alpha", "beta"], "values": pairs, "best": [0.5, 0.0], "perceptron": None}
    return {
        "baseline": "log-prob",
        "groups": {"small": [5, 10], "large": [20, 40]},
        "display_beam_size": DISPLAYED,
        "comparison_beam_size": 5,
        "methods": [
            {"name": name, "label": label, "place": 2 * place}
            for place, (name, label) in enumerate(LABELS.items())
        ],
        "sets": dict.fromkeys(("dev", "test"), SENTENCES),
        "curves": {
            name: {
                method: [{"beam_size": size, **measures(method, size, offset)} for size in SIZES]
                for method in LABELS
            }
            for name, offset in (("dev", 3.0), ("test", 0.0))
        },
        "eos_positions": {
            name: {
                "sentences": 140,
                "beam_sizes": list(SIZES[2:]),
                "positions": [[30 - math.log(size), 32 - math.log(size), 33.0] for size in SIZES[2:]],
            }
            for name in ("dev", "test")
        },
        "deciles": {
            method: [
                {"source_length": 5.0 + 4 * tenth, "bleu": 20.0 + place, "ratio": 1.0, "sentences": 15}
                for tenth in range(10)
            ]
            for place, method in enumerate(LABELS)
        },
        "tuning": {
            group: [
                {"method": "word-reward", "perceptron": 0.9, **alone},
                {"method": "bounded-word-reward", "perceptron": 7.0, **alone},
                {"method": "gnmt", "bleu": [20.0, 20.5, 22.0, 21.5, 21.0, 20.1], **together},
            ]
            for group in ("small", "large")
        },
        "stop_cells": [
            {"method": method, "stop": stop, "measures": measures(method, DISPLAYED, 0), "lost": 0.1 * place}
            for method in LABELS
            for place, stop in enumerate(RULES)
        ],
        "max_length_cells": [
            {
                "max_length": max_length,
                "mean_max_length": mean,
                "method": method,
                "stop": stop,
                "measures": measures(method, 5, mean / 9),
            }
            for max_length, mean in MAX_LENGTHS.items()
            for method, stop in (
                ("word-reward", "optimal"),
                ("bp-norm", "optimal"),
                ("bp-norm", "predicted-horizon"),
            )
        ],
        "gains": {
            name: [
                {
                    "label": label,
                    "sentences": 50,
                    "gains": {
                        method: {"bleu": 1.5 - place, "low": -0.5 - place, "high": 3.25 - place, "p": 0.04}
                        for method in ("bounded-word-reward", "bp-norm")
                    },
                }
                for place, label in enumerate(("< 0.8", "0.8 – 0.9", "≥ 0.9"))
            ]
            for name in ("dev", "test")
        },
        "references_within": dict.fromkeys(MAX_LENGTHS, 0.9),
        "sentences": [sentence(index) for index in range(SENTENCES)],
    }


def write_page(path: Path, data: dict[str, Any], tables: Sequence[Table]) -> None:
    command = (
        "uncurse study run a-plan-with-a-long-name.toml --data a-folder-with-a-long-name --out another-folder"
    )
    page = Page(
        title="A made-up study",
        facts={"dev": f"{SENTENCES} sentences", "signature": "made-up-0123456789abcdef"},
        headline=["BLEU falls.", "BP-Norm does not let it."],
        tables=tables,
        commands=[command],
        signatures=Table(
            "methods", "Methods", ("method", "score"), tuple((LABELS[each], each) for each in LABELS)
        ),
        data=data,
    )
    path.write_text(page.html(), encoding="utf-8")
