"""JSON, TOML and text that nobody can mean are refused, and what is wrong with them is told in a line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from fuzz.readers import readers

from uncurse import UncurseError
from uncurse.cli import MAX_MESSAGE, _fail, main
from uncurse.storage.strict_json import parse_json, read_json
from uncurse.text.corpus_formats import read_sentences
from uncurse.text.lines import LONGEST_LINE
from uncurse.text.marian_tokenizer import Vocabulary
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.recipe import read_recipe
from uncurse.translation.records import n_best_lines, text_line
from uncurse.translation.translator import Translation

# JSON and TOML.


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "1e999 is too large"),
        ("9" * 5000, "99999999999999999999 is too large"),
        ("9223372036854775808", "9223372036854775808 is too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "a key occurs twice"),
        ('{"a": "\\ud800"}', "an unpaired surrogate"),
        ('{"\\uDFFF": 1}', "an unpaired surrogate"),
        ("{", "Expecting"),
    ],
)
def test_json_out_of_proportion_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UncurseError, match=complaint):
        parse_json(text)


def test_json_says_what_it_says() -> None:
    text = '{"a": [1, -9223372036854775808, 9223372036854775807, 0.1, 1e300, null, true], "b": "雨\\ud83d\\ude00"}'
    assert parse_json(text) == json.loads(text)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes('"é"'.encode("latin-1"))
    with pytest.raises(UncurseError, match=r"latin is not valid JSON: .*utf-8"):
        read_json(tmp_path / "latin")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("epochs = 2", f"epochs = {'9' * 5000}"), "Exceeds the limit|too large"),
        (("learning_rate = 0.004", f"learning_rate = {'9' * 400}"), "learning_rate must be a finite number"),
        (("learning_rate = 0.004", "learning_rate = nan"), "learning_rate must be a finite number"),
        (("learning_rate = 0.004", "learning_rate = -1"), "learning_rate = -1.0 is not allowed"),
        (("seed = 3", "seed = 18446744073709551616"), "seed = 18446744073709551616 is not allowed"),
        (("hidden = 64", "hidden = 1099511627776"), "hidden = 1099511627776 is not allowed"),
        (("source = 300", "source = -300"), "source = -300 is not allowed"),
        (("epochs = 2", "epochs = " + "[" * 5000 + "]" * 5000), "nested too deeply"),
        (("epochs = 2", "epochs = 1979-05-27"), "must be of type int"),
    ],
)
def test_a_recipe_out_of_proportion_is_refused(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    content = readers()["recipe"].files["recipe"].decode()
    assert change[0] in content
    (tmp_path / "recipe").write_text(content.replace(*change), encoding="utf-8")
    with pytest.raises(UncurseError, match=complaint):
        read_recipe(tmp_path / "recipe")


# Text.


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * (LONGEST_LINE - 1) + b"\n" + b"x" * (LONGEST_LINE + 1))
    lines = read_sentences([path])
    assert next(lines) == "short"
    assert len(next(lines)) == LONGEST_LINE - 1
    with pytest.raises(UncurseError, match="text, line 3 has more than 1048576 bytes"):
        next(lines)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ('{"text": "\\ud800"}', "line 1 is not valid JSON: it contains an unpaired surrogate"),
        ('{"text": "a\\nb"}', "line 1: the text has more than one line"),
        ('{"text": 7}', "line 1: 'text' is missing or is not a string"),
        ('{"text": "a", "text": "b"}', "line 1 is not valid JSON: a key occurs twice"),
        ("[" * 100_000, "line 1 is not valid JSON: it is nested too deeply"),
        ("yes", "line 1 is not valid JSON"),
    ],
)
def test_a_record_that_is_no_sentence_is_named(tmp_path: Path, records: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text(records, encoding="utf-8")
    with pytest.raises(UncurseError, match=rf"a\.jsonl, {complaint}"):
        list(read_sentences([tmp_path / "a.jsonl"]))


def test_a_table_that_holds_no_sentences_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns: list[tuple[dict[str, Any], str]] = [
        ({"text": [1]}, "the column 'text' is not a column of strings"),
        ({"text": ["a", None]}, "row 2: 'text' is missing or is not a string"),
        ({"text": [["a"]]}, "the column 'text' is not a column of strings"),
        ({"text": ["x" * (LONGEST_LINE + 1)]}, f"row 1 has more than {LONGEST_LINE} characters"),
        ({"line": ["a"]}, "must have one column 'text'; it has the columns line"),
    ]
    for column, complaint in columns:
        pyarrow.parquet.write_table(pyarrow.table(column), path)
        with pytest.raises(UncurseError, match=complaint):
            list(read_sentences([path]))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UncurseError, match="is not a valid Parquet file"):
        list(read_sentences([path]))


def test_a_repeated_text_is_held_once(tmp_path: Path) -> None:
    """A file of some kilobytes can repeat a megabyte as often as it likes."""
    path = tmp_path / "a.parquet"
    repeated = pyarrow.DictionaryArray.from_arrays([0] * 1000, ["x" * LONGEST_LINE])
    pyarrow.parquet.write_table(pyarrow.table({"text": repeated}), path, store_schema=False)
    assert path.stat().st_size < 1 << 17
    before = pyarrow.total_allocated_bytes()
    lines = read_sentences([path])
    assert len(next(lines)) == LONGEST_LINE
    assert pyarrow.total_allocated_bytes() - before < 1 << 25  # and not a gigabyte
    lines.close()  # type: ignore[attr-defined]


def test_a_small_table_that_would_take_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    spaces = pyarrow.table({"text": [f"{index}".ljust(LONGEST_LINE) for index in range(100)]})
    pyarrow.parquet.write_table(spaces, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 17
    before = pyarrow.total_allocated_bytes()
    with pytest.raises(UncurseError, match=r"a\.parquet is out of proportion: its column 'text' would take 1048"):
        next(read_sentences([path]))
    assert pyarrow.total_allocated_bytes() - before < 1 << 20


def test_long_rows_of_a_table_are_not_held_together(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    long = [random.Random(index).randbytes(LONGEST_LINE // 8).hex() for index in range(300)]
    table = pyarrow.table({"text": long})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_batch_size=1)
    before = pyarrow.total_allocated_bytes()
    lines = read_sentences([path])
    assert [next(lines) for _ in range(200)] == long[:200]
    assert pyarrow.total_allocated_bytes() - before < 20 * LONGEST_LINE  # and not 75
    lines.close()  # type: ignore[attr-defined]


def test_a_table_whose_text_is_not_unicode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ends = pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0")
    invalid = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, ends, pyarrow.py_buffer(b"\xff\xfe")])
    pyarrow.parquet.write_table(pyarrow.table({"text": invalid}), path)
    with pytest.raises(UncurseError, match=r"a\.parquet, row 1: not valid UTF-8"):
        list(read_sentences([path]))


def test_a_translation_stays_on_its_line() -> None:
    vocabulary = Vocabulary(["</s>", "<unk>", "▁a\nb", "\r\nc"])
    translation = Translation("x", (vocabulary.decode([2, 3, 0]),), None, None)
    assert translation.texts == ("a\nb\r\nc",)
    assert text_line(translation) == "a b  c"
    assert n_best_lines(translation, 0).count("\n") == 0


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_sentencepiece_model_is_refused(content: bytes) -> None:
    with pytest.raises(UncurseError, match="not a SentencePiece model"):
        SentencePieceTokenizer(content)


@pytest.mark.parametrize("command", [["explain"], ["translate", "--target-prefix"]])
def test_a_text_of_another_encoding_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command, b"\xff".decode(errors="surrogateescape")])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("it is not in UTF-8\n")
    assert said.err.count("\n") == 1


def test_an_error_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _fail("a name \x1b[2J\x07 with\na bell \u202e and more" + "x" * 100_000)
    said = capsys.readouterr().err
    assert said.startswith("uncurse: a name \ufffd[2J\ufffd with a bell \ufffd and more")
    assert said.count("\n") == 1
    assert len(said) < MAX_MESSAGE + 20
