"""What the phrase-based translator learns: alignments, phrases and a language model, in files of Thot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from thot.alignment import FastAlignModel, SymmetrizationHeuristic, SymmetrizedAligner
from thot.common import NGramLanguageModel
from thot.translation import PhraseExtractParameters, PhraseModel

from uncurse.arrays import Ints
from uncurse.study.baseline.phrase_tokens import Pair, Tokens

ALIGNMENT_ROUNDS: Final = 5
LONGEST_PHRASE: Final = 7  # source tokens
OPTIONS: Final = 10  # translations of a phrase that are tried
ORDER: Final = 3  # of the language model


def align_words(pairs: Sequence[Pair], work: Path) -> None:
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


def extract_phrases(work: Path) -> None:
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


def count_n_grams(targets: Sequence[Tokens], work: Path) -> None:
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


def mix_n_grams(targets: Sequence[Tokens], work: Path) -> None:
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
