"""What hypothesis draws: small models whose numbers collide on purpose, sentences, scores and searches."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from support.oracle import Table
from uncurse import RULES, SCORES, Decoding, Rescorer, Sentence, Slots, StoppingRule
from uncurse.scoring.registry import Entry, parameters_of
from uncurse.testing import TableModel

POSITIONS = 4

SCORE_NAMES = list(SCORES)
RULE_NAMES = list(RULES)

log_probs = st.one_of(
    st.integers(0, 12).map(lambda quarters: -quarters / 4.0),
    st.floats(-3.0, 0.0, allow_nan=False),
    st.just(-math.inf),
)


@st.composite
def tables(draw: st.DrawFn, vocabulary: int | None = None) -> Table:
    """A table with room for a few words; often log-probabilities are equal, sometimes a token is impossible."""
    size = draw(st.integers(2, 4)) if vocabulary is None else vocabulary
    places = draw(st.integers(1, 4))
    rows = st.lists(log_probs, min_size=size, max_size=size)
    leads = st.lists(st.integers(0, places - 1), min_size=size, max_size=size)
    eighths = st.lists(st.integers(0, 8).map(lambda eighth: eighth / 8.0), min_size=POSITIONS, max_size=POSITIONS)
    return Table(
        draw(st.lists(rows, min_size=places, max_size=places)),
        draw(st.lists(leads, min_size=places, max_size=places)),
        draw(st.lists(eighths, min_size=places, max_size=places)),
    )


def model_of(table: Table) -> TableModel:
    return TableModel(np.array(table.log_probs), np.array(table.leads_to), np.array(table.attention))


@st.composite
def sentences(draw: st.DrawFn, max_length: int = 4) -> Sentence:
    max_length = draw(st.integers(1, max_length))
    return Sentence(
        tuple(draw(st.lists(st.integers(0, 5), max_size=POSITIONS))),
        max_length,
        tuple(draw(st.sampled_from([(), (), (0,), (0, 0)]))),
        draw(st.one_of(st.integers(1, 12).map(lambda halves: halves / 2.0), st.floats(0.1, 7.0))),
        draw(st.integers(0, 2).map(lambda fewest: min(fewest, max_length))),
    )


@st.composite
def methods_of(draw: st.DrawFn, entry: Entry[Rescorer] | Entry[StoppingRule]) -> Rescorer | StoppingRule:
    """A registered method with parameters drawn from the ranges that it declares."""
    values: dict[str, float | None] = {}
    for field, parameter in parameters_of(entry.method):
        low, high = max(parameter.low, -2.0), min(parameter.high, 2.0)
        numbers = st.floats(low, high, exclude_min=parameter.low_open and low == parameter.low)
        choices = [numbers, st.sampled_from([0.25, 0.5, 1.0, 1.5])]
        values[field.name] = draw(st.one_of([st.none(), *choices] if field.default is None else choices))
    return entry.method(**values)


@st.composite
def rescorers(draw: st.DrawFn, name: str | None = None) -> Rescorer:
    chosen = draw(st.sampled_from(SCORE_NAMES)) if name is None else name
    method = draw(methods_of(SCORES[chosen]))
    assert isinstance(method, Rescorer)
    return method


@st.composite
def rules(draw: st.DrawFn, name: str | None = None) -> StoppingRule:
    chosen = draw(st.sampled_from(RULE_NAMES)) if name is None else name
    method = draw(methods_of(RULES[chosen]))
    assert isinstance(method, StoppingRule)
    return method


@st.composite
def decodings(draw: st.DrawFn, score: str | None = None, stop: str | None = None) -> Decoding:
    return Decoding(
        draw(st.integers(1, 4)),
        draw(rescorers(score)),
        draw(rules(stop)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from(Slots)),
    )
