"""Shards of a corpus, the formats it is kept in, and output that is put together from shards."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.letter_model import LetterEncoder, LetterWords

from uncurse import Decoding, UncurseError
from uncurse.cli import main
from uncurse.executors.local import Executor, JobFailure, LocalExecutor
from uncurse.lengths.predictors import FixedRatio
from uncurse.text.corpus_formats import CorpusFormat, read_sentences
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import Style, record_of
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import COST, MAX_LINES, Shard, cost, shards_of
from uncurse.translation.translate_corpus import ShardJob, translate_corpus
from uncurse.translation.translator import Translator

SHARDS = [Shard(0, 1, ("a", "b")), Shard(1, 3, ("c",)), Shard(2, 4, ("d", "e"))]
TRANSLATOR = Translator(
    LetterEncoder(seed=1, vocab_size=7, ending=1.0), LetterWords(), LetterWords(), FixedRatio(1.5)
)
OPTIONS = TranslationOptions(Decoding(3))
SETTINGS = "some settings"


def joined(contents: Iterator[bytes], file: Any) -> None:
    file.writelines(contents)


def begun(folder: Path, numbers: Iterable[int]) -> ResumableOutput:
    output = ResumableOutput(folder / "out", SETTINGS, resume=False)
    for number in numbers:
        output.add(SHARDS[number], f"shard {number}\n".encode())
    return output


@given(st.lists(st.text(max_size=400), max_size=60), st.integers(1, 7))
def test_shards_hold_every_line_once_and_in_order(lines: list[str], most: int) -> None:
    shards = list(shards_of(lines, most))
    assert [line for shard in shards for line in shard.lines] == lines
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [shard.first for shard in shards] == [
        1 + sum(len(each.lines) for each in shards[:n]) for n in range(len(shards))
    ]
    assert all(0 < len(shard.lines) <= most for shard in shards)


def test_a_shard_is_full_when_its_cost_is_reached() -> None:
    shards = list(shards_of(["long " * 500] * 40))
    costs = [sum(map(cost, shard.lines)) for shard in shards]
    assert len(shards) > 3
    assert all(COST <= each < COST + cost("long " * 500) for each in costs[:-1])


def test_lines_are_read_as_far_as_the_shard_goes_and_no_further() -> None:
    read = []

    def corpus() -> Iterator[str]:
        for number in range(10**9):
            read.append(number)
            yield "ab"

    shards = shards_of(corpus())
    for count in (1, 2, 3):
        assert len(next(shards).lines) == MAX_LINES
        assert len(read) == count * MAX_LINES


def test_output_appears_whole_and_in_order(tmp_path: Path) -> None:
    output = begun(tmp_path, [2, 0, 1])
    assert not (tmp_path / "out").exists()
    output.finish(3, joined)
    assert (tmp_path / "out").read_bytes() == b"shard 0\nshard 1\nshard 2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_only_what_is_missing_or_damaged_is_done_again(tmp_path: Path) -> None:
    output = begun(tmp_path, [0, 1, 2])
    (output.folder / "000001").write_bytes(b"shard 2\n")
    (output.folder / "000002").unlink()
    again = ResumableOutput(tmp_path / "out", SETTINGS, resume=True)
    assert [again.has(shard) for shard in SHARDS] == [True, False, False]
    with pytest.raises(UncurseError, match="000001 is damaged"):
        again.finish(3, joined)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parts"]


def test_unfinished_work_is_never_thrown_away_or_mixed_up(tmp_path: Path) -> None:
    output = begun(tmp_path, [0, 1])
    with pytest.raises(UncurseError, match="resume it, or remove it"):
        ResumableOutput(tmp_path / "out", SETTINGS, resume=False)
    with pytest.raises(UncurseError, match="made with other settings"):
        ResumableOutput(tmp_path / "out", "other settings", resume=True)
    with pytest.raises(UncurseError, match=r"not the one that .* was made from: line 3 or later"):
        output.has(Shard(1, 3, ("x",)))
    with pytest.raises(UncurseError, match="shorter than the one"):
        output.finish(1, joined)
    (output.folder / "000001.json").write_bytes(b'{"lines": 1')
    with pytest.raises(UncurseError, match=r"000001\.json is damaged"):
        output.has(SHARDS[1])


class Failing(Executor):
    """Cannot do the second shard."""

    def map(self, setup: Callable[[], Any], jobs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for shard, job in jobs:
            yield shard, JobFailure("it is broken") if shard.number == 1 else job(setup())


def test_what_fails_is_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    jobs = [ShardJob(shard, OPTIONS, Style.TEXT, TRANSLATOR.signature) for shard in SHARDS]
    reported: list[Shard] = []

    def translated(executor: Executor, resume: bool) -> list[tuple[Shard, str]]:
        output = ResumableOutput(tmp_path / "out", SETTINGS, resume)
        return translate_corpus(executor, lambda: TRANSLATOR, jobs, output, CorpusFormat.TEXT, reported.append)

    assert translated(Failing(), resume=False) == [(SHARDS[1], "it is broken")]
    assert not (tmp_path / "out").exists()
    assert reported == [SHARDS[0], SHARDS[2]]
    assert translated(LocalExecutor(), resume=True) == []
    expected = TRANSLATOR.translate(["a", "b", "c", "d", "e"], beam_size=3)
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [each.texts[0] for each in expected]


def test_a_worker_with_another_model_is_refused() -> None:
    with pytest.raises(UncurseError, match="not the same"):
        ShardJob(SHARDS[0], OPTIONS, Style.TEXT, "another")(TRANSLATOR)


def test_sentences_are_the_same_from_every_format(tmp_path: Path) -> None:
    sentences = ["我们 a", "", "c"]
    (tmp_path / "a.txt").write_text("".join(f"{each}\n" for each in sentences), encoding="utf-8")
    lines = [json.dumps({"id": number, "text": each}) for number, each in enumerate(sentences)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3], "text": sentences}), tmp_path / "a.parquet")
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        assert list(read_sentences([tmp_path / name])) == sentences
    assert list(read_sentences([tmp_path / "a.txt", tmp_path / "a.jsonl"])) == sentences * 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', "line 2: 'text' is missing"),
        ("a.jsonl", b'{"text": 7}\n', "line 1: 'text' is missing"),
        ("a.jsonl", b'{"text": "a\\nb"}\n', "line 1: the text has more than one line"),
        ("a.jsonl", b"[" * 100_000 + b"\n", "line 1: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n\xff\n', "line 2: not valid UTF-8"),
        ("a.parquet", b"PAR1 and no more", "is not a valid Parquet file"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_named_with_the_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UncurseError, match=message):
        list(read_sentences([tmp_path / name]))


def test_a_table_without_sentences_is_told_by_its_columns(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "zh": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(UncurseError, match="has no column 'text': id, zh"):
        list(read_sentences([tmp_path / "a.parquet"]))


def test_a_table_holds_what_the_records_say(tmp_path: Path) -> None:
    options = TranslationOptions(Decoding(3, n_best=2))
    lines = ["a b", "", "c d e"]
    jobs = [ShardJob(shard, options, Style.JSON, TRANSLATOR.signature) for shard in shards_of(lines, 2)]
    for name in ("out.jsonl", "out.parquet"):
        output = ResumableOutput(tmp_path / name, SETTINGS, resume=False)
        translate_corpus(
            LocalExecutor(), lambda: TRANSLATOR, jobs, output, CorpusFormat.of(tmp_path / name), lambda shard: None
        )
    expected = [record_of(each) for each in TRANSLATOR.stream(lines, options)]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert written == expected
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "ray"], "--engine needs --out"),
        (["--resume"], "--resume needs --out"),
        (["--workers", "2"], "--workers needs --engine"),
        (["--engine", "spark", "--out", "{out}"], "engine = 'spark' is not allowed"),
    ],
)
def test_options_that_cannot_act_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(SystemExit) as stopped:
        main(["translate", *(each.format(out=tmp_path / "out") for each in arguments)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
