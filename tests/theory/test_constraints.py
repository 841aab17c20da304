"""A constrained search is a search among the allowed outputs, and what it claims is of those."""

from __future__ import annotations

import dataclasses
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.oracle import all_finished, allows, score_of, textbook_search
from support.strategies import SCORE_NAMES, decodings, model_of, rescorers, sentences, tables

from uncurse import (
    AllOf,
    Automaton,
    BannedPhrases,
    Certificate,
    Constraint,
    Decoding,
    NoRepeatNgram,
    Result,
    Search,
    Sentence,
    Trie,
    UncurseError,
    beam_search,
    exact_search,
    judge,
    load_traces,
    record,
    save_traces,
)
from uncurse.arrays import Ints
from uncurse.constraints.constraint import NextTokens
from uncurse.scoring.stopping import Exhaustive
from uncurse.search.step_model import Continuations
from uncurse.testing import RandomModel, TableModel
from uncurse.testing.models import RandomState

EOS = 3  # of vocabularies of four tokens
PATTERNS = ["(a|bc)*", "a{0,2}b?", "[^a]+", "(ab|ba){1,2}", "c*a?", ".?b.?", "(a+|b){2,3}", "(?:a?b){2,}c{0}"]
phrases = st.lists(st.integers(0, EOS - 1), max_size=3).map(tuple)
simple_constraints = st.one_of(
    st.lists(phrases, min_size=1, max_size=5).map(lambda outputs: Trie(outputs, EOS)),
    st.lists(phrases.filter(bool), min_size=1, max_size=3).map(BannedPhrases),
    st.integers(1, 3).map(NoRepeatNgram),
    st.sampled_from(PATTERNS).map(lambda pattern: Automaton(pattern, ("a", "b", "c", None), EOS)),
)
constraints = st.one_of(simple_constraints, st.tuples(simple_constraints, simple_constraints).map(AllOf))


def constrained(data: st.DataObject, max_length: int = 4) -> Sentence:
    return dataclasses.replace(data.draw(sentences(max_length)), constraint=data.draw(constraints))


def searched(model: TableModel, sentence: Sentence, decoding: Decoding) -> Result | str:
    """What a search returns, or why it fails."""
    try:
        return beam_search(model, [sentence], decoding)[0]
    except UncurseError as error:
        return str(error)


def spelled(constraint: Constraint, longest: int) -> set[tuple[int, ...]]:
    """Every output of a few tokens that one comes to by always taking an allowed token."""
    found: set[tuple[int, ...]] = set()
    level: list[tuple[int, ...]] = [()]
    for size in range(longest + 1):
        after = constraint.after(np.array(level, dtype=np.int64).reshape(len(level), size))
        listed = {(row, token) for row, token in zip(after.row.tolist(), after.token.tolist(), strict=True)}
        assert len(listed) == len(after.row), "a token is listed twice"
        allowed = [
            (*prefix, token)
            for row, prefix in enumerate(level)
            for token in range(EOS + 1)
            if ((row, token) in listed) != after.excluded
        ]
        found |= {output for output in allowed if output[-1] == EOS}
        level = [prefix for prefix in allowed if prefix[-1] != EOS]
    return found


def is_allowed(constraint: Constraint, output: tuple[int, ...], forced: int = 0) -> bool:
    """Whether every token of an output may follow those before it, from the first that is not forced."""
    return all(allows(constraint, output[:end], EOS) for end in range(forced + 1, len(output) + 1))


@given(constraints)
def test_the_allowed_next_tokens_spell_the_allowed_outputs_and_no_others(constraint: Constraint) -> None:
    outputs = {(*tokens, EOS) for size in range(5) for tokens in product(range(EOS), repeat=size)}
    assert spelled(constraint, 4) == {output for output in outputs if is_allowed(constraint, output)}


@given(st.one_of(simple_constraints), phrases)
def test_no_allowed_output_is_shorter_than_the_constraint_says(
    constraint: Constraint, prefix: tuple[int, ...]
) -> None:
    outputs = [(*prefix, *tokens, EOS) for size in range(4) for tokens in product(range(EOS), repeat=size)]
    allowed = [len(output) - len(prefix) for output in outputs if is_allowed(constraint, output, len(prefix))]
    fewest = constraint.shortest(prefix)
    if isinstance(constraint, Trie | Automaton):
        assert fewest == min(allowed, default=math.inf) or (not allowed and fewest > 4)
    else:
        assert fewest == (1 if is_allowed(constraint, prefix) else math.inf)


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_a_constrained_search_returns_what_the_definitions_say(score: str, data: st.DataObject) -> None:
    table, sentence, decoding = data.draw(tables(vocabulary=4)), constrained(data), data.draw(decodings(score))
    expected = textbook_search(table, sentence, decoding)
    found = searched(model_of(table), sentence, decoding)
    if isinstance(found, str):
        assert not expected.finished
    else:
        assert dataclasses.replace(found, signature="") == expected


@given(data=st.data())
def test_global_means_the_best_of_all_allowed_outputs(data: st.DataObject) -> None:
    table, sentence = data.draw(tables(vocabulary=4)), constrained(data)
    decoding = Decoding(data.draw(st.integers(1, 4)), data.draw(rescorers("length-norm")), Exhaustive())
    allowed = all_finished(table, sentence)
    assume(allowed)
    found = searched(model_of(table), sentence, decoding)
    if isinstance(found, str):
        assert "a wider beam may find one" in found
        return
    for path in allowed if found.certificate is Certificate.GLOBAL else ():
        assert score_of(decoding.rescorer, sentence, path, []) <= found.hypotheses[0].score
    exact = exact_search(model_of(table), sentence, decoding.rescorer, beam_size=64)
    assert exact.hypothesis is not None
    assert exact.hypothesis.score == max(score_of(decoding.rescorer, sentence, path, []) for path in allowed)


@given(data=st.data())
def test_a_constrained_trace_is_judged_as_the_live_search(data: st.DataObject) -> None:
    table, sentence, decoding = data.draw(tables(vocabulary=4)), constrained(data), data.draw(decodings())
    model = model_of(table)
    try:
        (trace,) = record(model, [sentence], decoding.beam_size, decoding.slots)
    except UncurseError:
        return
    assert judge(trace, [decoding], expected_length=sentence.expected_length) == beam_search(
        model, [sentence], decoding
    )
    assert sentence.constraint is not None
    assert f"|constraint:{sentence.constraint.signature}|" in trace.signature


class OnlyWholeVocabulary:
    """A random model that cannot be asked about candidates."""

    def __init__(self, model: RandomModel) -> None:
        self._model = model
        self.signature, self.attends = model.signature, model.attends
        self.vocab_size, self.bos, self.eos = model.vocab_size, model.bos, model.eos
        self.start = model.start

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        return self._model.step(state, tokens, k, attention)


@given(st.integers(0, 99), st.integers(1, 6), st.lists(constraints | st.none(), min_size=1, max_size=3))
def test_neither_the_model_s_way_to_answer_nor_the_batch_changes_a_result(
    seed: int, beam_size: int, chosen: list[Constraint | None]
) -> None:
    model = RandomModel(seed, EOS + 1, attends=True)
    batch = [Sentence((1, 2), 5 + index, constraint=each) for index, each in enumerate(chosen)]
    decoding = Decoding(beam_size, "gnmt", n_best=2)
    try:
        alone = [beam_search(model, [sentence], decoding)[0] for sentence in batch]
    except UncurseError:
        return
    assert beam_search(model, batch, decoding) == alone
    assert beam_search(OnlyWholeVocabulary(model), batch, decoding) == alone


def test_constraints_are_kept_with_traces(tmp_path: Path) -> None:
    model = RandomModel(1, EOS + 1)
    traces = [
        record(model, [Sentence((1,), 4, constraint=each)], beam_size=2)[0] for each in (None, NoRepeatNgram(2))
    ]
    with pytest.raises(UncurseError, match="another search"):
        save_traces(tmp_path / "both.npz", traces)
    for index, trace in enumerate(traces):
        save_traces(tmp_path / f"{index}.npz", [trace])
        (loaded,) = load_traces(tmp_path / f"{index}.npz")
        assert (loaded.constraint, loaded.signature) == (trace.constraint, trace.signature)


def test_equal_constraints_have_equal_signatures_and_others_have_not() -> None:
    one, same = Trie([(0, 1), (2,)], EOS), Trie([[2], [0, 1], [2]], EOS)
    assert one == same
    pieces = ("a", "b", "c", None)
    others = [
        Trie([(0,), (1, 2)], EOS),
        BannedPhrases([(0, 1), (2,)]),
        NoRepeatNgram(2),
        NoRepeatNgram(3),
        Automaton("a", pieces, EOS),
        Automaton("b", pieces, EOS),
        AllOf((one, NoRepeatNgram(2))),
    ]
    signatures = [each.signature for each in (one, same, *others)]
    assert len(set(signatures)) == len(others) + 1
    assert not any("|" in each for each in signatures)


@pytest.mark.parametrize(
    ("constraint", "prefix", "message"),
    [
        (Trie([(0, 1, 2, 0, 1)], EOS), (), "max_length is 4, .* outputs of 6 tokens and more"),
        (Trie([(0, 1)], EOS), (2,), "allows no output that begins with the target prefix"),
        (BannedPhrases([(0, 1)]), (2, 0, 1, 2), "allows no output that begins with the target prefix"),
        (NoRepeatNgram(2), (0, 1, 0, 1), "allows no output that begins with the target prefix"),
        (AllOf((Trie([(0, 1)], EOS), Trie([(0, 2)], EOS))), (), "nothing follow the first 1 tokens: no output is"),
        (BannedPhrases([(token,) for token in range(EOS + 1)]), (), "no output is allowed"),
        (Trie([(0, 1)], 2), (), "another eos than this model, which has 3"),
        (AllOf((NoRepeatNgram(1), Trie([(0, 1)], 2))), (), "another eos than this model, which has 3"),
        (Trie([(7,)], EOS), (), "a constraint has token 7, and this model has 0 … 3"),
    ],
)
def test_an_impossible_constraint_is_an_error_that_says_so(
    constraint: Constraint, prefix: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UncurseError, match=message):
        beam_search(RandomModel(0, EOS + 1), [Sentence((1,), 4, prefix, constraint=constraint)], Decoding(3))


def test_a_beam_too_narrow_for_its_constraint_says_so() -> None:
    log_probs = np.log(np.array([[0.9, 0.1, 0.0, 0.0]] * 2 + [[0.0, 0.0, 0.0, 1.0]] * 2) + 1e-300)
    model = TableModel(np.where(log_probs < -600, -np.inf, log_probs), np.array([[1, 2, 0, 0]] * 4))
    outputs = AllOf((Trie([(0, 2), (1,)], EOS), BannedPhrases([(0, 2)])))
    with pytest.raises(UncurseError, match="a wider beam may find one"):
        beam_search(model, [Sentence((0,), 4, constraint=outputs)], Decoding(1))
    (found,) = beam_search(model, [Sentence((0,), 4, constraint=outputs)], Decoding(2))
    assert found.hypotheses[0].tokens == (1, EOS)


def test_a_failed_constraint_leaves_the_others_to_be_withdrawn() -> None:
    search = Search(RandomModel(0, EOS + 1), Decoding(2, "length-norm"))
    impossible = BannedPhrases([(token,) for token in range(EOS + 1)])
    search.join([Sentence((1,), 4), Sentence((2,), 4, constraint=impossible)])
    with pytest.raises(UncurseError, match="sentence 1: the constraint ban-"):
        search.advance()
    assert search.cancel(0).certificate is Certificate.TRUNCATED


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Trie([], EOS), "at least one"),
        (lambda: Trie([(1, EOS)], EOS), "eos token 3"),
        (lambda: Trie(["ab"], EOS), "give token ids"),  # type: ignore[list-item]
        (lambda: Trie([(-1,)], EOS), "no token id"),
        (lambda: BannedPhrases([()]), "at least one token"),
        (lambda: NoRepeatNgram(0), "1 token or more"),
        (lambda: AllOf(()), "at least one"),
        (lambda: Automaton("(a", ("a", None), 1), "no regular expression"),
        (lambda: Automaton("a(?=b)", ("a", None), 1), "cannot be used: '"),
        (lambda: Automaton("^a", ("a", None), 1), "cannot be used"),
        (lambda: Automaton("b", ("a", None), 1), "matches nothing that these tokens can spell"),
        (lambda: Automaton("a{9999}", ("a", None), 1), "more than 5000 states"),
        (lambda: Automaton("a", ("a",), 1), "eos = 1 is not allowed"),
        (lambda: Sentence((1,), 4, constraint=3), "give a Constraint"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_constraint_is_refused(wrong: object, message: str) -> None:
    with pytest.raises(UncurseError, match=message):
        wrong()  # type: ignore[operator]


class EvenLength(Constraint):
    """A constraint of a user's own: an even number of tokens."""

    signature = "even-length"

    def after(self, prefixes: Ints) -> NextTokens:
        odd = prefixes.shape[1] % 2
        return NextTokens.of([(row, EOS) for row in range(len(prefixes)) if odd], excluded=True)


def test_a_constraint_of_one_s_own_takes_one_method() -> None:
    (found,) = beam_search(
        RandomModel(3, EOS + 1), [Sentence((1,), 9, constraint=EvenLength())], Decoding(4, n_best=4)
    )
    assert {each.length % 2 for each in found.hypotheses} == {1}  # </s> counts
