"""What several files of tests are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.toy_registry import Registry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "cache", monkeypatch)
