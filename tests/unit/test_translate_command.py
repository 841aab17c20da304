"""What `uncurse translate` reads, writes, refuses and says."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.letter_model import LetterEncoder, LetterWords

from uncurse.cli import main
from uncurse.executors.local import LocalExecutor
from uncurse.lengths.predictors import FixedRatio
from uncurse.translation import shards
from uncurse.translation.translate_corpus import ShardJob
from uncurse.translation.translator import Translator

LINES = [f"{'a b c d e f'[: 1 + 2 * (index % 6)]}" for index in range(30)]


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> Translator:
    """A translator that is loaded at once, and shards of a few lines."""
    model = LetterEncoder(seed=1, vocab_size=7, ending=1.0)
    translator = Translator(model, LetterWords(), LetterWords(), FixedRatio(1.5))
    monkeypatch.setattr("uncurse.cli.translate_task.load_translator", lambda options: translator)
    monkeypatch.setattr(shards, "COST", 100)
    return translator


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line of a command that could not do what it was asked."""
    with pytest.raises(SystemExit) as stopped:
        main(["translate", *map(str, arguments)])
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "ray"], "--engine needs --out"),
        (["--resume"], "--resume needs --out"),
        (["--workers", "2"], "--workers needs --engine"),
        (["--engine", "spark", "--out", "{out}"], "engine = 'spark' is not allowed"),
        (["--threads", "99999999"], "--threads 99999999 is not allowed: it must be at most 1024"),
        (["--threads", "-1"], "--threads -1 is not allowed: it must be at least 0"),
        (["--beam-size", "ten"], "--beam-size ten is not allowed: it must be a whole number"),
        (["-b", "2.5"], "--beam-size 2.5 is not allowed: it must be a whole number"),
        (["--length-ratio", "x"], "--length-ratio x is not allowed: it must be a number"),
        (["--length-ratio", "0"], "length_ratio = 0.0 is not allowed: length_ratio must be a number in (0, 1000]"),
        (["--plugin", "my.py"], "--plugin comes before the subcommand"),
        (["外面下雨了。"], "there is no file 外面下雨了。; to translate a sentence: echo"),
        (["雨" * 200], "to translate a sentence: echo"),
        (["--out", "{out}/out"], "there is no folder {out}"),
        (["--only", "{out}"], "--only: there is no file {out}"),
        (["--distinct"], "distinct is not allowed: it needs an n_best above 1"),
        (["--no-repeat-ngram", "-1"], "--no-repeat-ngram -1 is not allowed: it must be at least 0"),
    ],
)
def test_options_that_cannot_act_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    out = tmp_path / "out"
    assert message.format(out=out) in refused(capsys, *(each.format(out=out) for each in arguments))
    assert names(tmp_path) == []


def test_constraints_are_read_from_files(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only, ban = tmp_path / "only", tmp_path / "ban"
    only.write_text("a b\n\nc d e\nf\n", encoding="utf-8")
    main(["translate", str(corpus), "--only", str(only)])
    assert {*capsys.readouterr().out.splitlines()} <= {"a b", "c d e", "f"}
    ban.write_text("a\nb c\n", encoding="utf-8")
    main(
        [
            "translate",
            str(corpus),
            "--ban",
            str(ban),
            "--no-repeat-ngram",
            "2",
            "--n-best",
            "5",
            "--distinct",
            "--json",
        ]
    )
    for line in capsys.readouterr().out.splitlines():
        record = json.loads(line)
        texts = [record["text"], *(other["text"] for other in record["others"])]
        assert len({*texts}) == len(texts)
        assert not any("a" in text or "b c" in text for text in texts)
        assert "|constraint:ban-text-" in record["signature"]
        assert "+no-repeat-ngram-2|" in record["signature"]
    ban.write_text("\n", encoding="utf-8")
    assert "there is no text in it" in refused(capsys, corpus, "--ban", ban)
    only.write_text("a g\n", encoding="utf-8")
    assert "this model can only spell" in refused(capsys, corpus, "--only", only)


def test_an_output_that_would_replace_its_input_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = corpus.read_bytes()
    (tmp_path / "link").symlink_to(corpus)
    for out in (corpus, tmp_path / "link", tmp_path / "." / "corpus"):
        assert "is also an input: choose another file" in refused(capsys, tmp_path / "link", "--out", out)
    assert corpus.read_bytes() == before
    assert names(tmp_path) == ["corpus", "link"]


@pytest.mark.parametrize("flag", ["--ban", "--only", "--length-predictor", "--vocabulary-selector"])
def test_an_output_that_would_replace_what_an_option_names_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    named = tmp_path / "named"
    named.write_text("a b\n", encoding="utf-8")
    assert "is also an input: choose another file" in refused(capsys, corpus, flag, named, "--out", named)
    assert named.read_text(encoding="utf-8") == "a b\n"


def test_an_output_that_would_replace_a_file_of_the_model_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "model" / "weights.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"weeks of training")
    said = refused(capsys, corpus, "--model", weights.parent, "--out", weights)
    assert "is also an input: choose another file" in said
    assert weights.read_bytes() == b"weeks of training"


@pytest.mark.parametrize("arguments", [["--out", "corpus"], ["-"], ["corpus"]])
def test_a_file_is_not_read_and_written_by_redirection(corpus: Path, arguments: list[str]) -> None:
    before, command = corpus.read_bytes(), [sys.executable, "-m", "uncurse", "translate", *arguments]
    with corpus.open("rb") as read, corpus.open("ab") as written:
        done = subprocess.run(
            command,
            cwd=corpus.parent,
            stdin=read,
            stdout=subprocess.DEVNULL if "--out" in arguments else written,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert b"is also an input: choose another file" in done.stderr
    assert corpus.read_bytes() == before


def test_an_output_that_is_no_file_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in refused(capsys, corpus, "--out", tmp_path / "pipe")
    assert "is not a regular file" in refused(capsys, corpus, "--out", "/dev/null")
    assert "is a folder: name a file" in refused(capsys, corpus, "--out", tmp_path)
    assert names(tmp_path) == ["corpus", "pipe"]


def test_a_start_that_fails_leaves_nothing_in_the_way(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write_text("a\n" + "b " * 2000 + "\n", encoding="utf-8")
    call = (corpus, "--beam-size", "2", "--max-length", "5", "--out", tmp_path / "out")
    assert "corpus, line 2 has 2000 tokens" in refused(capsys, *call)
    assert names(tmp_path) == ["corpus"]
    main(["translate", *map(str, call), "--truncate"])
    assert names(tmp_path) == ["corpus", "out"]


def test_the_settings_that_differ_are_named(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(monkeypatch, 2)
    call = [str(corpus), "--out", str(tmp_path / "out"), "-b", "3"]
    with pytest.raises(SystemExit):
        main(["translate", *call])
    capsys.readouterr()
    options = ["--max-length", "2x+5", "--score", "bp-norm", "--resume"]
    message = refused(capsys, *call, *options)
    differences = "score was default, now bp-norm; max_length was default, now 2x+5"
    assert message.endswith(f"out.parts was made with other settings: {differences}\n")


# What is said.


def warnings(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[list[str], list[str]]:
    main(["translate", *map(str, arguments)])
    said = capsys.readouterr()
    return said.out.splitlines(), said.err.splitlines()


@pytest.mark.parametrize("options", [["--max-length", "3"], ["--max-length", "1"], ["--n-best", "50"]])
def test_what_translations_do_not_show_is_counted(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    corpus.write_text("a b\n" + "b " * 1001 + "\n\nc d e\n", encoding="utf-8")
    call = [str(corpus), "--truncate", "-b", "2", "--max-length", "9", *options]
    lines, said = warnings(capsys, *call, "--json")
    records = [json.loads(line) for line in lines]
    assert [record["source_truncated"] for record in records] == [False, True, False, False]
    cut_off = sum(record["certificate"] == "TRUNCATED" for record in records)
    counts = {
        "source too long for the model, truncated": 1,
        "nothing finished within the maximum length, so the output is cut off": cut_off,
        "fewer translations than asked for, since no more finished": (3 - cut_off if "--n-best" in options else 0),
    }
    assert said == [
        f"uncurse: {count} line{'s' * (count > 1)}: {words}" for words, count in counts.items() if count
    ]
    assert warnings(capsys, *call, "--out", tmp_path / "out")[1] == said


def test_counts_of_shards_that_were_done_before_are_not_forgotten(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = [str(corpus), "-b", "2", "--min-length", "3", "--max-length", "3", "--out"]
    _, undisturbed = warnings(capsys, *call, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        with pytest.raises(SystemExit):
            main(["translate", *call, str(tmp_path / "out")])
    capsys.readouterr()
    assert warnings(capsys, *call, tmp_path / "out", "--resume")[1] == undisturbed
    assert undisturbed


def interrupt_after(patch: pytest.MonkeyPatch, count: int) -> None:
    """Ctrl-C while the shard after so many is translated."""
    translate = ShardJob.__call__
    left = count

    def interrupting(job: ShardJob, translator: Translator) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return translate(job, translator)

    patch.setattr(ShardJob, "__call__", interrupting)


@pytest.mark.parametrize("done", [0, 2])
def test_an_interrupted_command_says_how_to_go_on(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    interrupt_after(monkeypatch, done)
    with pytest.raises(SystemExit, match="130"):
        main(["translate", str(corpus), "--out", str(tmp_path / "out")])
    folder = tmp_path / "out.parts"
    expected = f"the finished part is in {folder}; run the same command with --resume to continue"
    assert (
        capsys.readouterr().err
        == f"uncurse: interrupted; {expected if done else 'no part of it was finished, so nothing is kept'}\n"
    )
    assert folder.exists() == bool(done)


def test_an_interrupted_stream_says_so(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "translate_shard", interrupt)
    with pytest.raises(SystemExit, match="130"):
        main(["translate", str(corpus)])
    assert capsys.readouterr().err == "uncurse: interrupted\n"


def test_resuming_what_is_finished_leaves_it_as_it_is(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ["translate", str(corpus), "--out", str(tmp_path / "out")]
    main(call)
    before = (tmp_path / "out").stat()
    monkeypatch.setattr("uncurse.cli.translate_task.load_translator", None)
    abandoned = tmp_path / ".out.parts.123.removed"  # by a process that was killed when the output was there
    abandoned.mkdir()
    for name in ("000000", "manifest.json"):
        (abandoned / name).touch()
    main([*call, "--resume"])
    assert names(tmp_path) == ["corpus", "out"]
    assert (
        capsys.readouterr().err
        == f"uncurse: {tmp_path / 'out'} is already finished; remove it to translate again\n"
    )
    assert (tmp_path / "out").stat() == before


def test_progress_moves_with_every_line(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    @contextmanager
    def recorded(what: str, total: int | None, shown: bool = True) -> Iterator[Callable[[int], None]]:
        assert total == len(LINES)
        yield told.append

    monkeypatch.setattr("uncurse.cli.translate_task.line_progress", recorded)
    monkeypatch.setattr(shards, "COST", 10**9)
    main(["translate", str(corpus), "--out", str(tmp_path / "out")])
    assert sum(told) == len(LINES)
    assert max(told) == 1


def test_lines_that_fail_are_named_by_their_files(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lying(executor: LocalExecutor, setup: Any, jobs: Any) -> Iterator[tuple[Any, Any]]:
        for name, job in jobs:
            yield name, job(setup()) if job.shard.number else None

    monkeypatch.setattr(LocalExecutor, "map", lying)
    with pytest.raises(SystemExit, match="1"):
        main(["translate", str(corpus), "--out", str(tmp_path / "out")])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        f"uncurse: {corpus}, line 1 to {corpus}, line 7 failed: a worker returned a wrong result"
    )
    assert second == (
        f"uncurse: the finished part is in {tmp_path / 'out.parts'};"
        " run the same command with --resume to continue"
    )


# What is read.


def test_a_hyphen_is_standard_input(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = []
    for files in ([], ["-"], [str(corpus), "-"]):
        given(monkeypatch, "a b c\nd\n")
        main(["translate", *files, "-b", "2"])
        outputs.append(capsys.readouterr().out.splitlines())
    main(["translate", str(corpus), "-b", "2"])
    assert outputs[0] == outputs[1]
    assert outputs[2] == [*capsys.readouterr().out.splitlines(), *outputs[0]]


def test_lines_of_a_pipe_are_translated_as_they_arrive(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    arrived = threading.Semaphore(0)
    seen: list[bool] = []

    def write() -> None:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            for text in (b"a b\n", b"c\nd ", b"e\n"):
                pipe.write(text)
                seen.append(arrived.acquire(timeout=20))

    def echo(line: str) -> None:
        lines.append(line)
        arrived.release()

    lines: list[str] = []
    monkeypatch.setattr("uncurse.cli.translate_task.typer.echo", echo)
    thread = threading.Thread(target=write)
    with os.fdopen(reader, "rb") as stream, io.TextIOWrapper(stream) as text:
        monkeypatch.setattr(sys, "stdin", text)
        thread.start()
        main(["translate", "-b", "2"])
    thread.join()
    assert seen == [True, True, True]
    assert len(lines) == 3


def test_a_file_on_standard_input_has_the_shards_of_the_file(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never idle, so that its translations are those of the file, to the byte."""
    sizes: dict[str, list[int]] = {str(corpus): [], "-": []}
    translate_shard = Translator.translate_shard

    def recorded(translator: Translator, shard: shards.Shard, *rest: Any) -> Any:
        sizes[name].append(len(shard.lines))
        return translate_shard(translator, shard, *rest)

    monkeypatch.setattr(Translator, "translate_shard", recorded)
    for name in sizes:
        with corpus.open("rb") as stream, io.TextIOWrapper(stream) as text:
            monkeypatch.setattr(sys, "stdin", text)
            main(["translate", name, "-b", "2"])
    assert sizes[str(corpus)] == sizes["-"]
    assert len(sizes["-"]) > 2
