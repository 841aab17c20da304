"""A phrase-based translator learns a word-for-word language, once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("thot")

from uncurse.errors import UncurseError
from uncurse.study.baseline.phrase_based import _work_folder, train_phrase_based, translate_phrase_based
from uncurse.study.baseline.phrase_tokens import target_tokens, text_of
from uncurse.text.parallel import ParallelFiles

WORDS = dict(
    zip(
        "日月山水火木金土人天",
        ["sun", "moon", "hill", "lake", "fire", "tree", "gold", "soil", "folk", "sky"],
        strict=True,
    )
)


def silent(message: str) -> None:
    del message


def refused(message: str) -> None:
    raise AssertionError(f"it trains again: {message}")


def interrupted(message: str) -> None:
    if "tuning" in message:
        raise KeyboardInterrupt


def translated(line: str) -> str:
    text = " ".join(WORDS[character] for character in line if character in WORDS)
    return f"{text.capitalize()}{'.' if line.endswith('。') else '!'}"


def corpus(folder: Path, name: str, lines: int) -> ParallelFiles:
    """A source and two targets that say the same."""
    chance = random.Random(name)
    sources = [
        "".join(chance.choices([*WORDS], k=chance.randint(2, 6))) + chance.choice("。！") for _ in range(lines)
    ]
    paths = [folder / f"{name}.{side}" for side in ("source", "0", "1")]
    for path in paths:
        texts = sources if path is paths[0] else [translated(line) for line in sources]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return ParallelFiles(str(paths[0]), tuple(str(path) for path in paths[1:]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phrases")
    train_phrase_based([corpus(folder, "train", 60)], corpus(folder, "dev", 10), folder / "model", True, silent)
    return folder


def test_it_translates_word_for_word_and_keeps_the_order(trained: Path) -> None:
    lines = ["日月山。", "", "人天火水木！", "   ", "土。"]
    found = list(translate_phrase_based(trained / "model", lines, lowercase=True))
    assert found == ["sun moon hill.", "", "folk sky fire lake tree!", "", "soil."]


def test_a_line_longer_than_any_seen_is_translated_whole(trained: Path) -> None:
    (found,) = translate_phrase_based(trained / "model", ["日月" * 150], lowercase=True)
    assert found.split() == ["sun", "moon"] * 150


def test_the_same_data_are_not_learnt_twice(trained: Path) -> None:
    again = corpus(trained, "train", 60), corpus(trained, "dev", 10)
    train_phrase_based([again[0]], again[1], trained / "model", True, refused)


def test_a_model_of_other_data_is_refused(trained: Path, tmp_path: Path) -> None:
    other = corpus(tmp_path, "other", 20)
    dev = corpus(trained, "dev", 10)
    with pytest.raises(UncurseError, match="with other training"):
        train_phrase_based([other], dev, trained / "model", True, refused)
    with pytest.raises(UncurseError, match="with other lowercase"):
        train_phrase_based([corpus(trained, "train", 60)], dev, trained / "model", False, refused)
    with pytest.raises(UncurseError, match="not trained with lowercase = False"):
        translate_phrase_based(trained / "model", ["日"], lowercase=False)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_with_what_is_left(tmp_path: Path) -> None:
    training, dev = corpus(tmp_path, "train", 20), corpus(tmp_path, "dev", 5)
    with pytest.raises(KeyboardInterrupt):
        train_phrase_based([training], dev, tmp_path / "model", True, interrupted)
    assert not (tmp_path / "model").exists()
    said: list[str] = []
    train_phrase_based([training], dev, tmp_path / "model", True, said.append)
    assert said
    assert all("tuning" in each for each in said)
    train_phrase_based([training], dev, tmp_path / "whole", True, silent)
    found, expected = (json.loads((tmp_path / name / "model.json").read_text()) for name in ("model", "whole"))
    assert found == expected


@pytest.mark.slow
def test_what_was_begun_with_other_data_is_begun_again(tmp_path: Path) -> None:
    dev = corpus(tmp_path, "dev", 5)
    with pytest.raises(KeyboardInterrupt):
        train_phrase_based([corpus(tmp_path, "train", 20)], dev, tmp_path / "model", True, interrupted)
    said: list[str] = []
    train_phrase_based([corpus(tmp_path, "other", 20)], dev, tmp_path / "model", True, said.append)
    assert "aligning" in said[0]


def test_a_folder_with_something_else_in_it_is_left_alone(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UncurseError, match="holds no phrase-based model"):
        train_phrase_based([corpus(trained, "train", 60)], corpus(trained, "dev", 10), tmp_path, True, refused)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_files_of_different_lengths_are_named(tmp_path: Path) -> None:
    training, dev = corpus(tmp_path, "train", 20), corpus(tmp_path, "dev", 5)
    crossed = ParallelFiles(training.source, dev.targets)
    with pytest.raises(UncurseError, match=r"train\.source has 20 lines and .*dev\.0 has 5"):
        train_phrase_based([crossed], dev, tmp_path / "model", True, silent)


@pytest.mark.parametrize(
    "line",
    ["“Go!” he said—and went.", "Abraham’s 3,500 sheep (and goats); [see 1.5]", "a_b <s> ||| |", "日月 ab"],
)
def test_target_text_comes_back_as_it_was(line: str) -> None:
    assert text_of(target_tokens(line, lowercase=False)) == line


def test_a_word_is_the_same_token_beside_a_sign_and_alone() -> None:
    assert {"Go", "said"} <= set(target_tokens("“Go!” she said, said he.", lowercase=False))


def test_a_folder_that_was_half_removed_is_not_taken_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = _work_folder(tmp_path / "model", {"data": "first"})
    (work / "done-aligning").touch()

    def killed(folder: Path) -> None:
        del folder
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            _work_folder(tmp_path / "model", {"data": "second"})
    assert not (_work_folder(tmp_path / "model", {"data": "first"}) / "done-aligning").exists()
