"""A tiny translator, trained here on a made-up task whose length ratio is 2, and what becomes of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up import translated, write_task

from uncurse import RULES, SCORES, judge, load, record
from uncurse.cli import main
from uncurse.decoding import Sentence
from uncurse.length import MLPLength
from uncurse.models.directory import load_folder
from uncurse.models.predictors import LENGTH, save_predictor
from uncurse.parts import Parts
from uncurse.shards import Shard
from uncurse.text.lines import read_lines
from uncurse.training.checkpoint import load_checkpoint
from uncurse.training.data import Batch, Pairs
from uncurse.training.loop import DivergedError, Trainer, trains_in_bfloat16
from uncurse.training.precision import Precision
from uncurse.training.recipe import read_recipe

WAYS = ["log-prob", "length-norm", "gnmt:beta=0.1", "word-reward:reward=0.5", "bounded-word-reward:reward=0.5",
        "bounded-word-reward:reward=0.5,ratio=2", "adaptive-reward", "bp-norm", "f1-norm"]  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_task(folder, lines=3000, epochs=4)
    return folder


@pytest.fixture(scope="module")
def model(task: Path) -> Path:
    trainer = Trainer(read_recipe(task / "recipe.toml"), task, task / "run")
    trainer.run()
    return trainer.export()


def test_it_translates_lines_it_has_not_seen(task: Path, model: Path) -> None:
    lines = read_lines(task / "dev.source")
    outputs = load(model).translate(lines, beam=5)
    right = [output.texts[0] == translated(line) for output, line in zip(outputs, lines, strict=True)]
    assert np.mean(right) > 0.9
    assert all(output.result is not None and output.result.optimality.proved for output in outputs)


def test_a_run_leaves_its_history_behind(task: Path, model: Path) -> None:
    rows = (task / "run" / "log.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("step,epoch,tokens,train_perplexity,dev_perplexity")
    assert [row.split(",")[1] for row in rows[1:]] == ["1", "2", "3", "4"]
    assert float(rows[-1].split(",")[4]) < float(rows[1].split(",")[4])
    assert (task / "run" / "perplexity.png").read_bytes().startswith(b"\x89PNG")
    assert list((task / "run" / "tensorboard").iterdir())


def test_the_predicted_ratio_is_target_over_source(task: Path, model: Path) -> None:
    folder = load_folder(model)
    assert folder.predictor is not None
    sources = folder.source.encode(read_lines(task / "dev.source"))
    targets = folder.target.encode(read_lines(task / "dev.target"))
    lengths = np.array([len(source) for source in sources])
    true = np.array([len(target) + 1 for target in targets])
    predicted = folder.predictor.predict(lengths, folder.model.features(sources))
    assert np.abs(predicted - true).mean() < 1.0
    assert predicted.sum() / lengths.sum() > 1.8


def test_every_rule_decodes_it(task: Path, model: Path) -> None:
    folder = load_folder(model)
    lines = read_lines(task / "dev.source")[:10]
    sources = folder.source.encode(lines)
    sentences = [Sentence(tuple(source), 30, predicted=2.0 * len(source) + 1) for source in sources]
    right = 0
    for trace, sentence, line in zip(record(folder.model, sentences, 5), sentences, lines, strict=True):
        for spec in WAYS:
            for rule in RULES:
                result = judge(trace, SCORES.parse(spec), rule.method(), length=sentence.predicted)
                right += folder.target.decode(result.hypotheses[0].tokens) == translated(line)
    assert right / (len(lines) * len(WAYS) * len(list(RULES))) > 0.8


def test_a_predictor_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    folder = load_folder(model)
    assert isinstance(folder.predictor, MLPLength)
    for name in ("model.json", "weights.safetensors", "source.spm", "target.spm"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    save_predictor(tmp_path / LENGTH, folder.predictor, "0123456789abcdef")
    with pytest.raises(ValueError, match="was fitted to model 0123456789abcdef"):
        load_folder(tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "source.spm", "model.json"])
def test_a_folder_that_is_not_whole_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    for path in model.iterdir():
        if path.name != name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=f"{name} is missing"):
        load_folder(tmp_path)
    (tmp_path / name).write_bytes(b"{}" if name == "model.json" else (model / name).read_bytes()[:100])
    with pytest.raises((ValueError, RuntimeError)):
        load_folder(tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "source.spm", "length.safetensors"])
def test_a_changed_byte_is_noticed(model: Path, tmp_path: Path, name: str) -> None:
    for path in model.iterdir():
        content = bytearray(path.read_bytes())
        if path.name == name:
            content[-5] ^= 1
        (tmp_path / path.name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}.* is damaged"):
        load_folder(tmp_path)


def test_an_interrupted_run_reaches_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run gets a signal at every third batch until it has been broken four times, another none."""
    write_task(tmp_path, lines=200, epochs=2)
    recipe = read_recipe(tmp_path / "recipe.toml")
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, dropout=0.3))
    Trainer(recipe, tmp_path, tmp_path / "whole").run()
    batch, calls = Pairs.batch, itertools.count(1)

    def interrupting(self: Pairs, chosen: Sequence[int]) -> Batch:
        if next(calls) % 3 == 0:
            signal.raise_signal(signal.SIGTERM)
        return batch(self, chosen)

    monkeypatch.setattr(Pairs, "batch", interrupting)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            Trainer(recipe, tmp_path, tmp_path / "broken").run()
    monkeypatch.undo()
    Trainer(recipe, tmp_path, tmp_path / "broken").run()
    whole, broken = (load_checkpoint(tmp_path / name / "last.safetensors") for name in ("whole", "broken"))
    assert whole.facts["step"] == broken.facts["step"] == 14
    assert whole.tensors.keys() == broken.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert tensor.equal(broken.tensors[name]), name
    log = [(tmp_path / name / "log.csv").read_text(encoding="utf-8") for name in ("whole", "broken")]
    assert [line.split(",")[0] for line in log[0].splitlines()] == [
        line.split(",")[0] for line in log[1].splitlines()
    ]


def test_bfloat16_learns_and_keeps_weights_in_float32_or_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, lines=200, epochs=2)
    recipe = read_recipe(tmp_path / "recipe.toml")
    if not trains_in_bfloat16(torch.device("cpu")):
        with pytest.raises(ValueError, match="LSTMs cannot train in it on this cpu"):
            Trainer(recipe, tmp_path, tmp_path / "run", precision=Precision.BFLOAT16)
        return
    trainer = Trainer(recipe, tmp_path, tmp_path / "run", precision=Precision.BFLOAT16)
    before = trainer.dev_perplexity()
    trainer.run()
    assert trainer.dev_perplexity() < before
    assert {parameter.dtype for parameter in trainer._network.parameters()} == {torch.float32}


def test_a_folder_keeps_to_its_recipe_and_its_text(tmp_path: Path) -> None:
    write_task(tmp_path, lines=200, epochs=1)
    recipe = read_recipe(tmp_path / "recipe.toml")
    Trainer(recipe, tmp_path, tmp_path / "run").run()
    other = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, seed=9))
    with pytest.raises(ValueError, match="was trained by another recipe"):
        Trainer(other, tmp_path, tmp_path / "run")
    write_task(tmp_path, lines=201, epochs=1)
    with pytest.raises(ValueError, match="was trained on other text"):
        Trainer(recipe, tmp_path, tmp_path / "run")


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    write_task(tmp_path, lines=200, epochs=1)
    recipe = read_recipe(tmp_path / "recipe.toml")
    wild = dataclasses.replace(recipe.training, learning_rate=1e30, clip=1e30)
    with pytest.raises(DivergedError, match="lower learning_rate"):
        Trainer(dataclasses.replace(recipe, training=wild), tmp_path, tmp_path / "run").run()


def test_a_gradient_that_is_not_a_number_changes_no_weight(tmp_path: Path) -> None:
    write_task(tmp_path, lines=200, epochs=1)
    trainer = Trainer(read_recipe(tmp_path / "recipe.toml"), tmp_path, tmp_path / "run")
    trainer._network.output.bias.register_hook(lambda gradient: gradient * torch.inf)  # type: ignore[no-untyped-call]
    before = trainer._network.output.bias.clone()
    with pytest.raises(DivergedError, match="at step 1: lower learning_rate"):
        trainer.run()
    assert trainer._network.output.bias.equal(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs", "epoch"), r"unknown key 'training.epoch'; did you mean 'epochs'\?"),
        (("epochs = 4", 'epochs = "4"'), "training.epochs = '4' must be of type int"),
        (("batch_sentences = 32", ""), "give one of batch_sentences and batch_tokens"),
        (("train.target", "missing"), "missing"),
        (('"train.target"', '"dev.target"'), "train.source has 3000 lines and .*dev.target has 40"),
        (("source = 300", "source = 9000"), "no 9000 pieces can be learnt"),
        (("[data]", "[data"), "is not a TOML file"),
    ],
)
def test_a_bad_recipe_is_one_line_and_status_2(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((task / "recipe.toml").read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["train", str(recipe), "--data", str(task), "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said)


def test_the_command_trains_and_translates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = write_task(tmp_path, lines=300, epochs=1)
    main(["train", str(recipe), "--data", str(tmp_path), "--out", str(tmp_path / "run"), "--threads", "1"])
    capfd.readouterr()
    (tmp_path / "input").write_text("ba ce\n\ndi\n", encoding="utf-8")
    main(["translate", str(tmp_path / "input"), "--model", str(tmp_path / "run" / "model"), "--beam", "3"])
    lines = capfd.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""


def test_the_command_fits_a_length_predictor(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in model.iterdir():
        if path.name != LENGTH:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert load_folder(tmp_path).predictor is None
    files = [f"--{name}={task / file}" for name, file in (
        ("source", "train.source"), ("target", "train.target"),
        ("test-source", "dev.source"), ("test-target", "dev.target"),
    )]  # fmt: skip
    main(["fit-length", "--model", str(tmp_path), *files])
    said = capsys.readouterr().out
    assert "40 test pairs" in said
    assert "fixed ratio" in said
    assert load_folder(tmp_path).predictor is not None


def test_explain_shows_what_every_score_and_rule_does(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "ba lo fo", "--model", str(model), "--beam", "8"])
    said = capsys.readouterr().out
    assert translated("ba lo fo") in said
    for name in [*(entry.name for entry in SCORES), *(entry.name for entry in RULES)]:
        assert name in said
    assert said.count("●") == 1 + len(list(SCORES))  # once in the title


def test_score_says_what_the_search_says(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = read_lines(task / "dev.source")[:4]
    outputs = load(model).translate(lines, beam=5)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "target").write_text("".join(f"{each.texts[0]}\n" for each in outputs), encoding="utf-8")
    main(["score", str(tmp_path / "source"), str(tmp_path / "target"), "--model", str(model), "--beam", "5"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for output, record_line in zip(outputs, records, strict=True):
        assert output.result is not None
        best = output.result.hypotheses[0]
        assert record_line["tokens"] == list(best.tokens)
        assert record_line["log_prob"] == pytest.approx(best.log_prob, abs=1e-4)
        assert record_line["scores"]["bp-norm"] == pytest.approx(best.score, abs=1e-4)
        assert record_line["scores"]["adaptive-reward"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "--model", "{model}", "--score", "bp-nrom"], "did you mean 'bp-norm'"),
        (["translate", "--model", "{model}", "--max-length", "many"], "limit 'many' is not understood"),
        (["translate", "--model", "{model}", "{bad}"], "bad, line 2: not valid UTF-8"),
        (["translate", "--model", "{model}", "{missing}"], "No such file"),
        (["translate", "--model", "{missing}"], "is not a folder with a model"),
        (["translate", "--model", "{model}", "--long-lines", "cut"], "write error or truncate"),
        (["translate", "--model", "{model}", "--beam", "0"], "Invalid value for '--beam'"),
        (["translate", "--model", "{model}", "--beam", "x"], "Invalid value for '--beam'"),
        (["translate", "--model", "{model}", "--out", "{folder}"], "is a folder: name a file"),
        (["translate", "--model", "{model}", "--device", "gpu"], "device 'gpu' cannot be used here"),
        (["translate", "--model", "{model}", "--device", "meta"], "it is none of cpu, cuda, mps"),
        (["score", "{bad}", "{missing}", "--model", "{model}"], "bad, line 2: not valid UTF-8"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"ba\n\xff\n")
    names = {"model": model, "bad": bad, "missing": tmp_path / "missing", "folder": tmp_path}
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(**names) for argument in arguments])
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_broken_translation_goes_on_to_the_same_bytes(
    task: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("uncurse.shards.COST", 250)
    lines = tmp_path / "lines"
    lines.write_bytes((task / "dev.source").read_bytes())
    call = ["translate", str(lines), "--model", str(model), "--beam", "3", "--threads", "1", "--json"]
    main([*call, "--out", str(tmp_path / "whole")])
    add, calls = Parts.add, itertools.count(1)

    def breaking(self: Parts, shard: Shard, content: bytes) -> None:
        if next(calls) == 3:
            (self.folder / f"{shard.number:06d}").write_bytes(content[:-1])
            raise KeyboardInterrupt
        add(self, shard, content)

    monkeypatch.setattr(Parts, "add", breaking)
    with pytest.raises(SystemExit):
        main([*call, "--out", str(tmp_path / "broken")])
    assert not (tmp_path / "broken").exists()
    with pytest.raises(SystemExit):
        main([*call, "--out", str(tmp_path / "broken")])
    assert "use --resume, or remove it" in capsys.readouterr().err
    for change, message in (([*call, "--n-best", "2"], "made in another way"), (call, "not the one")):
        if message == "not the one":
            lines.write_text("gu\n" * 40, encoding="utf-8")
        with pytest.raises(SystemExit):
            main([*change, "--out", str(tmp_path / "broken"), "--resume"])
        assert message in capsys.readouterr().err
    lines.write_bytes((task / "dev.source").read_bytes())
    main([*call, "--out", str(tmp_path / "broken"), "--resume"])
    assert (tmp_path / "broken").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "lines", "whole"]


def test_an_n_best_list_names_its_lines(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_text("ba ce\n\ndi\n", encoding="utf-8")
    call = ["translate", str(tmp_path / "lines"), "--model", str(model), "--n-best", "2", "--beam", "3"]
    main(call)
    lines = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    assert [number for number, _, _ in lines] == ["0", "0", "1", "2", "2"]
    assert lines[0][1] == translated("ba ce")
    assert float(lines[0][2]) > float(lines[1][2])
    assert lines[2][1] == ""
    main([*call, "--out", str(tmp_path / "out")])
    written = [line.split(" ||| ") for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    assert written == lines
