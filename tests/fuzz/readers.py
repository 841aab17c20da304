"""Everything that reads a file, with a file that its own writer made and the ways to damage it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet
import torch
from fuzz.models import archives, models, predictors, selectors, tokenizer_of
from fuzz.mutations import (
    Damage,
    bytes_changed,
    checksummed_changed,
    json_changed,
    json_inflated,
    protobuf_changed,
    safetensors_changed,
    toml_changed,
)
from fuzz.reader import Files, Reader, array_digest, digest, files_in
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from support.letter_model import LetterEncoder
from support.toy_corpus import RECIPE

from uncurse import SCORES, Sentence, Trace, load_traces, record, save_traces
from uncurse.search import trace_file
from uncurse.storage.checksums import CHECKSUM, dump_checksummed
from uncurse.study.plan import read_plans
from uncurse.study.reference_scores import ReferenceScores
from uncurse.study.test_set import TestSet
from uncurse.study.trace_store import Recording, TraceStore
from uncurse.text.corpus_formats import read_sentences
from uncurse.text.sentencepiece_tokenizer import read_sentencepiece
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log
from uncurse.training.recipe import read_recipe
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard

__all__ = ["Files", "Reader", "readers"]
SETTINGS = {"model": "some model", "beam_size": "5"}
MODEL = LetterEncoder(seed=8, vocab_size=9, ending=0.5, attends=True)
SENTENCES = tuple(
    Sentence(tuple(range(index % 4)), max_length=3 + index % 5, prefix=(1, 2)[: index % 3], min_length=index % 3)
    for index in range(6)
)
PLAN = """\
title = "a study"
model = "zh-en-small"
beam_sizes = [1, "2-4", "10-20/5"]
small = [2, 3]
large = [4]
max_length = "2x+10"
exact = 2
exact_budget = 50
length_ratio = 1.5
[dev]
source = "dev.zh"
references = ["dev.en"]
[test]
source = "test.zh"
references = ["test.en", "test.en2"]
lines = 40
[tuning.word-reward]
reward = [0.0, 0.5, 1.0]
"""


@cache
def readers() -> dict[str, Reader]:
    """All of them, by name."""
    found: dict[str, Reader] = {}
    for make in (models, predictors, selectors, _traces, _studies, _training, _plain, archives):
        with TemporaryDirectory() as folder:
            found |= {reader.name: reader for reader in make(Path(folder))}
    return found


# Traces.


def _traces(folder: Path) -> Iterator[Reader]:
    save_traces(folder / "traces", record(MODEL, SENTENCES, 3))

    def read(place: Path) -> str:
        return _trace_digest(load_traces(place / "traces"))

    files = files_in(folder)
    yield Reader("trace file", files, {"traces": (bytes_changed, _arrays_changed)}, read, checksummed=True)
    yield Reader("trace file with a right checksum", files, {"traces": (_rechecksummed,)}, read)


def _trace_digest(traces: list[Trace]) -> str:
    return digest(
        *(
            (
                each.signature,
                each.source_length,
                each.eos,
                array_digest(each.tokens, each.parents, each.sums, each.rewards),
            )
            for each in traces
        ),
        *(array_digest(each.pruned, np.zeros(0) if each.coverage is None else each.coverage) for each in traces),
    )


def _arrays_changed(draw: DrawFn, content: bytes) -> bytes:
    return _npz_changed(draw, content, right_checksum=False)


def _rechecksummed(draw: DrawFn, content: bytes) -> bytes:
    """Get past the checksum, to see what it hides."""
    return _npz_changed(draw, content, right_checksum=True)


def _npz_changed(draw: DrawFn, content: bytes, right_checksum: bool) -> bytes:
    """One array with other numbers, another type, another shape or another length."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    said = arrays["header"].tobytes()
    name = draw(st.sampled_from(sorted(arrays)))
    old = arrays[name]
    if name == "header":
        said = draw(st.sampled_from((json_changed, json_inflated)))(draw, said)
    else:
        how = draw(st.sampled_from(("value", "value", "value", "type", "longer", "shorter", "shape", "all")))
        if how in ("value", "all"):
            number = draw(st.sampled_from((-2, -1, 0, 1, 2, 3, 5, 255, 1 << 40, 0.5, np.nan, -np.inf, -1e300)))
            new = old.astype(np.float64 if isinstance(number, float) else np.int64)
            new[draw(st.integers(0, max(len(old) - 1, 0))) if how == "value" else slice(None)] = number
            arrays[name] = new
        elif how == "type":
            kind = draw(st.sampled_from(("i1", "u8", "f2", "f8", "c16", "S3", "M8[s]", "?", ">i4")))
            arrays[name] = old.astype(np.int64).astype(kind)
        elif how == "shape":
            arrays[name] = old.reshape(draw(st.sampled_from(((1, -1), (-1, 1), (1, 1, -1)))))
        else:
            count = draw(st.sampled_from((1, 2, 5000)))
            arrays[name] = (
                np.concatenate((old, np.zeros(count, dtype=old.dtype))) if how == "longer" else old[:-count]
            )
    if right_checksum:
        with suppress(ValueError, AttributeError, RecursionError):  # no table to put a checksum into
            header = {key: value for key, value in json.loads(said).items() if key != "sha256"}
            said = json.dumps({**header, "sha256": trace_file._checksum(header, arrays)}).encode()
    arrays["header"] = np.frombuffer(said, dtype=np.uint8)
    changed = io.BytesIO()
    np.savez_compressed(changed, **arrays)
    return changed.getvalue()


# What a study keeps.


def _studies(folder: Path) -> Iterator[Reader]:
    recording = Recording(MODEL.signature, SENTENCES, 3)
    list(TraceStore(folder / "traces").record(MODEL, recording))

    def shards(place: Path) -> str:
        return _trace_digest(TraceStore(place).load(recording))

    files = {name: content for name, content in files_in(folder / "traces").items() if name.endswith("npz")}
    damage: dict[str, tuple[Damage, ...]] = dict.fromkeys(files, (bytes_changed, _arrays_changed))
    yield Reader("shard of a study", files, damage, shards, checksummed=True)
    texts = tuple(f"line {index}" for index in range(len(SENTENCES)))
    targets = (tuple((1, 2)[: index % 3] for index in range(len(SENTENCES))),)
    plain = tuple(Sentence(each.source, each.max_length, expected_length=3.0) for each in SENTENCES)
    test_set = TestSet("dev", texts, (texts,), targets, plain, plain, {})
    scores = [SCORES.parse("log-prob"), SCORES.parse("bp-norm")]

    def reference_scores(place: Path) -> ReferenceScores:
        return ReferenceScores(place, MODEL.signature, exact=2, exact_budget=50, exact_scores=scores)

    list(reference_scores(folder / "answers").ask(MODEL, [test_set]))

    def answers(place: Path) -> str:
        found = reference_scores(place)
        return digest(found.references(test_set), found.optima(test_set))

    files = files_in(folder / "answers")
    damage = dict.fromkeys(files, (bytes_changed, checksummed_changed))
    yield Reader("answers of a study", files, damage, answers, checksummed=True)
    damage = dict.fromkeys(files, (json_changed, json_inflated))
    yield Reader("answers with right checksums", files, damage, answers, repair=_with_checksums)


def _with_checksums(files: Files) -> Files:
    return {name: _with_checksum(content) for name, content in files.items()}


def _with_checksum(content: bytes) -> bytes:
    try:
        return dump_checksummed({key: value for key, value in json.loads(content).items() if key != CHECKSUM})
    except (ValueError, AttributeError, RecursionError):
        return content  # no table to put a checksum into


# What training keeps and reads.


def _training(folder: Path) -> Iterator[Reader]:
    tensors = {"weight": torch.arange(6.0).reshape(2, 3), "adam.step.weight": torch.tensor(3.0)}
    metadata = {"step": 3, "best": 1.5, "recipe": "abc"}
    save_checkpoint(folder / "last.safetensors", Checkpoint(tensors, metadata))

    def checkpoint(place: Path) -> str:
        found = load_checkpoint(place / "last.safetensors")
        return digest(found.metadata, *((name, each.tolist()) for name, each in sorted(found.tensors.items())))

    files = files_in(folder)
    yield Reader("checkpoint", files, {"last.safetensors": (safetensors_changed,)}, checkpoint, checksummed=True)
    log = (
        "step,epoch,tokens,train_perplexity,dev_perplexity,learning_rate,tokens_per_second\n1,1,9,3.5,3.6,0.1,99\n"
    )

    def history(place: Path) -> str:
        return digest(read_log(place / "log.csv"))

    yield Reader("log of a run", {"log.csv": log.encode()}, {"log.csv": (bytes_changed,)}, history)
    recipe = (RECIPE % 2).strip().encode()
    toml: tuple[Damage, ...] = (toml_changed, bytes_changed)
    yield Reader(
        "recipe", {"recipe": recipe}, {"recipe": toml}, lambda place: digest(read_recipe(place / "recipe"))
    )
    yield Reader("plan", {"plan": PLAN.encode()}, {"plan": toml}, lambda place: digest(read_plans(place / "plan")))


# Text, tokenizers, output that is resumed.


def _plain(folder: Path) -> Iterator[Reader]:
    text = "外面下雨了。\n\nba ce\r\nlast".encode()

    def lines(name: str, place: Path) -> str:
        return digest(list(read_sentences([place / name])))

    yield Reader("text", {"text": text}, {"text": (bytes_changed, _one_huge_line)}, partial(lines, "text"))
    records = "".join(json.dumps({"id": number, "text": f"line {number}"}) + "\n" for number in range(5)).encode()
    yield Reader(
        "JSON lines", {"a.jsonl": records}, {"a.jsonl": (bytes_changed, _one_huge_line)}, partial(lines, "a.jsonl")
    )
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [f"line {number}" for number in range(50)]}), table)
    yield Reader(
        "Parquet", {"a.parquet": table.getvalue()}, {"a.parquet": (bytes_changed,)}, partial(lines, "a.parquet")
    )

    def tokens(place: Path) -> str:
        tokenizer = read_sentencepiece(place / "model.spm")
        encoded = tokenizer.encode(["ba ce di", "雨 \u0000 x", ""])
        return digest(len(tokenizer), encoded, [tokenizer.decode(each) for each in encoded])

    yield Reader(
        "SentencePiece model",
        {"model.spm": tokenizer_of("source").model},
        {"model.spm": (protobuf_changed,)},
        tokens,
    )
    shards = [
        Shard(number, 1 + 3 * number, tuple(f"line {number} {each}" for each in range(3))) for number in range(3)
    ]
    contents = [f"<{shard.lines}>\n".encode() for shard in shards]
    with ResumableOutput(folder / "out", SETTINGS, resume=False) as begun:
        for number in (0, 1):
            begun.add(shards[number], contents[number], {"short_n_best": number})

    def resumed(place: Path) -> str:
        with ResumableOutput(place / "out", SETTINGS, resume=True) as output:
            for shard, content in zip(shards, contents, strict=True):
                if not output.has(shard):
                    output.add(shard, content, {"short_n_best": shard.number})
            output.finish(3, lambda contents, file: file.writelines(contents))
        return digest((place / "out").read_bytes(), output.counts)

    manifests = (json_changed, json_inflated, checksummed_changed, bytes_changed)
    damage: dict[str, tuple[Damage, ...]] = {
        "out.parts/000000": (bytes_changed,),
        "out.parts/000001.json": manifests,
        "out.parts/manifest.json": manifests,
    }
    yield Reader("output that is resumed", files_in(folder), damage, resumed, checksummed=True)


def _one_huge_line(draw: DrawFn, content: bytes) -> bytes:
    return content + b"x" * draw(st.sampled_from(((1 << 20) - 8, 1 << 20, 1 << 22)))
