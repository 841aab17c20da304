"""The folder `hub` works as a repository for `custom_generate` of transformers, by its path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import generated, inputs, network

HUB = Path(__file__).parents[2] / "hub"


@pytest.fixture(autouse=True)
def _modules_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformers copies the code of a repository into its cache and imports it from there."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_generate_finds_the_search_by_the_path_of_the_repository() -> None:
    model: Any = network("marian", 1, ending=1.0)
    options: dict[str, Any] = {"beam_size": 5, "score": "bp-norm", "length_ratio": 1.5, "max_new_tokens": 20}
    found = model.generate(**inputs("marian"), custom_generate=str(HUB), trust_remote_code=True, **options)
    assert torch.equal(found, generated(model, inputs("marian"), **options))


def test_certificates_come_back_from_the_repository() -> None:
    model: Any = network("marian", 2, ending=1.0)
    found = model.generate(
        **inputs("marian"),
        custom_generate=str(HUB),
        trust_remote_code=True,
        beam_size=5,
        max_new_tokens=20,
        return_dict_in_generate=True,
    )
    assert set(found.certificates) <= {"BEAM", "GLOBAL"}
