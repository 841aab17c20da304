"""Training runs on a toy language pair: what they leave behind, how they resume, and what they refuse."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.toy_corpus import write_task
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    EventAccumulator,
)

from uncurse.cli import main
from uncurse.errors import UncurseError
from uncurse.models.lstm.folder import load_folder
from uncurse.text.parallel import read_parallel
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.data import SentencePairs, TrainingBatch
from uncurse.training.loop import DivergedError, Trainer
from uncurse.training.precision import Precision
from uncurse.training.recipe import Recipe, read_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A second of training."""
    return read_recipe(write_task(tmp_path, lines=200, epochs=2))


def with_training(recipe: Recipe, **changes: float) -> Recipe:
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, **changes))  # type: ignore[arg-type]


def test_a_run_leaves_its_history_behind(tmp_path: Path, recipe: Recipe) -> None:
    Trainer(recipe, tmp_path, tmp_path / "run").run()
    rows = (tmp_path / "run" / "log.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("step,epoch,tokens,train_perplexity,dev_perplexity")
    assert [row.split(",")[1] for row in rows[1:]] == ["1", "2"]
    assert float(rows[-1].split(",")[4]) < float(rows[1].split(",")[4])
    assert (tmp_path / "run" / "perplexity.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "run" / "tensorboard").iterdir())


def test_an_interrupted_run_reaches_the_same_weights(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run gets a signal at every third batch until it has been interrupted four times; another gets none."""
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.3))
    Trainer(recipe, tmp_path, tmp_path / "whole").run()
    batch, calls = SentencePairs.batch, itertools.count(1)

    def interrupting(self: SentencePairs, chosen: Sequence[int]) -> TrainingBatch:
        if next(calls) % 3 == 0:
            signal.raise_signal(signal.SIGTERM)
        return batch(self, chosen)

    monkeypatch.setattr(SentencePairs, "batch", interrupting)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            Trainer(recipe, tmp_path, tmp_path / "broken").run()
    monkeypatch.undo()
    Trainer(recipe, tmp_path, tmp_path / "broken").run()
    whole, broken = (load_checkpoint(tmp_path / name / "last.safetensors") for name in ("whole", "broken"))
    assert whole.metadata["step"] == broken.metadata["step"] == 14
    assert whole.tensors.keys() == broken.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert tensor.equal(broken.tensors[name]), name
    log = [(tmp_path / name / "log.csv").read_text(encoding="utf-8") for name in ("whole", "broken")]
    assert [line.split(",")[0] for line in log[0].splitlines()] == [
        line.split(",")[0] for line in log[1].splitlines()
    ]


def test_an_unfinished_run_can_be_exported(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model has the best weights so far, and the run can still go on."""
    command = ["train", str(tmp_path / "recipe.toml"), "--data", str(tmp_path), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--export"])
    assert "has no weights to export" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    batch, calls = SentencePairs.batch, itertools.count(1)

    def interrupting(self: SentencePairs, chosen: Sequence[int]) -> TrainingBatch:
        if next(calls) == 10:  # in the second of two epochs; the dev pairs were scored after the first
            signal.raise_signal(signal.SIGTERM)
        return batch(self, chosen)

    monkeypatch.setattr(SentencePairs, "batch", interrupting)
    with pytest.raises(KeyboardInterrupt):
        Trainer(recipe, tmp_path, tmp_path / "run").run()
    monkeypatch.undo()
    last = (tmp_path / "run" / "last.safetensors").read_bytes()
    main([*command, "--export"])
    assert load_folder(tmp_path / "run" / "model").find_predictor() is not None
    best = load_checkpoint(tmp_path / "run" / "best.safetensors")
    weights = load_file(tmp_path / "run" / "model" / "weights.safetensors")
    assert all(weights[name].equal(best.tensors[name].half()) for name in weights)
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == last


def test_bfloat16_learns_and_keeps_weights_in_float32(tmp_path: Path, recipe: Recipe) -> None:
    trainer = Trainer(recipe, tmp_path, tmp_path / "run", precision=Precision.BFLOAT16)
    before = trainer.dev_perplexity()
    trainer.run()
    assert trainer.dev_perplexity() < before
    assert {parameter.dtype for parameter in trainer.network.parameters()} == {torch.float32}


def test_a_run_cannot_change_its_recipe_or_its_text(tmp_path: Path, recipe: Recipe) -> None:
    Trainer(recipe, tmp_path, tmp_path / "run")
    with pytest.raises(UncurseError, match="was trained with another recipe"):
        Trainer(with_training(recipe, seed=9), tmp_path, tmp_path / "run")
    write_task(tmp_path, lines=201, epochs=2)
    with pytest.raises(UncurseError, match="was trained on other text or tokenizers"):
        Trainer(recipe, tmp_path, tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, recipe: Recipe) -> None:
    wild = with_training(recipe, learning_rate=1e30, clip_norm=1e30)
    with pytest.raises(DivergedError, match="lower learning_rate"):
        Trainer(wild, tmp_path, tmp_path / "run").run()


def test_a_gradient_that_is_not_finite_changes_no_weight(tmp_path: Path, recipe: Recipe) -> None:
    trainer = Trainer(recipe, tmp_path, tmp_path / "run")
    bias = trainer.network.output.bias
    bias.register_hook(lambda gradient: gradient * torch.inf)  # type: ignore[no-untyped-call]
    before = bias.clone()
    with pytest.raises(DivergedError, match="at step 1: lower learning_rate"):
        trainer.run()
    assert bias.equal(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs", "epoch"), r"unknown key 'training.epoch'; did you mean 'epochs'\?"),
        (("epochs = 2", 'epochs = "2"'), "training.epochs = '2' must be of type int"),
        (("epochs = 2", "epochs = 0"), "training: epochs = 0 is not allowed: it must be at least 1"),
        (("seed = 3", "seed = -1"), r"training: seed = -1 is not allowed: it must be in 0 … 4294967295"),
        (("learning_rate = 0.004", "learning_rate = 0"), "learning_rate must be a finite number > 0"),
        (("batch_sentences = 32", ""), "give one of batch_sentences and batch_tokens"),
        (("seed = 3", "max_tokens_per_side = 1"), "no pair has between 1 and 1 tokens on both sides"),
        (("train.target", "missing"), "missing"),
        (('"train.target"', '"dev.target"'), "train.source has 200 lines and .*dev.target has 40"),
        (
            ("source = 300", "source = 9000"),
            r"tokenizer.source = 9000 is not allowed: a vocabulary of 9000 tokens is too large for this text,"
            r" which gives \d+ at most$",
        ),
        (("target = 300", "target = 30"), r"tokenizer.target = 30 is not allowed: .* needs \d+ at least"),
        (("[data]", "[data"), "is not a TOML file"),
    ],
)
def test_a_bad_recipe_is_one_line_and_status_2(
    tmp_path: Path, recipe: Recipe, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text((tmp_path / "recipe.toml").read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(bad), "--data", str(tmp_path), "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


def test_text_without_words_is_one_line(
    tmp_path: Path, recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.source").write_text("\n" * 200, encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "recipe.toml"), "--data", str(tmp_path), "--out", str(tmp_path / "run")])
    assert "the text has no line that is neither empty nor too long" in capsys.readouterr().err


def test_the_command_trains_and_translates(
    tmp_path: Path, recipe: Recipe, capfd: pytest.CaptureFixture[str]
) -> None:
    call = ["train", str(tmp_path / "recipe.toml"), "--data", str(tmp_path), "--out", str(tmp_path / "run")]
    main([*call, "--threads", "1"])
    assert f"the model is in {tmp_path / 'run' / 'model'}" in capfd.readouterr().out
    (tmp_path / "input").write_text("ba ce\n\ndi\n", encoding="utf-8")
    main(["translate", str(tmp_path / "input"), "--model", str(tmp_path / "run"), "--beam-size", "3"])
    lines = capfd.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""


def interrupted_run(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int) -> Path:
    """The folder of a run that was asked to stop after so many batches."""
    batch, calls = SentencePairs.batch, itertools.count(1)

    def interrupting(self: SentencePairs, chosen: Sequence[int]) -> TrainingBatch:
        if next(calls) == batches:
            signal.raise_signal(signal.SIGTERM)
        return batch(self, chosen)

    with monkeypatch.context() as patch:
        patch.setattr(SentencePairs, "batch", interrupting)
        with pytest.raises(KeyboardInterrupt):
            Trainer(recipe, tmp_path, tmp_path / "run").run()
    return tmp_path / "run"


def test_a_run_says_that_it_was_resumed_with_other_versions(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = interrupted_run(recipe, tmp_path, monkeypatch, batches=3) / "last.safetensors"
    checkpoint = load_checkpoint(path)
    environment = {**checkpoint.metadata["environment"], "torch": "1.2.3"}
    save_checkpoint(path, Checkpoint(checkpoint.tensors, {**checkpoint.metadata, "environment": environment}))
    Trainer(recipe, tmp_path, path.parent).run()
    error = capsys.readouterr().err
    assert "resuming at step 3 of 14" in error
    assert f"torch {torch.__version__} (was 1.2.3): weights may round differently" in error.replace("\n", " ")
    assert load_checkpoint(path).metadata["environment"]["torch"] == torch.__version__
    Trainer(recipe, tmp_path, path.parent).run()
    assert "round differently" not in capsys.readouterr().err


def test_tensorboard_has_the_whole_history_after_the_clock_was_set_back(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted_run(recipe, tmp_path, monkeypatch, batches=11)
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() - 24 * 60 * 60)
    Trainer(recipe, tmp_path, folder).run()
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [each.step for each in events.Scalars("dev_perplexity")] == [7, 14]


def test_a_full_disk_is_named_with_its_file_and_costs_nothing(
    tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_training(recipe, checkpoint_minutes=0)
    Trainer(recipe, tmp_path, tmp_path / "whole").run()
    fsync, calls = os.fsync, itertools.count(1)

    def full(file: int) -> None:
        if next(calls) == 7:  # two tokenizers, the first checkpoint, and then one for each step
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"the last checkpoint is intact.*last\.safetensors"):
            Trainer(recipe, tmp_path, tmp_path / "run").run()
    assert not list((tmp_path / "run").glob(".*.part"))
    assert load_checkpoint(tmp_path / "run" / "last.safetensors").metadata["step"] == 3
    Trainer(recipe, tmp_path, tmp_path / "run").run()
    whole, resumed = ((tmp_path / name / "last.safetensors").read_bytes() for name in ("whole", "run"))
    assert whole == resumed


def test_training_goes_on_from_the_weights_and_tokenizers_of_a_model(tmp_path: Path, recipe: Recipe) -> None:
    first = Trainer(recipe, tmp_path, tmp_path / "first")
    first.run()
    model = first.export()
    network = dataclasses.replace(recipe.model, dropout=0.1, finetune_from=str(tmp_path / "first"))
    recipe = dataclasses.replace(recipe, model=network)
    second = Trainer(recipe, tmp_path, tmp_path / "second")
    assert second.dev_perplexity() == pytest.approx(
        first.dev_perplexity(), rel=0.01
    )  # weights of models are float16
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "second" / name).read_bytes() == (model / name).read_bytes()
    second.run()
    assert second.dev_perplexity() < first.dev_perplexity()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 32}, "has other sizes than the recipe"),
        ({"finetune_from": "owner/name"}, "it must be an LSTM model of uncurse"),
        ({"finetune_from": "zh-en-smal"}, "zh-en-small"),
    ],
)
def test_a_model_that_does_not_fit_the_recipe_is_no_start(
    tmp_path: Path, recipe: Recipe, changes: dict[str, object], message: str
) -> None:
    first = Trainer(recipe, tmp_path, tmp_path / "first")
    first.run()
    first.export()
    network = dataclasses.replace(recipe.model, finetune_from=str(tmp_path / "first"))
    network = dataclasses.replace(network, **changes)  # type: ignore[arg-type]
    with pytest.raises(UncurseError, match=message):
        Trainer(dataclasses.replace(recipe, model=network), tmp_path, tmp_path / "second")
    lowercase = dataclasses.replace(recipe.tokenizer, lowercase=True)
    with pytest.raises(UncurseError, match=r"tokenizer\.lowercase is not allowed"):
        dataclasses.replace(recipe, model=network, tokenizer=lowercase)


def test_a_sample_of_a_text_is_trained_on(tmp_path: Path, recipe: Recipe) -> None:
    (files,) = recipe.data.train
    data = dataclasses.replace(recipe.data, train=(dataclasses.replace(files, lines=50), files))
    pairs = read_parallel(data.train, tmp_path)
    assert len(pairs.sources) == len(pairs.targets) == 250
    assert pairs.sources[:50] == pairs.sources[50::4]
    assert pairs.targets[:50] == pairs.targets[50::4]
    with pytest.raises(UncurseError, match="lines = 0 is not allowed"):
        dataclasses.replace(files, lines=0)
