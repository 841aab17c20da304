"""What `uncurse score` says of given translations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.letter_model import LetterEncoder, LetterWords

from uncurse import UncurseError
from uncurse.cli import main
from uncurse.lengths.predictors import FixedRatio
from uncurse.testing import RandomModel
from uncurse.translation.translator import Translator


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = Translator(LetterEncoder(seed=1, vocab_size=7), LetterWords(), LetterWords(), FixedRatio(1.5))
    monkeypatch.setattr("uncurse.translation.translator.load_translator", lambda options: translator)


def score(folder: Path, sources: str, targets: str) -> None:
    (folder / "source").write_text(sources, encoding="utf-8")
    (folder / "target").write_text(targets, encoding="utf-8")
    main(["score", str(folder / "source"), str(folder / "target"), "-b", "2"])


def test_no_number_is_invented_for_an_empty_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score(tmp_path, "a b\n\n", "a\nb\n")
    real, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert real.keys() == empty.keys()
    assert real["length"] == 2
    assert (empty["log_prob"], empty["expected_length"], empty["scores"]) == (None, None, {})


def test_a_line_that_cannot_be_scored_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: LetterEncoder, sources: Sequence[Sequence[int]]) -> object:
        if max(map(len, sources)) > 1:
            raise UncurseError("too long")
        return RandomModel.start(self, sources)

    monkeypatch.setattr(LetterEncoder, "start", start)
    with pytest.raises(SystemExit):
        score(tmp_path, "a\na b\n", "a\nb\n")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"source and {tmp_path / 'target'}, line 2: too long")
