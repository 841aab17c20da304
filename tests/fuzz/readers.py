"""Everything that reads a file, with a file that its own writer made and the ways to damage it."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # children are forked

import numpy as np
import pyarrow.parquet
import torch
from fuzz.mutations import (
    Damage,
    bytes_changed,
    ctranslate2_changed,
    json_changed,
    protobuf_changed,
    safetensors_changed,
    sealed_changed,
    toml_changed,
)
from fuzz.sandbox import Outcome, Sandbox, Verdict
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from letters import LetterEncoder
from made_up import RECIPE, WORDS, translated
from tiny import PIECES, subword_model, tiny_weights, write_ctranslate2

import uncurse.catalogue as catalogue
from uncurse import Sentence, Trace, load_traces, record, save_traces
from uncurse.decoding import Slots
from uncurse.jsonfile import SEAL, sealed_json
from uncurse.length import MLPLength
from uncurse.loading import load
from uncurse.models.directory import DESCRIPTION, FILES, save_model
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.marian import save_marian
from uncurse.models.predictors import LENGTH, load_predictor, save_predictor
from uncurse.parts import Parts
from uncurse.shards import Shard
from uncurse.study.material import Material
from uncurse.study.plan import Plan, SetPlan, read_plan
from uncurse.study.probes import Probes
from uncurse.study.store import Recording, Store
from uncurse.text.corpora import sentences_of
from uncurse.text.subwords import Subwords, read_subwords
from uncurse.tracefile import UNSIGNED
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log
from uncurse.training.recipe import read_recipe

Files = dict[str, bytes]
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


@final
@dataclass(frozen=True)
class Reader:
    """A reader, whole files for it, and how each of them can be damaged."""

    name: str
    files: Files
    damage: dict[str, tuple[Damage, ...]]
    read: Callable[[Path], str]  # what the folder says, or a digest of it
    sealed: bool = False  # if anything can be read, it is what was written
    repair: Callable[[Files], Files] = field(default=lambda files: files)  # of checksums, to get past them

    def damaged(self, draw: DrawFn) -> Files:
        """Whole files but for one, which can also be missing."""
        name = draw(st.sampled_from(sorted(self.damage)))
        how = draw(st.sampled_from(self.damage[name]))
        if not draw(st.integers(0, 40)):
            return {each: content for each, content in self.files.items() if each != name}
        return self.repair({**self.files, name: how(draw, self.files[name])})

    def verdict(self, sandbox: Sandbox, files: Files) -> Verdict:
        """What the reader makes of files; something else is a fault if they carry checksums."""
        with _written(files) as folder:
            verdict = sandbox.tried(folder, self.expected)
        if verdict.outcome is Outcome.OTHER and self.sealed:
            return Verdict(Outcome.FAULT, "read as something else, and no checksum told")
        return verdict

    @cached_property
    def expected(self) -> str:
        """What whole files say."""
        with _written(self.files) as folder:
            return self.read(folder)


@contextmanager
def _written(files: Files) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(folder)


@cache
def readers() -> dict[str, Reader]:
    """All of them, by name."""
    found: dict[str, Reader] = {}
    for make in (_models, _predictors, _traces, _studies, _training, _plain, _archives):
        with TemporaryDirectory() as folder:
            found |= {reader.name: reader for reader in make(Path(folder))}
    return found


def _files(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()


def _arrays(*arrays: Any) -> str:
    return _digest(*((each.dtype.str, each.shape, each.tobytes()) for each in map(np.asarray, arrays)))


# Models: a folder that loads must also translate.


def _translations(lines: list[str], **options: Any) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        translator = load(folder)
        found = translator.translate(lines, beam=3, ratio=1.2, **options)
        return _digest(translator.signature, [each.texts for each in found])

    return read


def _models(folder: Path) -> Iterator[Reader]:
    torch.manual_seed(1)
    read = _translations(["a b c", "", "s r q p"])
    write_ctranslate2(folder / "ctranslate2" / "model", tiny_weights(whole=True))
    (folder / "ctranslate2" / "sentencepiece.model").write_bytes(subword_model())
    yield Reader(
        "CTranslate2 folder",
        _files(folder / "ctranslate2"),
        {
            "model/model.bin": (ctranslate2_changed,),
            "model/shared_vocabulary.json": (json_changed, bytes_changed),
            "sentencepiece.model": (protobuf_changed,),
        },
        read,
    )
    marian = folder / "marian"
    save_marian(marian, tiny_weights())
    ids = {piece: index for index, piece in enumerate([*PIECES, "<pad>"])}
    (marian / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (marian / name).write_bytes(subword_model())
    yield Reader(
        "Marian folder",
        _files(marian),
        {
            "config.json": (json_changed, bytes_changed),
            "model.safetensors": (safetensors_changed,),
            "vocab.json": (json_changed, bytes_changed),
            "source.spm": (protobuf_changed,),
            "target.spm": (protobuf_changed,),
        },
        read,
    )
    yield from _trained(folder / "trained")
    yield _hugging_face(folder / "hugging face")


def _trained(folder: Path) -> Iterator[Reader]:
    source, target = _subwords("source"), _subwords("target")
    network = AttentionalLSTM(LSTMShape(len(source), len(target), 8, 8, tied=True))
    save_model(folder, network, source, target, 2.0, torch.float16)
    files = _files(folder)
    damage: dict[str, tuple[Damage, ...]] = {
        DESCRIPTION: (sealed_changed, bytes_changed),
        "weights.safetensors": (safetensors_changed,),
        "source.spm": (protobuf_changed,),
        "target.spm": (protobuf_changed,),
    }
    read = _translations(["ba ce di", "", "mu"])
    yield Reader("folder of a trained model", files, damage, read, sealed=True)
    yield Reader("trained model with right checksums", files, damage, read, repair=_with_checksums)


def _with_checksums(files: Files) -> Files:
    """What the checksums hide is seen with right ones."""
    try:
        description = {key: each for key, each in json.loads(files[DESCRIPTION]).items() if key != SEAL}
        checksums = {name: sha256(files[name]).hexdigest() for name in FILES}
        return {**files, DESCRIPTION: sealed_json({**description, "sha256": checksums})}
    except (ValueError, AttributeError, RecursionError):
        return files  # no table to put checksums into


@cache
def _subwords(side: str) -> Subwords:
    lines = [" ".join(WORDS[index % 10 :]) for index in range(40)]
    return Subwords.train(lines if side == "source" else map(translated, lines), 290, lowercase=False)


def _hugging_face(folder: Path) -> Reader:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    ids = {piece: index for index, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrs"])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    fast: Any = PreTrainedTokenizerFast
    fast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    sides: Any = {f"{side}_{what}": size for side in ("encoder", "decoder")
             for what, size in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
    config = BartConfig(
        vocab_size=len(ids), d_model=8, max_position_embeddings=32, forced_eos_token_id=None, **sides
    )
    BartForConditionalGeneration(config).save_pretrained(folder)
    return Reader(
        "folder for transformers",
        _files(folder),
        {
            "config.json": (json_changed, bytes_changed),
            "generation_config.json": (json_changed, bytes_changed),
            "tokenizer.json": (json_changed, bytes_changed),
            "tokenizer_config.json": (json_changed, bytes_changed),
            "model.safetensors": (safetensors_changed,),
        },
        _translations(["a b c", "", "s r q p"]),
    )


# What is written beside models.


def _predictors(folder: Path) -> Iterator[Reader]:
    random = np.random.default_rng(1)
    predictor = MLPLength(
        (0.5, 0.8), random.normal(size=5), random.uniform(1, 2, size=5), random.normal(size=(4, 5)),
        random.normal(size=4), random.normal(size=(3, 4)), random.normal(size=3),
    )  # fmt: skip
    save_predictor(folder / LENGTH, predictor, "0123456789abcdef")

    def read(place: Path) -> str:
        found = load_predictor(place / LENGTH, "0123456789abcdef")
        lengths = np.array([3, 4]), np.ones((2, 4))
        return _arrays(*(found.quantile(level, *lengths) for level in found.levels), found.predict(*lengths))

    yield Reader("length predictor", _files(folder), {LENGTH: (safetensors_changed,)}, read, sealed=True)


def _traces(folder: Path) -> Iterator[Reader]:
    save_traces(folder / "traces", record(MODEL, SENTENCES, 3))

    def read(place: Path) -> str:
        return _trace_digest(load_traces(place / "traces"))

    files = _files(folder)
    yield Reader("trace file", files, {"traces": (bytes_changed, _arrays_changed)}, read, sealed=True)
    yield Reader("trace file without a checksum", files, {"traces": (_unsigned_changed,)}, read)


def _trace_digest(traces: list[Trace]) -> str:
    return _digest(
        *(
            (
                each.signature,
                each.source_length,
                each.end,
                _arrays(each.tokens, each.parents, each.sums, each.rewards),
            )
            for each in traces
        ),
        *(_arrays(each.pruned, np.zeros(0) if each.coverage is None else each.coverage) for each in traces),
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
        return _digest(_trace_digest(store.load(recording)), store.seconds(recording))

    files = _files(folder / "store")
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
        return _digest(probes.references(material), probes.optima(material))

    files = _files(folder / "probes")
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
        return _digest(found.facts, *((name, each.tolist()) for name, each in sorted(found.tensors.items())))

    files = _files(folder)
    yield Reader("checkpoint", files, {"last.safetensors": (safetensors_changed,)}, checkpoint, sealed=True)
    log = (
        "step,epoch,tokens,train_perplexity,dev_perplexity,learning_rate,tokens_per_second\n1,1,9,3.5,3.6,0.1,99\n"
    )

    def history(place: Path) -> str:
        return _digest(read_log(place / "log.csv"))

    yield Reader("log of a run", {"log.csv": log.encode()}, {"log.csv": (bytes_changed,)}, history)
    recipe = (RECIPE % 2).strip().encode()
    toml: tuple[Damage, ...] = (toml_changed, bytes_changed)
    yield Reader(
        "recipe", {"recipe": recipe}, {"recipe": toml}, lambda place: _digest(read_recipe(place / "recipe"))
    )
    yield Reader("plan", {"plan": PLAN.encode()}, {"plan": toml}, lambda place: _digest(read_plan(place / "plan")))


# Text, subwords, output that goes on.


def _plain(folder: Path) -> Iterator[Reader]:
    text = "外面下雨了。\n\nba ce\r\nlast".encode()

    def lines(name: str, place: Path) -> str:
        return _digest(list(sentences_of([place / name])))

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
        return _digest(len(subwords), cut, [subwords.decode(each) for each in cut])

    yield Reader(
        "subword model", {"model.spm": _subwords("source").model}, {"model.spm": (protobuf_changed,)}, pieces
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
        return _digest((place / "out").read_bytes())

    notes = (json_changed, sealed_changed, bytes_changed)
    damage: dict[str, tuple[Damage, ...]] = {
        "out.parts/000000": (bytes_changed,),
        "out.parts/000001.json": notes,
        "out.parts/manifest.json": notes,
    }
    yield Reader("output that goes on", _files(folder), damage, gone_on, sealed=True)


def _one_huge_line(draw: DrawFn, content: bytes) -> bytes:
    return content + b"x" * draw(st.sampled_from(((1 << 20) - 8, 1 << 20, 1 << 22)))


# Archives and what is noted of them.

WANTED = {"model/model.bin": bytes(range(256)) * 4, "model/config.json": b"{}", "sentencepiece.model": b"pieces"}
ENTRY = catalogue.Entry(
    "toy", "", "", "", "",
    catalogue.Distribution("toy", "1.0", 0, "", "", "toy-1.0/model.argosmodel", "zh_en"),
    tuple(catalogue.File(name, len(each), sha256(each).hexdigest()) for name, each in WANTED.items()),
)  # fmt: skip


def _archives(folder: Path) -> Iterator[Reader]:
    def unpack(place: Path) -> str:
        whole = place / "inside" / "whole"
        try:
            catalogue._unpack(ENTRY, place / "toy-1.0.tar.gz", whole)
        except catalogue._BROKEN as error:
            raise ValueError(str(error)) from error
        allowed = {"toy-1.0.tar", "toy-1.0.tar.gz", *(f"inside/whole/{name}" for name in WANTED)}
        if not set(_files(place)) <= allowed:
            raise AssertionError(f"written elsewhere: {sorted(_files(place))}")
        catalogue.check_noted(whole, [])
        return _digest(_files(whole))

    whole = _tarred(_zipped(WANTED, zipfile.ZIP_DEFLATED, []), [])
    yield Reader("archive", {"toy-1.0.tar.gz": whole}, {"toy-1.0.tar.gz": (_archive_changed,)}, unpack)
    note = {"files": [{"name": name, "sha256": sha256(each).hexdigest()} for name, each in WANTED.items()]}

    def noted(place: Path) -> str:
        return _digest(catalogue.check_noted(place, [place / name for name in WANTED]))

    files = {**WANTED, catalogue.NOTE: json.dumps(note).encode()}
    damage: dict[str, tuple[Damage, ...]] = dict.fromkeys(WANTED, (bytes_changed,))
    yield Reader("fetched model", files, {**damage, catalogue.NOTE: (json_changed, bytes_changed)}, noted)


NAMES = (
    "../up",
    "/absolute",
    "..\\up",
    "C:\\x",
    "zh_en/../../up",
    "zh_en/model/model.bin",
    "a" * 300,
    "zh_en/\udcff",
    "",
)


def _archive_changed(draw: DrawFn, content: bytes) -> bytes:
    """Members that lead astray, contents of another size, damage at any depth."""
    how = draw(st.sampled_from(("name", "link", "method", "bomb", "zip", "tar", "gzip")))
    method = (
        draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))) if how == "method" else 8
    )
    contents, members, more = dict(WANTED), [], []
    if how == "name":
        members = [zipfile.ZipInfo(draw(st.sampled_from(NAMES)).encode("utf-8", "replace").decode() or "x")]
        if draw(st.booleans()):
            more, members = [tarfile.TarInfo(members[0].filename)], []
    elif how == "link":
        members = [zipfile.ZipInfo("zh_en/link")]
        members[0].external_attr = 0o120777 << 16
        if draw(st.booleans()):
            link, members = tarfile.TarInfo("toy-1.0/link"), []
            link.type = draw(
                st.sampled_from((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE))
            )
            link.linkname = "/etc/passwd"
            more = [link]
    elif how == "bomb":
        contents["model/model.bin"] = b"\0" * draw(st.sampled_from((2000, 1 << 24)))
    package = _zipped(contents, method, members)
    if how == "zip":
        package = bytes_changed(draw, package)
    tar = gzip.decompress(_tarred(package, more))
    packed = gzip.compress(bytes_changed(draw, tar) if how == "tar" else tar, 1)
    return bytes_changed(draw, packed) if how == "gzip" else packed


def _zipped(contents: Files, method: int, more: list[zipfile.ZipInfo]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        names = {f"zh_en/{name}" for name in contents}
        for name, content in contents.items():
            file.writestr(f"zh_en/{name}", content)
        for info in more:
            if info.filename in names:  # zipfile would warn; a twin is made by hand
                info.filename = info.filename[:-1] + "~"
            file.writestr(info, "target")
    return buffer.getvalue().replace(b"model.bi~", b"model.bin")


def _tarred(package: bytes, more: list[tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as file:
        info = tarfile.TarInfo(ENTRY.source.package)
        info.size = len(package)
        file.addfile(info, io.BytesIO(package))
        for each in more:
            file.addfile(each)
    return buffer.getvalue()
