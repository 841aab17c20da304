"""A study of a model of random numbers that tests share."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from support.letter_model import LetterEncoder, LetterWords
from uncurse.evaluation.bleu import bleu_of
from uncurse.lengths.predictors import FixedRatio
from uncurse.models.loaded_model import LoadedModel
from uncurse.study.evaluate import evaluate
from uncurse.study.findings import Findings
from uncurse.study.outputs import BleuCache, judge_set
from uncurse.study.plan import GROUPS, PerceptronPlan, Plan, SetPlan
from uncurse.study.study import Study
from uncurse.study.trace_store import SHARD_SIZE

_FOLDER = TemporaryDirectory()
REWARDS = {"reward": (0.0, 0.5, 1.0)}
PLAN = Plan(
    title="A study of random numbers",
    model="random",
    dev=SetPlan("dev.src", ("dev.0", "dev.1")),
    test=SetPlan("test.src", ("test.0", "test.1"), lines=12),
    beam_sizes=(1, "2-4/2"),
    small=(2, 3),
    large=(6, 7),
    baseline_beam_size=2,
    max_length="2x+3",
    record_max_length="2x+4",
    max_lengths=("predicted", "2x+3", "2x+5"),
    tuning={
        "word-reward": REWARDS,
        "bounded-word-reward": REWARDS,
        "gnmt": {"alpha": (0.0, 0.5), "beta": (0.0, 0.2)},
    },
    perceptron=PerceptronPlan(rounds=3),
    exact=2,
)


def write_sets(folder: Path) -> None:
    """Sentences of up to nine words with two made-up translations each, of which every other is a word longer."""
    random = np.random.default_rng(1)
    for name, count in (("dev", SHARD_SIZE + 8), ("test", 20)):
        for suffix in ("src", "0", "1"):
            lines = [
                " ".join("abcdef"[each] for each in random.integers(6, size=size + (suffix == "1") * (index % 2)))
                for index, size in enumerate(sizes(count))
            ]
            (folder / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sizes(count: int) -> list[int]:
    return [4 + index % 6 for index in range(count)]


def a_study(data: Path, folder: Path, plan: Plan = PLAN) -> Study:
    model = LetterEncoder(seed=3, vocab_size=7, ending=0.5, attends=True)
    words = LetterWords()
    return Study(plan, data, folder, LoadedModel(model, words, words, "random", lambda: FixedRatio(1.2)))


def without_predictor(study: Study) -> Study:
    loaded = study.loaded
    return replace(study, loaded=LoadedModel(loaded.model, loaded.source, loaded.target, "random", lambda: None))


def decode(study: Study) -> None:
    for _, recording in study.recordings():
        list(study.traces.record(study.model, recording))
    list(study.reference_scores.ask(study.model, tuple(study.test_sets.values())))


def evaluated(study: Study) -> Findings:
    decode(study)
    return evaluate(study, lambda _: None)


@cache
def shared_findings() -> Findings:
    """The findings of the plan above, made once; tests that change something make a copy."""
    folder = Path(_FOLDER.name)
    write_sets(folder)
    return evaluated(a_study(folder, folder / "out"))


def check_tuning_by_judging(found: Findings) -> None:
    """Every curve of the tuning has the BLEU that judging gives."""
    study, test_set = found.study, found.study.test_sets["dev"]
    cache = BleuCache(test_set, study.translator.decode, lowercase=True)
    references = study.reference_scores.references(test_set)
    for group in GROUPS:
        for method in study.methods:
            if method.tuned:
                curve = found.tuning[group].curves[method.name]
                bleus = np.zeros(len(curve.values))
                for size in study.plan.beam_sizes_of(group):
                    traces = study.traces.load(study.recording("dev", size))
                    decodings = [study.decoding(size, method.rescorer(each), method.stop) for each in curve.values]
                    outputs = judge_set(test_set, traces, decodings, cache, references)
                    bleus += [bleu_of(each.statistics.sum(axis=0)) for each in outputs]
                assert np.allclose(bleus / len(study.plan.beam_sizes_of(group)), curve.bleu)
                best = curve.values[int(bleus.argmax())]
                assert found.tuning[group].scores[method.name] == method.rescorer(best)
