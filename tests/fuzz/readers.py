"""Everything that reads a file, with a file that its own writer made and the ways to damage it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet
import torch
from fuzz.models import archives, models, predictors, subwords_of
from fuzz.mutations import (
    Damage,
    bytes_changed,
    json_changed,
    protobuf_changed,
    safetensors_changed,
    sealed_changed,
    toml_changed,
)
from fuzz.reader import Files, Reader, array_digest, digest, files_in
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from letters import LetterEncoder
from made_up import RECIPE

from uncurse import Sentence, Trace, load_traces, record, save_traces
from uncurse.decoding import Slots
from uncurse.parts import Parts
from uncurse.shards import Shard
from uncurse.study.material import Material
from uncurse.study.plan import Plan, SetPlan, read_plan
from uncurse.study.probes import Probes
from uncurse.study.store import Recording, Store
from uncurse.text.corpora import sentences_of
from uncurse.text.subwords import read_subwords
from uncurse.tracefile import UNSIGNED
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log
from uncurse.training.recipe import read_recipe

__all__ = ["Files", "Reader", "readers"]
MODEL = LetterEncoder(seed=8, vocabulary=9, ending=0.5, attends=True)
SENTENCES = tuple(
    Sentence(tuple(range(index % 4)), limit=3 + index % 5, prefix=(1, 2)[: index % 3], min_length=index % 3)
    for index in range(6)
)
PLAN = """\
title = "a study"
model = "zh-en-small"
widths = [1, "2-4", "10-20/5"]
small = [2, 3]
large = [4]
limit = "2x+10"
exact = 2
exact_budget = 50
ratio = 1.5
[dev]
source = "dev.zh"
references = ["dev.en"]
[test]
source = "test.zh"
references = ["test.en", "test.en2"]
lines = 40
[tuning]
rewards = [0.0, 0.5, 1.0]
"""


@cache
def readers() -> dict[str, Reader]:
    """All of them, by name."""
    found: dict[str, Reader] = {}
    for make in (models, predictors, _traces, _studies, _training, _plain, archives):
        with TemporaryDirectory() as folder:
            found |= {reader.name: reader for reader in make(Path(folder))}
    return found


# Traces.


def _traces(folder: Path) -> Iterator[Reader]:
    save_traces(folder / "traces", record(MODEL, SENTENCES, 3))

    def read(place: Path) -> str:
        return _trace_digest(load_traces(place / "traces"))

    files = files_in(folder)
    yield Reader("trace file", files, {"traces": (bytes_changed, _arrays_changed)}, read, sealed=True)
    yield Reader("trace file without a checksum", files, {"traces": (_unsigned_changed,)}, read)


def _trace_digest(traces: list[Trace]) -> str:
    return digest(
        *(
            (
                each.signature,
                each.source_length,
                each.end,
                array_digest(each.tokens, each.parents, each.sums, each.rewards),
            )
            for each in traces
        ),
        *(array_digest(each.pruned, np.zeros(0) if each.coverage is None else each.coverage) for each in traces),
    )


def _arrays_changed(draw: DrawFn, content: bytes) -> bytes:
    return _npz_changed(draw, content, lambda header: header)


def _unsigned_changed(draw: DrawFn, content: bytes) -> bytes:
    def unsigned(header: bytes) -> bytes:
        return json.dumps({**json.loads(header), "format": UNSIGNED}).encode()

    return _npz_changed(draw, content, unsigned)


def _npz_changed(draw: DrawFn, content: bytes, header: Callable[[bytes], bytes]) -> bytes:
    """One array with other numbers, another type, another shape or another length."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    said = header(arrays["header"].tobytes())
    name = draw(st.sampled_from(sorted(arrays)))
    old = arrays[name]
    if name == "header":
        said = json_changed(draw, said)
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
    arrays["header"] = np.frombuffer(said, dtype=np.uint8)
    changed = io.BytesIO()
    np.savez_compressed(changed, **arrays)
    return changed.getvalue()


# What a study keeps.


def _studies(folder: Path) -> Iterator[Reader]:
    recording = Recording(MODEL.signature, SENTENCES, 3, Slots.OCCUPY)
    list(Store(folder / "store").record(MODEL, recording))

    def shards(place: Path) -> str:
        store = Store(place)
        return digest(_trace_digest(store.load(recording)), store.seconds(recording))

    files = files_in(folder / "store")
    damage: dict[str, tuple[Damage, ...]] = {
        name: (bytes_changed, _arrays_changed if name.endswith("npz") else sealed_changed) for name in files
    }
    yield Reader("shard of a study", files, damage, shards, sealed=True)
    damage = {name: (_unsigned_changed if name.endswith("npz") else json_changed,) for name in files}
    yield Reader("shard without a checksum", files, damage, shards)
    texts = tuple(f"line {index}" for index in range(len(SENTENCES)))
    targets = (tuple((1, 2)[: index % 3] for index in range(len(SENTENCES))),)
    plain = tuple(Sentence(each.source, each.limit, predicted=3.0) for each in SENTENCES)
    material = Material("dev", texts, (texts,), targets, plain, plain, {})
    sets = SetPlan("source", ("reference",))
    plan = Plan("title", "model", sets, sets, (3,), exact=2, exact_budget=50)
    list(Probes(folder / "probes", MODEL.signature, plan).ask(MODEL, [material]))

    def answers(place: Path) -> str:
        probes = Probes(place, MODEL.signature, plan)
        return digest(probes.references(material), probes.optima(material))

    files = files_in(folder / "probes")
    flips: dict[str, tuple[Damage, ...]] = dict.fromkeys(files, (bytes_changed, sealed_changed))
    yield Reader("answers of a study", files, flips, answers, sealed=True)
    yield Reader(
        "answers without a checksum",
        {name: json.dumps(json.loads(content)["answers"]).encode() for name, content in files.items()},
        dict.fromkeys(files, (json_changed,)),
        answers,
    )


# What training keeps and reads.


def _training(folder: Path) -> Iterator[Reader]:
    tensors = {"weight": torch.arange(6.0).reshape(2, 3), "adam.step.weight": torch.tensor(3.0)}
    facts = {"step": 3, "best": None, "ratio": 1.5, "recipe": "abc", "shape": {"hidden": 4}}
    save_checkpoint(folder / "last.safetensors", Checkpoint(tensors, facts))

    def checkpoint(place: Path) -> str:
        found = load_checkpoint(place / "last.safetensors")
        return digest(found.facts, *((name, each.tolist()) for name, each in sorted(found.tensors.items())))

    files = files_in(folder)
    yield Reader("checkpoint", files, {"last.safetensors": (safetensors_changed,)}, checkpoint, sealed=True)
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
    yield Reader("plan", {"plan": PLAN.encode()}, {"plan": toml}, lambda place: digest(read_plan(place / "plan")))


# Text, subwords, output that goes on.


def _plain(folder: Path) -> Iterator[Reader]:
    text = "外面下雨了。\n\nba ce\r\nlast".encode()

    def lines(name: str, place: Path) -> str:
        return digest(list(sentences_of([place / name])))

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

    def pieces(place: Path) -> str:
        subwords = read_subwords(place / "model.spm")
        cut = subwords.encode(["ba ce di", "雨 \u0000 x", ""])
        return digest(len(subwords), cut, [subwords.decode(each) for each in cut])

    yield Reader(
        "subword model", {"model.spm": subwords_of("source").model}, {"model.spm": (protobuf_changed,)}, pieces
    )
    parts = Parts(folder / "out", "as always", resume=False)
    shards = [
        Shard(number, 1 + 3 * number, tuple(f"line {number} {each}" for each in range(3))) for number in range(3)
    ]
    contents = [f"<{shard.lines}>\n".encode() for shard in shards]
    for number in (0, 1):
        parts.add(shards[number], contents[number])

    def gone_on(place: Path) -> str:
        resumed = Parts(place / "out", "as always", resume=True)
        for shard, content in zip(shards, contents, strict=True):
            if not resumed.has(shard):
                resumed.add(shard, content)
        resumed.finish(3, lambda contents, file: file.writelines(contents))
        return digest((place / "out").read_bytes())

    notes = (json_changed, sealed_changed, bytes_changed)
    damage: dict[str, tuple[Damage, ...]] = {
        "out.parts/000000": (bytes_changed,),
        "out.parts/000001.json": notes,
        "out.parts/manifest.json": notes,
    }
    yield Reader("output that goes on", files_in(folder), damage, gone_on, sealed=True)


def _one_huge_line(draw: DrawFn, content: bytes) -> bytes:
    return content + b"x" * draw(st.sampled_from(((1 << 20) - 8, 1 << 20, 1 << 22)))
