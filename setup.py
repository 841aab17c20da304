"""Builds the C++ kernels, once for every instruction set; all else is in pyproject.toml.

The libraries are called through ctypes and know nothing of Python, so a wheel serves every version of it. Without
a C++ compiler the package is installed without kernels, and PyTorch computes everything.
"""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, ExecError, PlatformError

PACKAGE = "uncurse.models.transformer.native"
SOURCES = Path("src", *PACKAGE.split("."))
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "vnni")]
INSTRUCTION_SETS = {"portable": []}
if platform.machine() in ("x86_64", "AMD64"):
    INSTRUCTION_SETS |= {"avx2": AVX2, "avx512": [*AVX2, *AVX512]}
COMPILE = ["-std=gnu++20", "-O3", "-g0", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra"]
COMPILE += ["-Wno-maybe-uninitialized", "-Wno-uninitialized"]  # GCC 12 warns of its own intrinsics
LINK = ["-pthread", *(["-static-libstdc++", "-static-libgcc"] if sys.platform == "linux" else [])]


class BuildKernels(build_ext):
    """Builds the kernels if there is a compiler."""

    failed = False

    def build_extension(self, ext: Extension) -> None:
        """Build one library, in a folder of its own, as all have the same source."""
        before, self.build_temp = self.build_temp, str(Path(self.build_temp) / ext.name)
        try:
            build_ext.build_extension(self, ext)
        except (CCompilerError, ExecError, PlatformError, OSError):
            if not self.failed:
                sys.stderr.write("uncurse: no C++ compiler for the kernels: PyTorch will compute everything\n")
            self.failed = True
        finally:
            self.build_temp = before

    def get_ext_filename(self, fullname: str) -> str:
        """The name of a library: without a version of Python, as it needs none."""
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """None: the source says what is exported, and there is no PyInit."""
        return []


class AnyPythonWheel(bdist_wheel):
    """A wheel for one platform and for every version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag of the wheel."""
        return "py3", "none", bdist_wheel.get_tag(self)[2]


setup(
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPythonWheel},
    ext_modules=[
        Extension(
            f"{PACKAGE}.kernels_{name}",
            [str(SOURCES / "kernels.cpp")],
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            extra_compile_args=[*COMPILE, *flags],
            extra_link_args=LINK,
            language="c++",
            optional=True,
        )
        for name, flags in INSTRUCTION_SETS.items()
    ],
)
