"""A phrase-based translator to compare with, as the paper compares with Moses.

Thot (Ortiz-Martínez and Casacuberta 2014, the package `sil-thot`) aligns words, extracts phrases and decodes.
The weights of its log-linear model are tuned for BLEU against every reference of the dev set, on n-best lists that
grow from round to round, as in minimum error rate training (Och 2003). In each round they are found by random hill
climbing with restarts, not by Och's exact line search.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np
from thot.alignment import AlignmentModelType
from thot.translation import SmtDecoder, SmtModel, TranslationData

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.evaluation.bleu import bleu_of, bleu_statistics
from uncurse.storage.atomic import atomic_write
from uncurse.storage.checksums import dump_checksummed, load_checksummed
from uncurse.storage.strict_json import read_json
from uncurse.study.baseline.phrase_learning import (
    LONGEST_PHRASE,
    OPTIONS,
    align_words,
    count_n_grams,
    extract_phrases,
    mix_n_grams,
)
from uncurse.study.baseline.phrase_tokens import Pair, Tokens, source_tokens, target_tokens, text_of
from uncurse.text.lines import read_lines
from uncurse.text.parallel import ParallelFiles


@final
@dataclass(frozen=True, eq=False)
class DecodedCandidate:
    """A translation of a line of dev."""

    features: Floats  # before weighting, [7]
    statistics: Ints  # what BLEU adds up, [10]


STACK: Final = 10  # hypotheses that have translated the same number of tokens
JUMP: Final = 0  # source tokens that may be skipped for now; 2 gain 0.7 BLEU on 100 lines, in four times the time
MAX_LINE: Final = 100  # tokens; longer pairs are not learnt from, longer lines are translated in parts
TUNING_LINES: Final = 200
TUNING_ROUNDS: Final = 5
N_BEST: Final = 100
# Word penalty, language model, target phrase lengths, jumps, source phrase lengths, p(target|source) and back. An
# eighth, for the length of the sentence, stays at 0.
START: Final = (-0.4, 0.7, 0.1, 0.05, 0.7, 0.8, 0.2)
MAY_BE_NEGATIVE: Final = (0, 2, 4)
CLIMBS: Final = 5
STEPS: Final = 500

_MODEL: Final = "model.json"


def train_phrase_based(
    training: Sequence[ParallelFiles],
    dev: ParallelFiles,
    folder: Path,
    lowercase: bool,
    report: Callable[[str], None],
) -> None:
    """Train and tune a translator, once; the folder appears when it is finished.

    Each target of a corpus makes a pair with the source. Weights are tuned on at most `TUNING_LINES` lines, evenly
    spread over dev. An interrupted training resumes after the last stage that was finished.
    """
    signature = _signature(training, dev, lowercase)
    if _finished(folder, signature):
        return
    pairs = [pair for corpus in training for pair in _pairs(corpus, lowercase)]
    dev_pairs = _pairs(dev, lowercase)
    if not pairs or not dev_pairs:
        raise UncurseError(
            "there is no pair of lines to learn from" if dev_pairs else f"{dev.source} has no lines"
        )
    work = _work_folder(folder, signature)
    targets, dev_targets = ([target for _, target in each] for each in (pairs, dev_pairs))
    stages: tuple[tuple[str, Callable[[], None]], ...] = (
        (f"aligning the words of {len(pairs)} pairs", lambda: align_words(pairs, work)),
        ("extracting phrases", lambda: extract_phrases(work)),
        ("counting n-grams", lambda: count_n_grams(targets, work)),
        ("mixing n-grams", lambda: mix_n_grams(dev_targets, work)),
    )
    for words, stage in stages:
        done = work / f"done-{words.partition(' ')[0]}"
        if not done.exists():
            report(f"phrase-based: {words}")
            stage()
            atomic_write(done, b"")
    weights = _tune(dev, work, lowercase, report)
    atomic_write(work / _MODEL, dump_checksummed({**signature, "weights": weights}))
    work.replace(folder)


def translate_phrase_based(folder: Path, lines: Sequence[str], lowercase: bool) -> Iterator[str]:
    """Translate each line, in order; an empty line stays empty."""
    model = _read_model(folder)
    if model.get("lowercase") != lowercase:
        raise UncurseError(f"the phrase-based model in {folder} was not trained with lowercase = {lowercase}")
    return _translations(folder, lines, lowercase, model["weights"])


def _translations(folder: Path, lines: Sequence[str], lowercase: bool, weights: Sequence[float]) -> Iterator[str]:
    sources = [source_tokens(line, lowercase) for line in lines]
    decoder = _Decoder(folder, sources)
    decoder.set(weights)
    for source in sources:
        parts = [source[start : start + MAX_LINE] for start in range(0, len(source), MAX_LINE)]
        yield " ".join(text_of(decoder.best(part, 1)[0].target) for part in parts)


def _work_folder(folder: Path, signature: dict[str, object]) -> Path:
    """The folder of a training in progress; one that was begun with other data is removed."""
    work = folder.with_name(f".{folder.name}.part")
    if work.exists() and _described(work) != signature:
        (work / _MODEL).unlink(missing_ok=True)  # first: half a folder must not be taken for the whole one
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    atomic_write(work / _MODEL, dump_checksummed(signature))
    return work


def _described(folder: Path) -> object:
    try:
        return load_checksummed(read_json(folder / _MODEL))
    except (OSError, UncurseError):
        return None


def _signature(training: Sequence[ParallelFiles], dev: ParallelFiles, lowercase: bool) -> dict[str, object]:
    """What a model depends on; files count by their contents, not by their names."""
    return {
        "thot": version("sil-thot"),
        "lowercase": lowercase,
        "training": [_digests(corpus) for corpus in training],
        "dev": _digests(dev),
    }


def _digests(corpus: ParallelFiles) -> list[str]:
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (corpus.source, *corpus.targets)]


def _finished(folder: Path, signature: dict[str, object]) -> bool:
    if not (folder / _MODEL).exists():
        if folder.exists() and any(folder.iterdir()):
            raise UncurseError(f"{folder} is not empty and holds no phrase-based model")
        return False
    model = _read_model(folder)
    other = [name for name, value in signature.items() if model.get(name) != value]
    if other:
        raise UncurseError(
            f"{folder} holds a phrase-based model with other {' and '.join(other)}: remove it first"
        )
    return True


def _read_model(folder: Path) -> dict[str, Any]:
    try:
        model = load_checksummed(read_json(folder / _MODEL))
        weights = model.get("weights")
        if not isinstance(weights, list) or [type(each) for each in weights] != [float] * len(START):
            raise UncurseError("it has no weights")
    except UncurseError as error:
        raise UncurseError(f"{folder} holds no phrase-based model that can be used: {error}") from error
    return model


def _pairs(corpus: ParallelFiles, lowercase: bool) -> list[Pair]:
    """The source with each of its targets, without pairs that have an empty side or a very long one."""
    lines = read_lines(Path(corpus.source))
    sources = [source_tokens(line, lowercase) for line in lines]
    found: list[Pair] = []
    for path in corpus.targets:
        targets = [target_tokens(line, lowercase) for line in read_lines(Path(path))]
        if len(targets) != len(sources):
            raise UncurseError(f"{corpus.source} has {len(sources)} lines and {path} has {len(targets)}")
        found += zip(sources, targets, strict=True)
    return [pair for pair in found if all(0 < len(side) <= MAX_LINE for side in pair)]


@final
class _Decoder:
    """Thot's decoder for given sources; of the phrase table only what can match them is loaded."""

    def __init__(self, folder: Path, sources: Sequence[Tokens]) -> None:
        self._model = SmtModel(AlignmentModelType.FAST_ALIGN)
        with TemporaryDirectory() as scratch:
            for path in folder.resolve().glob("tm*"):
                if path.name != "tm.ttable":
                    (Path(scratch) / path.name).symlink_to(path)
            _filter_phrases(folder / "tm.ttable", Path(scratch) / "tm.ttable", sources)
            loaded = self._model.load_translation_model(str(Path(scratch) / "tm"))
        if not loaded or not self._model.load_language_model(str(folder / "lm")):
            raise UncurseError(f"{folder} does not hold a whole phrase-based model")
        self._model.a = LONGEST_PHRASE
        self._model.w = OPTIONS
        self._model.non_monotonicity = JUMP
        self._model.heuristic = 6  # the cheapest way to translate the rest, jumps included
        self._decoder = SmtDecoder(self._model)
        self._decoder.s = STACK
        self._decoder.is_breadth_first = True

    def set(self, weights: Sequence[float]) -> None:
        """Use these weights from now on."""
        self._model.weights = [*weights, 0.0]

    def best(self, source: Tokens, count: int) -> Sequence[TranslationData]:
        """The best translations that the search finds, with the features before weighting."""
        return self._decoder.translate_n(" ".join(source), count)


def _filter_phrases(table: Path, filtered: Path, sources: Sequence[Tokens]) -> None:
    wanted = {
        " ".join(source[start:end])
        for source in sources
        for start in range(len(source))
        for end in range(start + 1, min(start + LONGEST_PHRASE, len(source)) + 1)
    }
    with table.open(encoding="utf-8") as lines, filtered.open("w", encoding="utf-8") as file:
        file.writelines(line for line in lines if line.split(" ||| ", 2)[1] in wanted)


def _tune(dev: ParallelFiles, work: Path, lowercase: bool, report: Callable[[str], None]) -> list[float]:
    """Decode, choose the weights that pick the best of all translations found so far, and repeat."""
    lines = [source_tokens(line, lowercase) for line in read_lines(Path(dev.source))]
    usable = [index for index, line in enumerate(lines) if 0 < len(line) <= MAX_LINE]
    count = min(TUNING_LINES, len(usable))
    rows = [usable[place * len(usable) // count] for place in range(count)]
    texts = [read_lines(Path(path)) for path in dev.targets]
    decoder = _Decoder(work, [lines[row] for row in rows])
    pool: list[dict[str, DecodedCandidate]] = [{} for _ in rows]
    weights = np.array(START)
    best, tuned = -1.0, weights
    for turn in range(1, TUNING_ROUNDS + 1):
        decoder.set(weights.tolist())
        sums = np.zeros(10, dtype=np.int64)
        for row, known in zip(rows, pool, strict=True):
            found = decoder.best(lines[row], N_BEST)
            for each in found:
                text = text_of(each.target)
                if text not in known:
                    statistics = bleu_statistics([text], [[reference[row]] for reference in texts], lowercase)[0]
                    known[text] = DecodedCandidate(np.array(each.score_components[: len(START)]), statistics)
            sums += known[text_of(found[0].target)].statistics
        bleu = bleu_of(sums)
        report(f"phrase-based: tuning, round {turn} of {TUNING_ROUNDS}, BLEU {bleu:.1f} on {count} lines of dev")
        if bleu > best:
            best, tuned = bleu, weights
        weights = _climb(pool, tuned, np.random.default_rng(turn))
    return [round(weight, 6) for weight in tuned.tolist()]


def _climb(pool: Sequence[dict[str, DecodedCandidate]], start: Floats, random: np.random.Generator) -> Floats:
    """Random hill climbing: change one weight at a time, keep what raises BLEU, and start anew several times."""
    most = max(len(known) for known in pool)
    features = np.zeros((len(pool), most, len(START)))
    statistics = np.zeros((len(pool), most, 10), dtype=np.int64)
    missing = np.zeros((len(pool), most))
    for place, known in enumerate(pool):
        features[place, : len(known)] = [each.features for each in known.values()]
        statistics[place, : len(known)] = [each.statistics for each in known.values()]
        missing[place, len(known) :] = -np.inf

    def bleu(weights: Floats) -> float:
        winners = (features @ weights + missing).argmax(axis=1)
        return bleu_of(statistics[np.arange(len(pool)), winners].sum(axis=0))

    tops: list[tuple[float, Floats]] = []
    for attempt in range(CLIMBS):
        weights = start * np.exp(random.normal(0, 0.5 if attempt else 0, len(start)))
        top = bleu(weights)
        for _ in range(STEPS):
            tried = weights.copy()
            place = int(random.integers(len(start)))
            tried[place] += random.choice([0.01, 0.1, 0.5]) * random.normal()
            if tried[place] > 0 or place in MAY_BE_NEGATIVE:
                found = bleu(tried)
                if found > top:
                    weights, top = tried, found
        tops.append((top, weights / np.abs(weights).sum()))
    return max(tops, key=lambda each: each[0])[1]
