"""Traces on disk judge as they did in memory."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray
from support.judging import judged

from uncurse import RULES, SCORES, Sentence, Slots, UncurseError, load_traces, record, save_traces
from uncurse.search.record import Recorder
from uncurse.search.trace_file import _checksum
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=8, vocab_size=9, ending=0.5, attends=True)
SENTENCES = [
    Sentence(
        tuple(range(index % 4)),
        max_length=3 + index % 9,
        prefix=(1, 2)[: index % 3],
        expected_length=4.0,
        min_length=index % 4,
    )
    for index in range(12)
]
SPECS = ["log-prob", "length-norm", "gnmt:beta=0.3", "bounded-word-reward:reward=1", "adaptive-reward", "bp-norm"]


@pytest.mark.parametrize("slots", Slots)
def test_a_saved_trace_judges_to_the_bit_as_before(tmp_path: Path, slots: Slots) -> None:
    traces = record(MODEL, SENTENCES, 5, slots)
    save_traces(tmp_path / "corpus.traces", traces)
    loaded = load_traces(tmp_path / "corpus.traces")
    for before, after in zip(traces, loaded, strict=True):
        for spec in SPECS:
            for rule in RULES:
                assert judged(after, spec, rule, 2, 4.0) == judged(before, spec, rule, 2, 4.0)


def test_a_width_and_an_end_of_numpy_can_be_saved(tmp_path: Path) -> None:
    model = RandomModel(seed=3, vocab_size=5)
    model.eos = np.int64(model.eos)  # type: ignore[assignment]
    traces = record(model, SENTENCES[:2], np.int64(3))  # type: ignore[arg-type]
    save_traces(tmp_path / "corpus.traces", traces)
    assert [trace.signature for trace in load_traces(tmp_path / "corpus.traces")] == [
        trace.signature for trace in traces
    ]


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_recordings_that_were_cut_off_are_kept_too(tmp_path: Path, steps: int) -> None:
    recorder = Recorder(MODEL, 5, Slots.OCCUPY)
    tickets = recorder.join([Sentence((1,), max_length=9), Sentence((2,), max_length=9, min_length=3)])
    for _ in range(steps):
        recorder.advance()
    traces = list(recorder.cancel_all(tickets).values())
    save_traces(tmp_path / "corpus.traces", traces)
    for trace, loaded, least in zip(traces, load_traces(tmp_path / "corpus.traces"), (1, 3), strict=True):
        assert (loaded.steps, loaded.max_length) == (trace.steps, trace.max_length)
        way = SCORES.parse("log-prob"), RULES.parse("exhaustive")
        if steps >= least:
            assert judged(loaded, *way) == judged(trace, *way)
        else:
            with pytest.raises(ValueError, match="this trace ends before the rule would stop"):
                judged(loaded, *way)


def test_numbers_of_a_float32_model_are_kept_in_four_bytes(tmp_path: Path) -> None:
    (trace,) = record(MODEL, [Sentence((1, 2), max_length=12)], 5)
    narrow = trace.log_probs.astype(np.float32).astype(np.float64)
    for name, log_probs in (("wide", trace.log_probs), ("narrow", narrow)):
        save_traces(tmp_path / name, [dataclasses.replace(trace, log_probs=log_probs)])
        with np.load(tmp_path / name) as file:
            assert file["log_probs"].dtype == (np.float32 if name == "narrow" else np.float64)
        (loaded,) = load_traces(tmp_path / name)
        kept = trace.tokens >= 0
        assert loaded.log_probs[kept].tolist() == log_probs[kept].tolist()


def test_traces_of_different_searches_do_not_mix(tmp_path: Path) -> None:
    traces = [record(MODEL, SENTENCES[:1], beam_size)[0] for beam_size in (2, 3)]
    with pytest.raises(ValueError, match="trace 1 is of another search"):
        save_traces(tmp_path / "corpus.traces", traces)
    assert list(tmp_path.iterdir()) == []


def test_saving_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no traces"):
        save_traces(tmp_path / "corpus.traces", [])


def test_a_damaged_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, SENTENCES, 5))
    whole = path.read_bytes()
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2], whole[:-900] + b"\0\0\0\0" + whole[-896:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"corpus\.traces is not a whole trace file"):
            load_traces(path)
    with pytest.raises(FileNotFoundError):
        load_traces(tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("steps", lambda old: old + 99, "steps or ranks are impossible|too short"),
        ("ranks", lambda old: old * 0 - 1, "steps or ranks are impossible"),
        ("ranks", lambda old: old.astype(int) + 99, "steps or ranks are impossible"),
        ("parents", lambda old: old.astype(int) + 77, "a parent or a log-probability is impossible"),
        ("log_probs", lambda old: old * 0 + 0.5, "a parent or a log-probability is impossible"),
        ("log_probs", lambda old: old * np.nan, "a parent or a log-probability is impossible"),
        ("rewards", lambda old: old * np.nan, "a reward or what was pruned is impossible"),
        ("pruned", lambda old: old * 0 + 0.5, "a reward or what was pruned is impossible"),
        ("tokens", lambda old: old[:-1], "'tokens' is too short"),
        ("pruned", lambda old: np.append(old, 0.0), "'pruned' is too long"),
        ("rewards", lambda old: np.array([{}], dtype=object), "'rewards' is not a row of real numbers"),
        ("rewards", lambda old: old[:, None], "'rewards' is not a row of real numbers"),
        ("tokens", lambda old: old.astype(int) * 0 - 2, "a parent or a log-probability is impossible"),
        ("tokens", lambda old: old * 0 + MODEL.eos, "a parent or a log-probability is impossible"),
        ("coverage", lambda old: old * np.nan, "a coverage is impossible"),
        ("rewards", lambda old: old.astype(complex), "'rewards' is not a row of real numbers"),
        ("tokens", lambda old: old.astype(float) + 0.5, "'tokens' is not a row of whole numbers"),
        ("min_lengths", lambda old: old * 0 + 12, "a hypothesis ends before the minimum length"),
        ("log_probs", lambda old: np.linspace(-9, 0, len(old)), "a step does not keep the best first"),
        (
            "source_lengths",
            lambda old: old.astype(int) * 0 - 1,
            "a source, a minimum length or a prefix is impossible",
        ),
        ("min_lengths", lambda old: old * 0 + 99, "a source, a minimum length or a prefix is impossible"),
        ("more", lambda old: np.zeros(3), "'more.npy' is there twice, or does not belong there"),
        ("header", lambda old: np.frombuffer(b'{"format": "uncurse traces 0"}', dtype=np.uint8), "the format is"),
    ],
)
def test_impossible_numbers_are_refused(
    tmp_path: Path, name: str, change: Callable[[NDArray[Any]], NDArray[Any]], complaint: str
) -> None:
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, [Sentence((1, 2), max_length=12)], 5))
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files}
    changed = {**arrays, name: change(arrays.get(name, np.zeros(0)))}
    with path.open("wb") as file_out:
        np.savez(file_out, **(changed if name in ("header", "more") else signed(changed)))
    with pytest.raises(ValueError, match=f"is not a whole trace file: .*({complaint})"):
        load_traces(path)


def header(arrays: dict[str, NDArray[Any]], **changes: Any) -> NDArray[np.uint8]:
    """The header of a file with some of what it says changed, and the checksum as it was."""
    return np.frombuffer(
        json.dumps({**json.loads(arrays["header"].tobytes()), **changes}).encode(), dtype=np.uint8
    )


def signed(arrays: dict[str, NDArray[Any]], **changes: Any) -> dict[str, NDArray[Any]]:
    """The arrays of a file with a header whose checksum is right: somebody wrote it on purpose."""
    said = {**json.loads(arrays["header"].tobytes()), **changes}
    del said["sha256"]
    said["sha256"] = _checksum(said, arrays)
    return {**arrays, "header": np.frombuffer(json.dumps(said).encode(), dtype=np.uint8)}


@pytest.mark.parametrize("name", ["tokens", "log_probs", "rewards", "max_lengths", "header"])
def test_a_number_changed_on_purpose_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, SENTENCES, 5))
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files}
    if name == "header":
        arrays[name] = header(arrays, model="another")
    else:
        arrays[name] = np.concatenate((arrays[name][:1] * 0.5, arrays[name][1:])).astype(arrays[name].dtype)
    with path.open("wb") as file_out:
        np.savez(file_out, **arrays)
    with pytest.raises(ValueError, match="it is damaged, its checksum"):
        load_traces(path)


def test_no_file_makes_room_for_more_than_it_holds(tmp_path: Path) -> None:
    """Zeros pack a thousandfold, a shape is a claim, and a wide beam makes much of little."""
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, SENTENCES[:1], 5))
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files}
    bomb = {**arrays, "tokens": np.zeros(1 << 25, dtype=np.int8)}
    wide = {**arrays, "ranks": np.zeros(5000, dtype=np.int8)}
    wide = signed(wide, beam_size=100_000)
    crowd = signed({**arrays, "steps": np.ones(50_000, dtype=np.int8)})
    for content, complaint in (
        (bomb, "would unpack to more than"),
        (wide, "500000000 places are too many"),
        (crowd, "50000 sentences and"),
    ):
        with path.open("wb") as file_out:
            np.savez_compressed(file_out, **content)
        with pytest.raises(ValueError, match=complaint):
            load_traces(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", npy(arrays["header"]))
        claimed = io.BytesIO()
        write_array_header_1_0(claimed, {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)})
        archive.writestr("tokens.npy", claimed.getvalue() + b"12345678")
    with pytest.raises(ValueError, match="'tokens' claims 1099511627776 numbers of int64 and has 8 bytes"):
        load_traces(path)


def npy(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


@pytest.mark.parametrize("slots", Slots)
def test_no_flipped_byte_goes_unnoticed_or_raises_anything_else(tmp_path: Path, slots: Slots) -> None:
    path = tmp_path / "corpus.traces"
    traces = record(MODEL, SENTENCES[:2], 3, slots)
    save_traces(path, traces)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        for mask in (0x01, 0x80):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ mask]) + whole[position + 1 :])
            try:
                loaded = load_traces(path)
            except ValueError:
                continue
            for before, after in zip(traces, loaded, strict=True):  # a byte that means nothing, such as a date
                ways = SCORES.parse("gnmt:beta=0.3"), RULES.parse("optimal"), 2
                assert judged(after, *ways) == judged(before, *ways)


def test_a_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    save_traces(tmp_path / "corpus.traces", record(MODEL, SENTENCES[:1], 3))
    (tmp_path / "other").write_bytes(b"")
    assert (tmp_path / "corpus.traces").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.traces", "other"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"eos": -1}, "eos is -1"),
        ({"beam_size": 3}, "steps or ranks are impossible"),
        ({"model": "x" * 70_000}, "header has more"),
    ],
)
def test_an_impossible_header_is_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, SENTENCES[:4], 5))
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files}
    with path.open("wb") as file_out:
        np.savez(file_out, **signed(arrays, **changes))  # type: ignore[arg-type]
    with pytest.raises(UncurseError, match=complaint):
        load_traces(path)


def test_more_live_prefixes_than_the_beam_holds_are_refused(tmp_path: Path) -> None:
    """Refill looks at twice the beam, and keeps no more of it than the beam holds."""
    path = tmp_path / "corpus.traces"
    save_traces(path, record(MODEL, [Sentence((1, 2), max_length=6)], 4, Slots.REFILL))
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files}
    with path.open("wb") as file_out:
        np.savez(file_out, **signed(arrays, beam_size=3))  # type: ignore[arg-type]
    with pytest.raises(UncurseError, match=r"more than its beam holds|ranks are impossible"):
        load_traces(path)
