"""Shards of a corpus, the formats it is kept in, and the jobs that translate it."""

from __future__ import annotations

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
from uncurse.executors.local import Executor, JobFailure, LocalExecutor
from uncurse.lengths.predictors import FixedRatio
from uncurse.text.corpus_formats import Corpus, CorpusFormat, read_sentences
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import Style, record_of
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import COST, MAX_LINES, Shard, cost, shards_of
from uncurse.translation.translate_corpus import ShardJob, ShardOutput, translate_corpus
from uncurse.translation.translator import Translator

SHARDS = [Shard(0, 1, ("a", "b")), Shard(1, 3, ("c",)), Shard(2, 4, ("d", "e"))]
TRANSLATOR = Translator(
    LetterEncoder(seed=1, vocab_size=7, ending=1.0), LetterWords(), LetterWords(), FixedRatio(1.5)
)
OPTIONS = TranslationOptions(Decoding(3))
SETTINGS = {"model": "some model"}


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


# Jobs.


class Failing(Executor):
    """Cannot do the second shard."""

    def map(self, setup: Callable[[], Any], jobs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for shard, job in jobs:
            yield shard, JobFailure("it is broken") if job.shard.number == 1 else job(setup())


def test_what_fails_is_reported_and_the_rest_is_kept(tmp_path: Path) -> None:
    jobs = [ShardJob(shard, OPTIONS, Style.TEXT, TRANSLATOR.signature) for shard in SHARDS]
    reported: list[int] = []

    def translated(executor: Executor, resume: bool) -> list[tuple[Shard, str]]:
        with ResumableOutput(tmp_path / "out", SETTINGS, resume) as output:
            return translate_corpus(executor, lambda: TRANSLATOR, jobs, output, CorpusFormat.TEXT, reported.append)

    assert translated(Failing(), resume=False) == [(SHARDS[1], "it is broken")]
    assert not (tmp_path / "out").exists()
    assert reported == [2, 2]
    assert translated(LocalExecutor(), resume=True) == []
    expected = TRANSLATOR.translate(["a", "b", "c", "d", "e"], beam_size=3)
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [each.texts[0] for each in expected]


def test_a_worker_with_another_model_is_refused() -> None:
    with pytest.raises(UncurseError, match="a different model"):
        ShardJob(SHARDS[0], OPTIONS, Style.TEXT, "another")(TRANSLATOR)


@pytest.mark.parametrize("name", ["a.JSONL", "a.Jsonl"])
def test_a_suffix_in_capitals_stands_for_the_same_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"text": "abc"}\n', encoding="utf-8")
    assert list(read_sentences([tmp_path / name])) == ["abc"]
    assert CorpusFormat.of(tmp_path / "a.PARQUET") is CorpusFormat.PARQUET


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
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', "line 2: 'text' is missing"),
        ("a.jsonl", b'{"text": 7}\n', "line 1: 'text' is missing"),
        ("a.jsonl", b'{"text": "a\\nb"}\n', "line 1: the text has more than one line"),
        ("a.jsonl", b"[" * 100_000 + b"\n", "line 1 is not valid JSON"),
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
    with pytest.raises(UncurseError, match="must have one column 'text'; it has the columns id, zh"):
        list(read_sentences([tmp_path / "a.parquet"]))


def test_a_table_holds_what_the_records_say(tmp_path: Path) -> None:
    options = TranslationOptions(Decoding(3, n_best=2))
    lines = ["a b", "", "c d e"]
    jobs = [ShardJob(shard, options, Style.JSON, TRANSLATOR.signature) for shard in shards_of(lines, 2)]
    for name in ("out.jsonl", "out.parquet"):
        with ResumableOutput(tmp_path / name, SETTINGS, resume=False) as output:
            form = CorpusFormat.of(tmp_path / name)
            translate_corpus(LocalExecutor(), lambda: TRANSLATOR, jobs, output, form, lambda lines: None)
    expected = [
        {"line": number, "id": None, "source": each.source, "source_truncated": False, **record_of(each)}
        for number, each in enumerate(TRANSLATOR.stream(lines, options), start=1)
    ]
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert written == expected
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist() == expected


def test_ids_of_the_input_are_in_the_records(tmp_path: Path) -> None:
    ids = ["x", 7, None, 1.5]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": each, "text": "a"}) + "\n" for each in ids), encoding="utf-8"
    )
    pyarrow.parquet.write_table(pyarrow.table({"id": ["p", None], "text": ["a", "b"]}), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("c\n", encoding="utf-8")
    (shard,) = shards_of(Corpus([tmp_path / "a.jsonl", tmp_path / "a.parquet", tmp_path / "a.txt"]))
    assert shard.ids == ("x", 7, None, 1.5, "p", None, None)
    assert shard.digest != Shard(0, 1, shard.lines).digest
    job = ShardJob(shard, OPTIONS, Style.JSON, TRANSLATOR.signature)
    records = [json.loads(line) for line in job(TRANSLATOR).content.splitlines()]
    assert [record["id"] for record in records] == [*shard.ids]
    assert [record["line"] for record in records] == [1, 2, 3, 4, 5, 6, 7]
    assert [record["source"] for record in records] == [*shard.lines]
    for name in ("out.jsonl", "out.parquet"):
        with ResumableOutput(tmp_path / name, SETTINGS, resume=False) as output:
            form = CorpusFormat.of(tmp_path / name)
            translate_corpus(LocalExecutor(), lambda: TRANSLATOR, [job], output, form, lambda lines: None)
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["id"] for row in table] == ["x", "7", None, "1.5", "p", None, None]  # a column has one type


def test_a_line_that_is_too_long_is_named_by_its_file(tmp_path: Path) -> None:
    for name, lines in (("one", ["a", "b"]), ("two", ["a", "b " * 2000])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (shard,) = shards_of(Corpus([tmp_path / "one", tmp_path / "two"]))
    with pytest.raises(UncurseError, match=r"two, line 2 has 2000 tokens; the maximum is 1000"):
        list(TRANSLATOR.translate_shard(shard, OPTIONS))


@pytest.mark.parametrize("style", list(Style))
def test_a_worker_that_lies_about_its_shard_is_found_out(tmp_path: Path, style: Style) -> None:
    jobs = [ShardJob(shard, OPTIONS, style, TRANSLATOR.signature) for shard in SHARDS]
    honest = [job(TRANSLATOR) for job in jobs]
    lies: list[Any] = [
        None,
        honest[1],
        ShardOutput(honest[0].input, honest[1].content, {}),
        ShardOutput(honest[0].input, honest[0].content[:-1], {}),
        ShardOutput(honest[0].input, honest[0].content + honest[1].content, {}),
        ShardOutput(honest[0].input, b"\xff\n\n", {}),
        ShardOutput(honest[0].input, b"", {}),
        ShardOutput(honest[0].input, honest[0].content.decode(), {}),  # type: ignore[arg-type]
        ShardOutput(honest[0].input, honest[0].content, None),  # type: ignore[arg-type]
        ShardOutput(honest[0].input, honest[0].content, {"truncated_outputs": "many"}),  # type: ignore[dict-item]
        ShardOutput(honest[0].input, honest[0].content, {"truncated_outputs": len(SHARDS[0].lines) + 1}),
        ShardOutput(honest[0].input, honest[0].content, {"no such count": 1}),
    ]
    for number, lie in enumerate(lies):
        with ResumableOutput(tmp_path / f"out{number}", SETTINGS, resume=False) as output:
            executor = Lying(lie)
            failures = translate_corpus(
                executor, lambda: TRANSLATOR, jobs, output, CorpusFormat.TEXT, lambda lines: None
            )
            assert [shard for shard, _ in failures] == [SHARDS[0]]
            assert not output.has(SHARDS[0])
            assert output.has(SHARDS[1])
        assert not (tmp_path / f"out{number}").exists()


class Lying(Executor):
    """Returns something else for the first shard."""

    def __init__(self, lie: Any) -> None:
        self._lie = lie

    def map(self, setup: Callable[[], Any], jobs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for number, (name, job) in enumerate(jobs):
            yield name, job(setup()) if number else self._lie


# Odd files.


def written(path: Path, table: Any) -> Path:
    pyarrow.parquet.write_table(table, path)
    return path


def test_odd_text_and_json_lines_are_read_as_they_are_meant(tmp_path: Path) -> None:
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\x0bc\r\n\r\nd\xe2\x80\xa8e")
    assert list(read_sentences([tmp_path / "mark.txt"])) == ["a", "b\x0bc", "", "d\u2028e"]
    records = b'\xef\xbb\xbf{"text": "a\\n"}\r\n {"text": "d\xe2\x80\xa8e", "id": null, "more": [{}]}'
    (tmp_path / "mark.jsonl").write_bytes(records)
    assert list(read_sentences([tmp_path / "mark.jsonl"])) == ["a", "d\u2028e"]


def test_odd_tables_are_read_as_they_are_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    strings = ["a", "", "外"]
    for column in (
        pyarrow.array(strings),
        pyarrow.array(strings, pyarrow.large_string()),
        pyarrow.array(strings).dictionary_encode(),
        pyarrow.chunked_array([strings[:1], strings[1:]]),
    ):
        written(path, pyarrow.table({"id": [1, 2, 3], "text": column}))
        assert list(read_sentences([path])) == strings
    assert list(read_sentences([written(path, pyarrow.table({"text": pyarrow.array([], "string")}))])) == []


@pytest.mark.parametrize(
    ("columns", "names", "complaint"),
    [
        ([["a"], ["b"]], ["text", "text"], "must have one column 'text'; it has the columns text, text"),
        ([["a"], [1], [2]], ["text", "id", "id"], "must have one column 'id'"),
        ([[{"a": "b"}]], ["text"], "the column 'text' is not a column of strings"),
        ([["a"], [["b"]]], ["text", "id"], "the column 'id' is not a column of strings or numbers"),
        ([[b"a"]], ["text"], "the column 'text' is not a column of strings"),
        ([["a"], [float("nan")]], ["text", "id"], "row 1: 'id' is neither a string nor a number"),
        ([["a"], [b"b"]], ["text", "id"], "the column 'id' is not a column of strings or numbers"),
        ([["a"], [True]], ["text", "id"], "the column 'id' is not a column of strings or numbers"),
        ([["a"], pyarrow.array([1], "timestamp[ns]")], ["text", "id"], "the column 'id' is not a column"),
        (
            [pyarrow.array([(1 << 31) - 1], "date32[day]")],
            ["text"],
            "the column 'text' is not a column of strings",
        ),
        ([pyarrow.nulls(2)], ["text"], "the column 'text' is not a column of strings"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(
    tmp_path: Path, columns: list[Any], names: list[str], complaint: str
) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array(each) for each in columns], names=names)
    with pytest.raises(UncurseError, match=complaint):
        list(read_sentences([written(tmp_path / "a.parquet", table)]))


@pytest.mark.parametrize("content", [b"", b"text", b"PAR1" + bytes(50) + b"PAR1"])
def test_what_is_no_table_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(UncurseError, match=r"a\.parquet is not a valid Parquet file"):
        list(read_sentences([tmp_path / "a.parquet"]))


@pytest.mark.parametrize("value", ['["a"]', "{}", "true", '"\\ud800"'])
def test_an_id_that_names_nothing_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "id": {value}}}', encoding="utf-8")
    with pytest.raises(UncurseError, match=r"a\.jsonl, line 1.*('id' is neither|unpaired surrogate)"):
        list(read_sentences([tmp_path / "a.jsonl"]))


def test_what_is_no_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.parquet"):
        with pytest.raises(OSError, match=name):
            list(read_sentences([tmp_path / name]))
        (tmp_path / name).mkdir()
        with pytest.raises((OSError, UncurseError), match=name):
            list(read_sentences([tmp_path / name]))
