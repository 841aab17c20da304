"""Reader of `pytorch_model.bin`: a pickled state dict of plain tensors, and nothing else.

Pickles can run code. So the opcodes are read first: only what a state dict of tensors needs may be named. Then
`torch.load` reads it with `weights_only=True`, and every tensor must have its numbers in the file.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.storage.atomic import read_regular_file

ALLOWED: Final = {  # what the pickle of a state dict may name
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    *(f"torch {kind}Storage" for kind in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Byte", "Bool")),
}
LEGACY_PICKLES: Final = 5  # magic number, protocol version, system, state dict, storage keys; then come raw bytes
MAX_ALIASES: Final = 16  # how many times the bytes of the file its tensors may have: tied weights occur repeatedly


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read tensors by name; an error if the file holds or asks for anything else."""
    content = read_regular_file(path, MAX_WEIGHT_BYTES)
    try:
        for name in _globals(content):
            if name not in ALLOWED:
                raise UncurseError(f"it names {name.replace(' ', '.')}, which a state dict does not need")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return _checked(state, len(content))
    except Exception as error:  # what is not a PyTorch file can fail in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UncurseError(f"{path} is refused: {reason}") from error


def _globals(content: bytes) -> Iterator[str]:
    """Everything that the pickles of a file name, as `module name`."""
    stream = io.BytesIO(content)
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise UncurseError("its archive is compressed, which PyTorch's are not")
            if sum(info.file_size for info in archive.infolist()) > len(content):
                raise UncurseError("its archive claims more bytes than it has")
            pickles = [archive.read(info) for info in archive.infolist() if info.filename.endswith(".pkl")]
        for each in pickles:
            yield from _names(io.BytesIO(each))
        return
    stream.seek(0)
    for _ in range(LEGACY_PICKLES):
        yield from _names(stream)


def _names(stream: io.BytesIO) -> Iterator[str]:
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
            raise UncurseError(f"its pickle uses {opcode.name}, which PyTorch's do not")
        if opcode.name == "GLOBAL":
            yield str(argument)


def _checked(state: object, size: int) -> dict[str, Tensor]:
    if not isinstance(state, dict):
        raise UncurseError("it is not a state dict")
    for name, tensor in state.items():
        if not isinstance(name, str) or type(tensor) is not Tensor or tensor.layout is not torch.strided:
            raise UncurseError(f"its {name!r} is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UncurseError(f"its {name!r} has the shape {tuple(tensor.shape)}, for which it has no numbers")
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > MAX_ALIASES * size:
        raise UncurseError(f"its tensors have more than {MAX_ALIASES} times its bytes")
    return dict(state)
