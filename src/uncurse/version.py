"""The version, which is part of every signature."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("uncurse")
