"""A phrase-based translator to compare with, as the paper compares with Moses.

Thot (Ortiz-Martínez and Casacuberta 2014, the package `sil-thot`) aligns words, extracts phrases and decodes.
The weights of its log-linear model are tuned by minimum error rate training (Och 2003) on n-best lists, for BLEU
against every reference of the dev set.

A source character of Chinese is a token of its own, a run of other letters is one, and so is each other sign. On
the target side a token says with a mark where there was no space, so that text comes back as it was.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

import numpy as np
from thot.alignment import AlignmentModelType, FastAlignModel, SymmetrizationHeuristic, SymmetrizedAligner
from thot.common import NGramLanguageModel
from thot.translation import PhraseExtractParameters, PhraseModel, SmtDecoder, SmtModel, TranslationData

from uncurse.arrays import Floats, Ints
from uncurse.evaluation.bootstrap import bleu_of, bleu_statistics
from uncurse.files import write_whole
from uncurse.jsonfile import read_json, sealed_json, unsealed
from uncurse.text.lines import read_lines
from uncurse.training.recipe import Corpus

Tokens = tuple[str, ...]
Pair = tuple[Tokens, Tokens]


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """A translation of a line of dev."""

    features: Floats  # before weighting, [7]
    statistics: Ints  # what BLEU adds up, [10]


ALIGNMENT_ROUNDS: Final = 5
LONGEST_PHRASE: Final = 7  # source tokens
OPTIONS: Final = 10  # translations of a phrase that are tried
STACK: Final = 10  # hypotheses that have translated the same number of tokens
JUMP: Final = 0  # source tokens that may be left for later; 2 gain 0.7 BLEU on 100 lines, in four times the time
ORDER: Final = 3  # of the language model
LONGEST_LINE: Final = 100  # tokens; longer pairs are not learnt from, longer lines are translated in parts
TUNING_LINES: Final = 200
TUNING_ROUNDS: Final = 5
N_BEST: Final = 100
# Word penalty, language model, target phrase lengths, jumps, source phrase lengths, p(target|source) and back. An
# eighth, for the length of the sentence, stays at 0.
START: Final = (-0.4, 0.7, 0.1, 0.05, 0.7, 0.8, 0.2)
MAY_BE_NEGATIVE: Final = (0, 2, 4)
CLIMBS: Final = 5
STEPS: Final = 500

_WIDE: Final = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # scripts that write no spaces
_TOKEN: Final = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+|\S")
_JOINED: Final = "\uffed"  # stands where there was no space
_MODEL: Final = "model.json"


def train_phrase_based(
    training: Sequence[Corpus], dev: Corpus, folder: Path, lowercase: bool, report: Callable[[str], None]
) -> None:
    """Train and tune a translator, once; the folder is there when it is finished and not before.

    Each target of a corpus makes a pair with the source. Weights are tuned on at most `TUNING_LINES` lines, evenly
    spread over dev. A training that was broken off goes on after the last of its stages that was finished.
    """
    signature = _signature(training, dev, lowercase)
    if _finished(folder, signature):
        return
    pairs = [pair for corpus in training for pair in _pairs(corpus, lowercase)]
    dev_pairs = _pairs(dev, lowercase)
    if not pairs or not dev_pairs:
        raise ValueError("there is no pair of lines to learn from" if dev_pairs else f"{dev.source} has no lines")
    work = _workshop(folder, signature)
    targets, dev_targets = ([target for _, target in each] for each in (pairs, dev_pairs))
    stages: tuple[tuple[str, Callable[[], None]], ...] = (
        (f"aligning the words of {len(pairs)} pairs", lambda: _align(pairs, work)),
        ("extracting phrases", lambda: _extract(work)),
        ("counting n-grams", lambda: _count(targets, work)),
        ("mixing n-grams", lambda: _smooth(dev_targets, work)),
    )
    for words, stage in stages:
        done = work / f"done-{words.partition(' ')[0]}"
        if not done.exists():
            report(f"phrase-based: {words}")
            stage()
            write_whole(done, b"")
    weights = _tune(dev, work, lowercase, report)
    write_whole(work / _MODEL, sealed_json({**signature, "weights": weights}))
    work.replace(folder)


def translate_phrase_based(folder: Path, lines: Sequence[str], lowercase: bool) -> Iterator[str]:
    """Translate each line, in order; an empty line stays empty."""
    model = _read_model(folder)
    if model.get("lowercase") != lowercase:
        raise ValueError(f"the phrase-based model in {folder} was not trained with lowercase = {lowercase}")
    return _translations(folder, lines, lowercase, model["weights"])


def _translations(folder: Path, lines: Sequence[str], lowercase: bool, weights: Sequence[float]) -> Iterator[str]:
    sources = [_source_tokens(line, lowercase) for line in lines]
    decoder = _Decoder(folder, sources)
    decoder.set(weights)
    for source in sources:
        parts = [source[start : start + LONGEST_LINE] for start in range(0, len(source), LONGEST_LINE)]
        yield " ".join(text_of(decoder.best(part, 1)[0].target) for part in parts)


def _workshop(folder: Path, signature: dict[str, object]) -> Path:
    """The folder of a training under way; what was begun with other data is thrown away."""
    work = folder.with_name(f".{folder.name}.part")
    if work.exists() and _described(work) != signature:
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    write_whole(work / _MODEL, sealed_json(signature))
    return work


def _described(folder: Path) -> object:
    try:
        return unsealed(read_json(folder / _MODEL))
    except (OSError, ValueError):
        return None


def _signature(training: Sequence[Corpus], dev: Corpus, lowercase: bool) -> dict[str, object]:
    """What a model depends on; files count by what is in them, not by where they are."""
    return {
        "thot": version("sil-thot"),
        "lowercase": lowercase,
        "training": [_digests(corpus) for corpus in training],
        "dev": _digests(dev),
    }


def _digests(corpus: Corpus) -> list[str]:
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (corpus.source, *corpus.targets)]


def _finished(folder: Path, signature: dict[str, object]) -> bool:
    if not (folder / _MODEL).exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty and holds no phrase-based model")
        return False
    model = _read_model(folder)
    other = [name for name, value in signature.items() if model.get(name) != value]
    if other:
        raise ValueError(f"{folder} holds a phrase-based model with other {' and '.join(other)}: remove it first")
    return True


def _read_model(folder: Path) -> dict[str, Any]:
    try:
        model = unsealed(read_json(folder / _MODEL))
        weights = model.get("weights")
        if not isinstance(weights, list) or [type(each) for each in weights] != [float] * len(START):
            raise ValueError("it has no weights")
    except ValueError as error:
        raise ValueError(f"{folder} holds no phrase-based model that can be used: {error}") from error
    return model


def _pairs(corpus: Corpus, lowercase: bool) -> list[Pair]:
    """The source with each of its targets, without pairs that have an empty side or a very long one."""
    lines = read_lines(Path(corpus.source))
    sources = [_source_tokens(line, lowercase) for line in lines]
    found: list[Pair] = []
    for path in corpus.targets:
        targets = [target_tokens(line, lowercase) for line in read_lines(Path(path))]
        if len(targets) != len(sources):
            raise ValueError(f"{corpus.source} has {len(sources)} lines and {path} has {len(targets)}")
        found += zip(sources, targets, strict=True)
    return [pair for pair in found if all(0 < len(side) <= LONGEST_LINE for side in pair)]


def _source_tokens(line: str, lowercase: bool) -> Tokens:
    return tuple(_TOKEN.findall(line.lower() if lowercase else line))


def target_tokens(line: str, lowercase: bool) -> Tokens:
    """Tokens marked where they touch: “Go!” is “￭ Go ￭! ￭”."""
    line = (line.lower() if lowercase else line).replace(_JOINED, " ")
    tokens: list[str] = []
    end = -1
    for match in _TOKEN.finditer(line):
        token = match.group()
        if match.start() == end:
            # A sign carries the mark where it can, so that a word is the same token beside a sign and alone.
            if token.isalnum() and not tokens[-1].strip(_JOINED).isalnum():
                tokens[-1] += _JOINED
            else:
                token = _JOINED + token
        tokens.append(token)
        end = match.end()
    return tuple(tokens)


def text_of(tokens: Sequence[str]) -> str:
    """The text that target tokens spell."""
    return " ".join(tokens).replace(f" {_JOINED}", "").replace(f"{_JOINED} ", "").replace(_JOINED, "")


def _align(pairs: Sequence[Pair], work: Path) -> None:
    """Align words in both directions (Dyer 2013) and write what grow-diag-final-and makes of the two."""
    sides = [work / "sources", work / "targets"]
    for side, path in enumerate(sides):
        path.write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs), encoding="utf-8")
    source, target = sides
    aligner = SymmetrizedAligner(
        _aligner(source, target, work / "tm_invswm"), _aligner(target, source, work / "tm_swm")
    )
    aligner.heuristic = SymmetrizationHeuristic.GROW_DIAG_FINAL_AND
    with (work / "alignments").open("w", encoding="utf-8") as file:
        for start in range(0, len(pairs), 1000):
            batch = pairs[start : start + 1000]
            found = aligner.get_best_alignments([source for source, _ in batch], [target for _, target in batch])
            for pair, (_, matrix) in zip(batch, found, strict=True):
                file.write(_giza(*pair, matrix.to_numpy()))
    for path in sides:
        path.unlink()


def _aligner(sources: Path, targets: Path, prefix: Path) -> FastAlignModel:
    model = FastAlignModel()
    model.variational_bayes = True
    model.read_sentence_pairs(str(sources), str(targets))
    model.start_training()
    for _ in range(ALIGNMENT_ROUNDS):
        model.train()
    model.end_training()
    model.print(str(prefix))
    for suffix in (".src", ".trg", ".srctrgc"):  # the corpus once more, for training that goes on
        prefix.with_suffix(suffix).write_bytes(b"")
    return model


def _giza(source: Tokens, target: Tokens, matrix: Ints) -> str:
    """One pair in the format of GIZA++: to each target token the source tokens it stands for, [source, target]."""
    columns = [(matrix.sum(axis=1) == 0), *matrix.T]
    links = (" ".join(str(place + 1) for place in np.flatnonzero(column)) for column in columns)
    words = " ".join(f"{word} ({{ {link} }})" for word, link in zip(("NULL", *target), links, strict=True))
    return f"# 1\n{' '.join(source)}\n{words}\n"


def _extract(work: Path) -> None:
    """Write the phrases that are consistent with the alignments, and the distributions of lengths and jumps."""
    parameters = PhraseExtractParameters()
    parameters.max_target_phrase_length = LONGEST_PHRASE  # Thot calls the source of its inverse model target
    model = PhraseModel()
    model.build(str(work / "alignments"), parameters, pseudo_ml=False)
    model.print_phrase_table(str(work / "tm.ttable"), n=2 * OPTIONS)
    model.clear()
    (work / "alignments").unlink()
    for suffix, content in (
        (".lambda", "0.7 0.7"),
        (".srcsegmlentable", "Uniform"),
        (".trgcutstable", "0.999"),
        (".trgsegmlentable", "Geometric"),
    ):
        (work / "tm").with_suffix(suffix).write_text(content)


def _n_grams(words: Tokens) -> Iterator[Tokens]:
    words = ("<s>", *words, "</s>")
    return (words[start : start + n] for n in range(1, ORDER + 1) for start in range(len(words) - n + 1))


def _count(targets: Sequence[Tokens], work: Path) -> None:
    """Write how often each n-gram occurs; the first time that a word is seen it counts as unknown."""
    counts: Counter[Tokens] = Counter()
    known: set[str] = set()
    for target in targets:
        words = tuple(word if word in known else "<unk>" for word in target)
        known.update(target)
        counts.update(_n_grams(words))
    total = sum(len(target) + 2 for target in targets)
    with (work / "lm").open("w", encoding="utf-8") as file:
        for n_gram, count in sorted(counts.items(), key=lambda item: (len(item[0]), item[0])):
            before = counts[n_gram[:-1]] if len(n_gram) > 1 else total
            file.write(f"{' '.join(n_gram)} {before} {count}\n")


def _smooth(targets: Sequence[Tokens], work: Path) -> None:
    """Choose the weights that mix the orders of the language model: those that make dev likeliest.

    Each order has one weight for rare, less rare and frequent contexts.
    """
    wanted = {" ".join(n_gram) for target in targets for n_gram in _n_grams(target)}
    small = work / "dev"  # only what dev asks for: it is read again for each set of weights
    with (work / "lm").open(encoding="utf-8") as counts, small.open("w", encoding="utf-8") as file:
        for line in counts:
            n_gram = line.rsplit(" ", 2)[0]
            if n_gram in wanted or "<unk>" in n_gram or " " not in n_gram:
                file.write(line)
    sentences = [list(target) for target in targets]

    def log_prob(weights: Sequence[float]) -> float:
        _write_mixture(weights, small)
        model = NGramLanguageModel()
        model.load(str(small))
        found = sum(model.get_sentence_log_probability(sentence) for sentence in sentences)
        model.clear()
        return found

    weights = [0.5] * (3 * ORDER)
    best = log_prob(weights)
    for place in [*range(3 * ORDER)] * 2:
        for value in np.linspace(0.05, 0.95, 10):
            tried = [*weights[:place], float(value), *weights[place + 1 :]]
            found = log_prob(tried)
            if found > best:
                weights, best = tried, found
    for path in work.glob("dev*"):
        path.unlink()
    _write_mixture(weights, work / "lm")


def _write_mixture(weights: Sequence[float], prefix: Path) -> None:
    """Order, contexts, how often a context occurs before it is less rare, weights."""
    numbers = " ".join(f"{weight:.2f}" for weight in weights)
    prefix.with_suffix(".weights").write_text(f"{ORDER} 3 10 {numbers}\n")


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
            raise ValueError(f"{folder} does not hold a whole phrase-based model")
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


def _tune(dev: Corpus, work: Path, lowercase: bool, report: Callable[[str], None]) -> list[float]:
    """Decode, choose the weights that pick the best of all translations found so far, and again."""
    lines = [_source_tokens(line, lowercase) for line in read_lines(Path(dev.source))]
    usable = [index for index, line in enumerate(lines) if 0 < len(line) <= LONGEST_LINE]
    count = min(TUNING_LINES, len(usable))
    rows = [usable[place * len(usable) // count] for place in range(count)]
    texts = [read_lines(Path(path)) for path in dev.targets]
    decoder = _Decoder(work, [lines[row] for row in rows])
    pool: list[dict[str, Candidate]] = [{} for _ in rows]
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
                    known[text] = Candidate(np.array(each.score_components[: len(START)]), statistics)
            sums += known[text_of(found[0].target)].statistics
        bleu = bleu_of(sums)
        report(f"phrase-based: tuning, round {turn} of {TUNING_ROUNDS}, BLEU {bleu:.1f} on {count} lines of dev")
        if bleu > best:
            best, tuned = bleu, weights
        weights = _climb(pool, tuned, np.random.default_rng(turn))
    return [round(weight, 6) for weight in tuned.tolist()]


def _climb(pool: Sequence[dict[str, Candidate]], start: Floats, random: np.random.Generator) -> Floats:
    """Change one weight at a time as long as the translations that win get better, from several starts."""
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
