"""A tiny translator, trained on a toy language pair whose length ratio is 2, in the commands that use a model."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from support.toy_corpus import translated, write_task

from uncurse import RULES, SCORES, Decoding, judge, load, record
from uncurse.cli import main
from uncurse.errors import UncurseError
from uncurse.lengths.predictor_file import LENGTH, load_predictor, save_predictor
from uncurse.lengths.predictors import LinearLength
from uncurse.models.download import MANIFEST
from uncurse.models.lstm.folder import load_folder
from uncurse.models.pretrained_models import BUNDLED
from uncurse.scoring.decoding import Sentence
from uncurse.search.explain import standard_scores
from uncurse.text.lines import read_lines
from uncurse.training.loop import Trainer
from uncurse.training.recipe import read_recipe
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard

pytestmark = pytest.mark.slow  # the model trains for some seconds


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


@pytest.fixture
def model_without_predictor(model: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns(LENGTH))
    return folder


def text_options(task: Path) -> list[str]:
    """Both texts of the task as options of `fit-length`."""
    files = {"source": "train.source", "target": "train.target"}
    files |= {"test-source": "dev.source", "test-target": "dev.target"}
    return [f"--{name}={task / file}" for name, file in files.items()]


def test_it_translates_lines_it_has_not_seen(task: Path, model: Path) -> None:
    lines = read_lines(task / "dev.source")
    outputs = list(load(str(model)).translate(lines, beam_size=5))
    assert np.mean([output.text == translated(line) for output, line in zip(outputs, lines, strict=True)]) > 0.9
    assert all(output.certificate is not None and output.certificate.proved for output in outputs)


def test_the_predicted_ratio_is_target_over_source(task: Path, model: Path) -> None:
    folder = load_folder(model)
    assert folder.predictor is not None
    sources = folder.source.encode(read_lines(task / "dev.source"))
    targets = folder.target.encode(read_lines(task / "dev.target"))
    lengths = np.array([len(source) for source in sources])
    true = np.array([len(target) + 1 for target in targets])
    expected = folder.predictor.predict(lengths, folder.model.features(sources))
    assert np.abs(expected - true).mean() < 1.0
    assert expected.sum() / lengths.sum() > 1.8


def test_every_score_and_every_rule_translates(task: Path, model: Path) -> None:
    folder = load_folder(model)
    lines = read_lines(task / "dev.source")[:10]
    sources = folder.source.encode(lines)
    sentences = [Sentence(tuple(source), 30, expected_length=2.0 * len(source) + 1) for source in sources]
    scores = standard_scores(reward=0.5, attends=True, knows_length=True)
    right: list[bool] = []
    for trace, sentence, line in zip(record(folder.model, sentences, 5), sentences, lines, strict=True):
        decodings = [Decoding(5, score, rule) for score in scores for rule in RULES]
        results = judge(trace, decodings, expected_length=sentence.expected_length)
        texts = [folder.target.decode(result.hypotheses[0].tokens) for result in results]
        right.extend(text == translated(line) for text in texts)
    assert np.mean(right) > 0.8


def test_a_predictor_of_another_model_is_refused(model: Path, model_without_predictor: Path) -> None:
    predictor = load_folder(model).predictor
    assert isinstance(predictor, LinearLength)
    save_predictor(model_without_predictor / LENGTH, predictor, "0123456789abcdef")
    with pytest.raises(UncurseError, match="was fitted to model 0123456789abcdef"):
        _ = load_folder(model_without_predictor).predictor


@pytest.mark.parametrize("name", ["weights.safetensors", "source.spm", "model.json"])
def test_an_incomplete_folder_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    for path in model.iterdir():
        if path.name != name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises((UncurseError, OSError), match=name):
        load_folder(tmp_path)
    (tmp_path / name).write_bytes(b"{}" if name == "model.json" else (model / name).read_bytes()[:100])
    with pytest.raises(UncurseError, match=name):
        load_folder(tmp_path)


@pytest.mark.parametrize("name", ["weights.safetensors", "source.spm", "length.safetensors"])
def test_a_changed_byte_is_noticed(model: Path, tmp_path: Path, name: str) -> None:
    for path in model.iterdir():
        content = bytearray(path.read_bytes())
        if path.name == name:
            content[-5] ^= 1
        (tmp_path / path.name).write_bytes(content)
    with pytest.raises(UncurseError, match=f"{name}.* is damaged"):
        _ = load_folder(tmp_path).predictor


def test_fit_length_writes_into_a_folder_of_the_user_and_says_where(
    task: Path, model_without_predictor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_folder(model_without_predictor).predictor is None
    main(["fit-length", "--model", str(model_without_predictor), *text_options(task)])
    out = capsys.readouterr().out
    assert "(and bias)" in out
    for column in ("predictor", "fixed ratio", "straight line"):
        assert column in out
    (written,) = model_without_predictor.glob("length*")
    assert f"wrote {written}" in out
    assert load_folder(model_without_predictor).predictor is not None


def test_fit_length_reports_every_test_text(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "predictor"
    more = [f"--test-source={task / 'train.source'}", f"--test-target={task / 'train.target'}", "--pairs=500"]
    main(["fit-length", "--model", str(model), *text_options(task), *more, "--out", str(out)])
    *lines, how = capsys.readouterr().out.splitlines()
    assert how == f"wrote {out}; use it with uncurse translate --model {model} --length-predictor {out}"
    rows = [line.split()[0] for line in lines if task.name in line]
    assert rows == [f"{task.name}/dev.source", f"{task.name}/train.source"] * 2
    assert load_predictor(out, load_folder(model).fingerprint).levels


def test_fit_length_needs_nothing_but_source_text(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, source = tmp_path / "predictor", task / "dev.source"
    main(["fit-length", "--model", str(model), "--from-model", f"--source={source}", "--out", str(out)])
    assert f"{task.name}/dev.source" in capsys.readouterr().out  # a tenth of it is reported on
    folder = load_folder(model)
    lines = read_lines(source)
    outputs = load(str(model)).translate(lines, beam_size=5, score="length-norm", max_length="2x+10")
    own = np.array([each.result.hypotheses[0].length for each in outputs if each.result])
    sources = folder.source.encode(lines)
    lengths = np.array([len(each) for each in sources])
    expected = load_predictor(out, folder.fingerprint).predict(lengths, folder.model.features(sources))
    assert np.abs(expected - own).mean() < 1.0


def test_fit_length_takes_the_mean_of_own_and_given_translations(task: Path, model: Path, tmp_path: Path) -> None:
    out, source, target = tmp_path / "predictor", task / "dev.source", tmp_path / "target"
    translations = read_lines(task / "dev.target")
    target.write_text("".join(f"{line} {line} {line}\n" for line in translations), encoding="utf-8")
    files = [f"--source={source}", f"--target={target}", f"--out={out}"]
    main(["fit-length", "--model", str(model), "--from-model", *files])
    folder = load_folder(model)
    sources = folder.source.encode(read_lines(source))
    lengths = np.array([len(each) for each in sources])
    predictor, features = load_predictor(out, folder.fingerprint), folder.model.features(sources)
    once = np.array([len(each) for each in folder.target.encode(translations)])
    assert predictor.predict(lengths, features).mean() == pytest.approx(2 * once.mean(), rel=0.1)
    assert predictor.quantile(0.5, lengths, features).mean() == pytest.approx(3 * once.mean(), rel=0.1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([], "1 texts with --source need as many with --target, not 0, or give --from-model"),
        (["--from-model", "--target=a", "--target=b"], "1 texts with --source need as many with --target, not 2"),
        (["--target=a", "--test-source=b"], "1 texts with --test-source need as many with --test-target, not 0"),
    ],
)
def test_fit_length_refuses_texts_that_do_not_match(
    model: Path, given: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["fit-length", "--model", str(model), "--source=a", *given])
    assert complaint in capsys.readouterr().err


def test_a_predictor_in_a_file_of_its_own_is_used_where_it_is_named(
    model: Path, model_without_predictor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--model", str(model_without_predictor), "--length-predictor", str(model / LENGTH)]
    (tmp_path / "line").write_text("ba lo fo\n", encoding="utf-8")
    main(["translate", str(tmp_path / "line"), *chosen, "--json"])
    found = json.loads(capsys.readouterr().out)
    (expected,) = load(model_without_predictor, length_predictor=model / LENGTH).translate(["ba lo fo"])
    assert (
        found["expected_length"]
        == expected.expected_length
        == load(model).translate(["ba lo fo"])[0].expected_length
    )
    assert expected.expected_length is not None
    for command in (["explain", "ba lo fo"], ["score", str(tmp_path / "line"), str(tmp_path / "line")]):
        main([*command, *chosen])
        assert "f1-norm" in capsys.readouterr().out
    with pytest.raises(UncurseError, match="was fitted to model"):
        load(length_predictor=model / LENGTH)


def test_fit_length_never_writes_into_a_bundled_or_downloaded_model(
    task: Path, model_without_predictor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model_without_predictor / MANIFEST).write_text("{}")  # as in every folder that was downloaded
    folders = (BUNDLED, model_without_predictor)
    before = [sorted(folder.iterdir()) for folder in folders]
    for name in ("zh-en-small", *map(str, folders)):
        with pytest.raises(SystemExit) as stopped:
            main(["fit-length", "--model", name, *text_options(task)])
        assert stopped.value.code == 2
        assert "name the file to write with --out" in capsys.readouterr().err
    assert [sorted(folder.iterdir()) for folder in folders] == before


def test_fit_length_refuses_a_file_that_it_cannot_write_before_it_fits(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = task / "train.source"
    for out, message in (
        (tmp_path, "is a folder: name a file"),
        (tmp_path / "missing" / "file", "there is no folder"),
        (text, "is also an input: choose another file"),
    ):
        with pytest.raises(SystemExit):
            main(["fit-length", "--model", str(model), *text_options(task), "--out", str(out)])
        assert message in capsys.readouterr().err


def test_explain_shows_what_every_score_and_rule_does(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", "ba lo fo", "--model", str(model), "--beam-size", "8"])
    out = capsys.readouterr().out
    assert translated("ba lo fo") in out
    for name in (*SCORES, *RULES):
        assert name in out


def test_score_agrees_with_the_search(
    task: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = read_lines(task / "dev.source")[:4]
    outputs = list(load(str(model)).translate(lines, beam_size=5, score="bp-norm"))
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "target").write_text("".join(f"{each.text}\n" for each in outputs), encoding="utf-8")
    main(["score", str(tmp_path / "source"), str(tmp_path / "target"), "--model", str(model), "--beam-size", "5"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for output, found in zip(outputs, records, strict=True):
        assert output.result is not None
        best = output.result.hypotheses[0]
        assert found["tokens"] == list(best.tokens)
        assert found["log_prob"] == pytest.approx(best.log_prob, abs=1e-4)
        assert found["scores"]["bp-norm"] == pytest.approx(best.score, abs=1e-4)
        assert found["scores"]["adaptive-reward"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "--model", "{model}", "--score", "bp-nrom"], "did you mean 'bp-norm'"),
        (["translate", "--model", "{model}", "--max-length", "many"], "'many' is not"),
        (["translate", "--model", "{model}", "{bad}"], "bad, line 2: not valid UTF-8"),
        (["translate", "--model", "{model}", "{missing}"], "there is no file"),
        (["translate", "--model", "{missing}"], "is neither a folder with a model nor"),
        (
            ["translate", "--model", "{model}", "--beam-size", "0"],
            "--beam-size 0 is not allowed: it must be at least 1",
        ),
        (
            ["translate", "--model", "{model}", "--beam-size", "x"],
            "--beam-size x is not allowed: it must be a whole number",
        ),
        (["translate", "--model", "{model}", "--out", "{folder}"], "is a folder: name a file"),
        (["translate", "--model", "{model}", "--device", "gpu"], "device = 'gpu' is not allowed"),
        (["translate", "--model", "{model}", "--device", "meta"], "cpu, cuda, mps"),
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
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_an_interrupted_translation_resumes_to_the_same_bytes(
    task: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("uncurse.translation.shards.COST", 250)
    lines = tmp_path / "lines"
    lines.write_bytes((task / "dev.source").read_bytes())
    call = ["translate", str(lines), "--model", str(model), "--beam-size", "3", "--threads", "1", "--json"]
    main([*call, "--out", str(tmp_path / "whole")])
    add, calls = ResumableOutput.add, itertools.count(1)

    def interrupting(self: ResumableOutput, shard: Shard, content: bytes, counts: Mapping[str, int]) -> None:
        if next(calls) == 3:
            (self.folder / f"{shard.number:06d}").write_bytes(content[:-1])
            raise KeyboardInterrupt
        add(self, shard, content, counts)

    monkeypatch.setattr(ResumableOutput, "add", interrupting)
    with pytest.raises(SystemExit):
        main([*call, "--out", str(tmp_path / "broken")])
    assert not (tmp_path / "broken").exists()
    with pytest.raises(SystemExit):
        main([*call, "--out", str(tmp_path / "broken")])
    assert "resume it, or remove the folder" in capsys.readouterr().err
    for change, message in (([*call, "--n-best", "2"], "made with other settings"), (call, "input has changed")):
        if message == "input has changed":
            lines.write_text("gu\n" * 40, encoding="utf-8")
        with pytest.raises(SystemExit):
            main([*change, "--out", str(tmp_path / "broken"), "--resume"])
        assert message in capsys.readouterr().err
    lines.write_bytes((task / "dev.source").read_bytes())
    main([*call, "--out", str(tmp_path / "broken"), "--resume"])
    assert (tmp_path / "broken").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "lines", "whole"]


def test_an_n_best_list_numbers_its_lines(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_text("ba ce\n\ndi\n", encoding="utf-8")
    call = ["translate", str(tmp_path / "lines"), "--model", str(model), "--n-best", "2", "--beam-size", "3"]
    main(call)
    lines = [line.split(" ||| ") for line in capsys.readouterr().out.splitlines()]
    assert [number for number, _, _ in lines] == ["0", "0", "1", "2", "2"]
    assert lines[0][1] == translated("ba ce")
    assert float(lines[0][2]) > float(lines[1][2])
    assert lines[2][1] == ""
    main([*call, "--out", str(tmp_path / "out")])
    written = [line.split(" ||| ") for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    assert written == lines
