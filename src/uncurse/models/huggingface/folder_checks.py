"""What is checked of a folder of transformers before anything in it is parsed or built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedConfig

from uncurse.errors import UncurseError
from uncurse.storage.strict_json import read_json

MAX_LAYERS: Final = 1000
MAX_TEXT_BYTES: Final = 1 << 28  # of a file that does not hold weights; the largest tokenizers have some 40 MB
TOKENIZER_FILES: Final = ("tokenizer*", "*.model", "*.spm", "vocab*")
NOT_STORED: Final = 1 << 24  # numbers that a model may have beside its weights
MAX_POSITION_NUMBERS: Final = 1 << 22  # of them in tables of positions, which some models compute in a slow loop


def check_files(folder: Path) -> None:
    """Refuse a folder with devices or pipes, which may never end, or with huge files."""
    for path in sorted(folder.iterdir()):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UncurseError(f"{path} is not a regular file")
        weights = path.suffix in (".safetensors", ".bin", ".h5", ".msgpack", ".ot", ".onnx")
        if path.is_file() and not weights and path.stat().st_size > MAX_TEXT_BYTES:
            raise UncurseError(f"{path} has {path.stat().st_size} bytes, and the most is {MAX_TEXT_BYTES}")


def auto_class(config: PreTrainedConfig) -> Any:  # noqa: ANN401  (they share no type)
    """What loads a model of this config."""
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def check_proportions(folder: Path, config: PreTrainedConfig) -> None:
    """Refuse a folder without weights or tokenizer, or whose config asks for more than its weights hold."""
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not stored:
        pickled = [path.name for path in sorted(folder.glob("pytorch_model*.bin"))]
        raise UncurseError(_pickled(pickled[0]) if pickled else "it has no weights: model.safetensors is missing")
    _check_sizes(dict(_numbers(read_json(folder / "config.json"))), stored)
    with torch.device("meta"):
        network: Any = auto_class(config).from_config(config, trust_remote_code=False)
    wanted = sum(tensor.numel() for tensor in (*network.parameters(), *network.buffers()))
    if wanted > stored + NOT_STORED:  # a number has at least a byte
        raise UncurseError(f"its config asks for {wanted} numbers, and its weights have {stored} bytes")
    check_tokenizer(folder)


def check_tokenizer(folder: Path) -> None:
    """Refuse a folder without a tokenizer: transformers would make one up."""
    if not any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
        raise UncurseError("it has no tokenizer: save the model's tokenizer beside it")


def _check_sizes(numbers: dict[str, int], stored: int) -> None:
    """Refuse what would take long even without memory: modules for all layers, tables of all positions."""
    for name, value in numbers.items():
        if name.endswith("layers") and value > MAX_LAYERS:
            raise UncurseError(f"its config asks for {value} {name}")
    width = max((value for name, value in numbers.items() if name in ("d_model", "hidden_size")), default=1)
    for name, value in numbers.items():
        if "position" in name and value * width > stored + MAX_POSITION_NUMBERS:
            raise UncurseError(f"its config asks for {value} {name}, and its weights have {stored} bytes")


def _numbers(config: object) -> Iterator[tuple[str, int]]:
    """The numbers of a config by name, the largest of each name last; nested configs are looked into."""
    found: list[tuple[str, int]] = []
    waiting = [config]
    while waiting:
        for name, value in each.items() if isinstance(each := waiting.pop(), dict) else ():
            if isinstance(value, dict):
                waiting.append(value)
            elif isinstance(value, int | float):
                found.append((name, int(value)))
    yield from sorted(found, key=lambda pair: pair[1])


def _pickled(name: str) -> str:
    return (
        f"its weights are in {name}, a pickle, which could run any code and is not opened; if you trust it,"
        " convert it once with from_pretrained(folder).save_pretrained(folder), which writes model.safetensors"
    )
