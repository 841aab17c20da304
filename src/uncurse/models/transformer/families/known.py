"""The families of models that the runtime knows."""

from __future__ import annotations

from typing import Final

from uncurse.models.transformer.families.bart import BART, MBART
from uncurse.models.transformer.families.m2m100 import M2M100
from uncurse.models.transformer.families.marian import MARIAN

FAMILIES: Final = (MARIAN, M2M100, BART, MBART)
