"""Everything that reads models, what is written beside them, and the archives they come in."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # children are forked

import numpy as np
import torch
from fuzz.mutations import (
    Damage,
    bytes_changed,
    ctranslate2_changed,
    json_changed,
    protobuf_changed,
    safetensors_changed,
    sealed_changed,
)
from fuzz.reader import Files, Reader, array_digest, digest, files_in
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from made_up import WORDS, translated
from tiny import PIECES, subword_model, tiny_weights, write_ctranslate2

import uncurse.catalogue as catalogue
from uncurse.jsonfile import SEAL, sealed_json
from uncurse.length import MLPLength
from uncurse.loading import load
from uncurse.models.directory import DESCRIPTION, FILES, save_model
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.marian import save_marian
from uncurse.models.predictors import LENGTH, load_predictor, save_predictor
from uncurse.text.subwords import Subwords

# Models: a folder that loads must also translate.


def _translations(lines: list[str], **options: Any) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        translator = load(folder)
        found = translator.translate(lines, beam=3, ratio=1.2, **options)
        return digest(translator.signature, [each.texts for each in found])

    return read


def models(folder: Path) -> Iterator[Reader]:
    torch.manual_seed(1)
    read = _translations(["a b c", "", "s r q p"])
    write_ctranslate2(folder / "ctranslate2" / "model", tiny_weights(whole=True))
    (folder / "ctranslate2" / "sentencepiece.model").write_bytes(subword_model())
    yield Reader(
        "CTranslate2 folder",
        files_in(folder / "ctranslate2"),
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
        files_in(marian),
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
    source, target = subwords_of("source"), subwords_of("target")
    network = AttentionalLSTM(LSTMShape(len(source), len(target), 8, 8, tied=True))
    save_model(folder, network, source, target, 2.0, torch.float16)
    files = files_in(folder)
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
def subwords_of(side: str) -> Subwords:
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
        files_in(folder),
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


def predictors(folder: Path) -> Iterator[Reader]:
    random = np.random.default_rng(1)
    predictor = MLPLength(
        (0.5, 0.8), random.normal(size=5), random.uniform(1, 2, size=5), random.normal(size=(4, 5)),
        random.normal(size=4), random.normal(size=(3, 4)), random.normal(size=3),
    )  # fmt: skip
    save_predictor(folder / LENGTH, predictor, "0123456789abcdef")

    def read(place: Path) -> str:
        found = load_predictor(place / LENGTH, "0123456789abcdef")
        lengths = np.array([3, 4]), np.ones((2, 4))
        return array_digest(*(found.quantile(level, *lengths) for level in found.levels), found.predict(*lengths))

    yield Reader("length predictor", files_in(folder), {LENGTH: (safetensors_changed,)}, read, sealed=True)


# Archives and what is noted of them.

WANTED = {"model/model.bin": bytes(range(256)) * 4, "model/config.json": b"{}", "sentencepiece.model": b"pieces"}
ENTRY = catalogue.Entry(
    "toy", "", "", "", "",
    catalogue.Distribution("toy", "1.0", 0, "", "", "toy-1.0/model.argosmodel", "zh_en"),
    tuple(catalogue.File(name, len(each), sha256(each).hexdigest()) for name, each in WANTED.items()),
)  # fmt: skip


def archives(folder: Path) -> Iterator[Reader]:
    def unpack(place: Path) -> str:
        whole = place / "inside" / "whole"
        try:
            catalogue._unpack(ENTRY, place / "toy-1.0.tar.gz", whole)
        except catalogue._BROKEN as error:
            raise ValueError(str(error)) from error
        allowed = {"toy-1.0.tar", "toy-1.0.tar.gz", *(f"inside/whole/{name}" for name in WANTED)}
        if not set(files_in(place)) <= allowed:
            raise AssertionError(f"written elsewhere: {sorted(files_in(place))}")
        catalogue.check_noted(whole, [])
        return digest(files_in(whole))

    whole = _tarred(_zipped(WANTED, zipfile.ZIP_DEFLATED, []), [])
    yield Reader("archive", {"toy-1.0.tar.gz": whole}, {"toy-1.0.tar.gz": (_archive_changed,)}, unpack)
    note = {"files": [{"name": name, "sha256": sha256(each).hexdigest()} for name, each in WANTED.items()]}

    def noted(place: Path) -> str:
        return digest(catalogue.check_noted(place, [place / name for name in WANTED]))

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
