"""The beam search curse and its cure, on a model small enough to read: `python examples/curse.py`.

The model is a table. After each word of a sentence it gives the right next word about half of the mass, spreads
the rest over other words, and leaves a little for stopping here: some where one might stop, very little at the
start. An output that stops early has few factors, so its probability is high, and wide beams find it.
"""

from __future__ import annotations

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from uncurse import Decoding, Result, Sentence, beam_search
from uncurse.lengths.limits import FALLBACK_MAX_LENGTH
from uncurse.testing import TableModel

RIGHT = ("the", "old", "cat", "sleeps", "all", "day", "on", "the", "red", "sofa", "in", "the", "kitchen")
OTHERS = (
    *("a", "an", "this", "that", "one", "some", "my", "his", "her", "its", "our", "their", "cats", "dog"),
    *("dogs", "sleep", "slept", "lies", "sat", "at", "by", "sofas", "couch", "room", "home", "house"),
)
WORDS = (*dict.fromkeys((*RIGHT, *OTHERS)), "</s>")
MIGHT_STOP_AFTER = (6, 10)  # "… all day", "… the red sofa"


def table_model() -> TableModel:
    """A place for each word of the right sentence, and one after the last."""
    places, eos = len(RIGHT) + 1, len(WORDS) - 1
    probabilities = np.zeros((places, len(WORDS)))
    for place in range(places):
        others = (0.97 if place == 0 else 0.7) ** np.arange(eos)  # from likely to unlikely
        probabilities[place, :eos] = 0.4 * np.roll(others, 3 * place) / others.sum()
        if place < len(RIGHT):
            probabilities[place, WORDS.index(RIGHT[place])] += 0.5
        probabilities[place, eos] = (
            0.9 if place == len(RIGHT) else 0.1 if place in MIGHT_STOP_AFTER else 0.005 if place == 0 else 0.001
        )
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    leads_to = np.repeat(np.minimum(np.arange(places) + 1, places - 1)[:, None], len(WORDS), axis=1)
    return TableModel(np.log(probabilities), leads_to)


def words(result: Result) -> str:
    """The best hypothesis as text."""
    return " ".join(WORDS[token] for token in result.hypotheses[0].tokens[:-1]) or "(nothing at all)"


def main() -> None:
    """Search with growing beams, by the raw score and by F1-Norm."""
    model = table_model()
    tokens = len(RIGHT)
    sentence = Sentence((0,) * tokens, FALLBACK_MAX_LENGTH.tokens(tokens), expected_length=tokens + 1.0)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("beam", "score", "best output", "n", "log p", "steps", "certificate"):
        table.add_column(column, justify="right" if column in ("beam", "n", "log p", "steps") else "left")
    for score in ("log-prob", "f1-norm"):
        for beam_size in (1, 5, 20, 50, 100):
            (result,) = beam_search(model, [sentence], Decoding(beam_size, score))
            best = result.hypotheses[0]
            table.add_row(
                str(beam_size),
                score,
                words(result),
                str(best.length),
                f"{best.log_prob:.2f}",
                str(result.steps),
                result.certificate.name,
                style="red" if best.length <= tokens else "green",
            )
        table.add_section()
    console = Console()
    console.print(table)
    console.print(
        "The raw log-probability prefers what has few factors: the wider the beam, the shorter the output."
        " F1-Norm compares the log-probability per token and penalises outputs that are shorter or longer than"
        " expected. Every search ran until its result was proved. BEAM: nothing it could still have found scores"
        " higher. GLOBAL: no sequence up to the maximum length does. `uncurse methods` lists them all.",
        highlight=False,
    )


if __name__ == "__main__":
    main()
