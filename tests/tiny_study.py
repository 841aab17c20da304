"""A study of a model of random numbers that tests share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from letters import LetterEncoder, LetterWords

from uncurse.evaluation.bootstrap import bleu_of
from uncurse.length import FixedRatio
from uncurse.models.opened import OpenModel
from uncurse.rescoring import BoundedWordReward
from uncurse.study.findings import GROUPS, Findings
from uncurse.study.judged import Meter, judge_set
from uncurse.study.methods import METHODS, Way
from uncurse.study.opened import Study
from uncurse.study.plan import Plan, SetPlan, TuningPlan
from uncurse.study.store import SHARD

PLAN = Plan(
    "A study of random numbers",
    "random",
    SetPlan("dev.src", ("dev.0", "dev.1")),
    SetPlan("test.src", ("test.0", "test.1"), lines=12),
    widths=(1, "2-4/2"),
    small=(2, 3),
    large=(6, 7),
    baseline_width=2,
    limit="2x+3",
    record_limit="2x+4",
    limits=("predicted", "2x+3", "2x+5"),
    tuning=TuningPlan(rewards=(0.0, 0.5, 1.0), alphas=(0.0, 0.5), betas=(0.0, 0.2), perceptron_rounds=3),
    exact=2,
)


def write_sets(folder: Path) -> None:
    """Sentences of up to nine words with two made-up translations each, of which every other is a word longer."""
    random = np.random.default_rng(1)
    for name, count in (("dev", SHARD + 8), ("test", 20)):
        for suffix in ("src", "0", "1"):
            lines = [
                " ".join("abcdef"[each] for each in random.integers(6, size=size + (suffix == "1") * (index % 2)))
                for index, size in enumerate(sizes(count))
            ]
            (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sizes(count: int) -> list[int]:
    return [4 + index % 6 for index in range(count)]


def a_study(data: Path, folder: Path, plan: Plan = PLAN) -> Study:
    model = LetterEncoder(seed=3, vocabulary=7, ending=0.5, attends=True)
    words = LetterWords()
    return Study(plan, data, folder, OpenModel(model, words, words, "random", lambda: FixedRatio(1.2)))


def without_predictor(study: Study) -> Study:
    opened = study.opened
    return replace(study, opened=OpenModel(opened.model, opened.source, opened.target, "random", lambda: None))


def decode(study: Study) -> None:
    for _, recording in study.recordings():
        list(study.store.record(study.model, recording))
    list(study.probes.ask(study.model, tuple(study.materials.values())))


def tuning_is_judging(found: Findings) -> None:
    study, material = found.study, found.study.materials["dev"]
    meter = Meter(material, study.translator.text, lowercase=True)
    for group in GROUPS:
        curve = next(each for each in found.tuning[group].curves if each.name == "bounded")
        forced = study.probes.references(material)
        bleus = np.zeros(len(curve.values))
        for width in found.widths(group):
            traces = study.store.load(study.recording("dev", width))
            ways = [Way(BoundedWordReward(value), METHODS[-1].stop) for (value,) in curve.values]
            judged = judge_set(material, traces, ways, meter, forced)
            bleus += [bleu_of(each.statistics.sum(axis=0)) for each in judged]
        assert np.allclose(bleus / len(found.widths(group)), curve.bleu)
        assert found.tuning[group].tuned.bounded_reward == curve.values[int(bleus.argmax())][0]
