"""The compiled kernels: which of them this CPU can run, and their functions."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final, final

from uncurse.errors import UncurseError, nearest

FOLDER: Final = Path(os.environ.get("UNCURSE_KERNEL_FOLDER") or Path(__file__).parent)  # another one: for tests
INSTRUCTION_SETS: Final = ("avx512", "avx2", "portable")
INTERFACE: Final = 4  # of the functions, as `kernels.cpp` has it
WITHOUT: Final = "torch"  # as the value of the variable: PyTorch computes everything
VARIABLE: Final = "UNCURSE_KERNELS"  # names an instruction set, for tests and comparisons


class Step(Structure):
    """The prefixes of a step and the KV caches of their sentences, as `decoder.h` has them."""

    _fields_ = (
        ("rows", c_int32),
        ("path_length", c_int32),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("sentence", c_void_p),
        ("paths", c_void_p),
        ("trees", c_void_p),
        ("capacities", c_void_p),
        ("sources", c_void_p),
        ("source_strides", c_void_p),
        ("source_lengths", c_void_p),
        ("outputs", c_void_p),
        ("allowed", c_void_p),
        ("common", c_void_p),
        ("common_allowed", c_void_p),
    )


class Found(Structure):
    """Where the continuations of a step are written, as `decoder.h` has it."""

    _fields_ = (
        ("k", c_int32),
        ("received_stride", c_int32),
        ("tokens", c_void_p),
        ("log_probs", c_void_p),
        ("received", c_void_p),
    )


@final
class Library:
    """The kernels compiled for one instruction set."""

    def __init__(self, instruction_set: str) -> None:
        self.instruction_set = instruction_set
        library = ctypes.CDLL(str(library_path(instruction_set)))
        if _function(library.uncurse_interface, c_int32)() != INTERFACE:
            raise OSError(f"{library_path(instruction_set)} was built from other sources")
        self.best_instruction_set = _function(library.uncurse_best_instruction_set, c_char_p)
        self.max_quantized: int = _function(library.uncurse_max_quantized, c_int32)()
        pointer, count = c_void_p, c_int32
        self.linear_new = _function(library.uncurse_linear_new, pointer, count, count, *4 * [pointer])
        self.linear_delete = _function(library.uncurse_linear_delete, None, pointer)
        self.network_new = _function(library.uncurse_network_new, pointer, pointer, c_float, *6 * [pointer])
        self.network_delete = _function(library.uncurse_network_delete, None, pointer)
        self.cache_stride = _function(library.uncurse_cache_stride, c_int64, pointer)
        self.encode = _function(library.uncurse_encode, None, pointer, count, count, pointer, pointer, pointer)
        self.cross_attention_cache = _function(
            library.uncurse_cross_attention_cache, None, pointer, count, count, pointer, pointer
        )
        self.decode = _function(library.uncurse_decode, None, pointer, count, POINTER(Step), count, POINTER(Found))
        self.linear = _function(library.uncurse_linear, None, pointer, count, count, pointer, count, pointer)
        self.top_k = _function(
            library.uncurse_top_k, None, pointer, count, count, pointer, count, pointer, pointer
        )
        self.attention = _function(library.uncurse_attention, None, *4 * [count], *4 * [pointer])
        self.add_and_normalize = _function(library.uncurse_add_and_normalize, None, count, count, *4 * [pointer])


def library_path(instruction_set: str) -> Path:
    """Where the build puts a library."""
    return FOLDER / f"kernels_{instruction_set}.so"


@cache
def load_library(instruction_set: str) -> Library:
    """The kernels for an instruction set that this CPU has."""
    return Library(instruction_set)


def available_instruction_sets() -> list[str]:
    """The instruction sets of the kernels that this CPU can run, the best first; none if none were built."""
    if not library_path("portable").exists():
        return []
    try:
        best: str = load_library("portable").best_instruction_set().decode()
    except (OSError, AttributeError):  # built for another system, or from other sources
        return []
    runnable = INSTRUCTION_SETS[INSTRUCTION_SETS.index(best) :]
    return [name for name in runnable if library_path(name).exists()]


def chosen_library() -> Library | None:
    """The kernels to use; None: PyTorch computes everything.

    Portable kernels are only used if the variable asks for them: PyTorch has faster ones for other CPUs.
    """
    wanted, available = os.environ.get(VARIABLE, ""), available_instruction_sets()
    if wanted and wanted not in (*available, WITHOUT):
        raise UncurseError(f"{VARIABLE} = {wanted!r} cannot be used here{nearest(wanted, (*available, WITHOUT))}")
    if wanted:
        return None if wanted == WITHOUT else load_library(wanted)
    return load_library(available[0]) if available and available[0] != "portable" else None


def describe() -> str:
    """Which kernels are in use, for a report of the environment."""
    library = chosen_library()
    if library is not None:
        return (
            f"C++ kernels for {library.instruction_set}, int8 with {library.max_quantized.bit_length()}-bit inputs"
        )
    if os.environ.get(VARIABLE) == WITHOUT:
        return f"PyTorch, as {VARIABLE} asks for"
    if not available_instruction_sets():
        return "PyTorch: the C++ kernels were not built for this system; installing them needs a C++ compiler"
    return "PyTorch: there are no fast C++ kernels for this CPU"


def _function(function: Any, result: object, *arguments: object) -> Callable[..., Any]:  # noqa: ANN401
    function.restype, function.argtypes = result, arguments
    given: Callable[..., Any] = function
    return given
