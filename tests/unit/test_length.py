"""Expected and maximum lengths."""

from __future__ import annotations

import numpy as np
import pytest

from uncurse.arrays import Floats, Ints
from uncurse.lengths.limits import LinearLimit, PredictedLimit, QuantileLimit, max_lengths_of, parse_max_length
from uncurse.lengths.policy import LengthPolicy
from uncurse.lengths.predictors import FixedRatio, LinearLength
from uncurse.training.fit_length import LengthSample, fit_length, report

NONE = np.empty((0, 0))


@pytest.mark.parametrize(
    ("text", "source_length", "tokens"),
    [
        ("100", 7, 100),
        ("2x", 7, 14),
        ("2x+10", 7, 24),
        ("1x+5", 7, 12),
        ("1.15x", 100, 115),
        ("2x", 0, 1),
    ],
)
def test_a_max_length_is_a_number_or_a_multiple(text: str, source_length: int, tokens: int) -> None:
    max_length = parse_max_length(text)
    assert isinstance(max_length, LinearLimit)
    assert max_length.tokens(source_length) == tokens


@pytest.mark.parametrize("text", ["", "x", "x+5", "x2", ".x", "-1", "2y", "q2", "0", "0x", "1e3", "2x+"])
def test_what_is_no_max_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="max_length"):
        parse_max_length(text)


@pytest.mark.parametrize("ratio", [2.0, 0.5])
def test_a_fixed_ratio_expects_target_over_source(ratio: float) -> None:
    assert FixedRatio(ratio).predict(np.array([4, 10]), NONE).tolist() == [4 * ratio, 10 * ratio]


def test_a_fixed_ratio_knows_no_quantiles() -> None:
    with pytest.raises(ValueError, match="knows no quantiles"):
        max_lengths_of(QuantileLimit(0.95), FixedRatio(1.5), np.array([4]), NONE)


def test_max_lengths_come_from_the_source_or_from_the_predictor() -> None:
    lengths = np.array([4, 10])
    assert max_lengths_of(parse_max_length("2x+1"), None, lengths, NONE) == [9, 21]
    assert max_lengths_of(parse_max_length("predicted"), FixedRatio(1.3), lengths, NONE) == [6, 13]
    assert parse_max_length("predicted") == PredictedLimit()
    with pytest.raises(ValueError, match="needs a length predictor"):
        max_lengths_of(parse_max_length("q0.95"), None, lengths, NONE)


def made_up(pairs: int, ratio: float, seed: int) -> LengthSample:
    """Two kinds of sentences, told apart by a feature: one is translated longer, and less predictably."""
    random = np.random.default_rng(seed)
    source = random.integers(60, 160, pairs)
    kind = random.integers(0, 2, pairs)
    noise = random.normal(0.0, 0.05 + 0.1 * kind, pairs)
    target = np.maximum(np.rint(ratio * source * (1.0 + 0.3 * kind + noise)) + 1, 1).astype(np.int64)
    features = np.stack([kind + random.normal(0, 0.1, pairs), random.normal(0, 1, pairs)], axis=1)
    return LengthSample(source, target, features)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [2.0, 0.5])
def test_a_fitted_predictor_beats_a_ratio_and_a_line(ratio: float) -> None:
    train, test = made_up(6000, ratio, 1), made_up(2000, ratio, 2)
    predictor = fit_length([train])
    found = report(predictor, [train], test)
    assert found.pairs == 2000
    assert found.mean_length == pytest.approx(test.target.mean())
    assert found.predictor.absolute < 0.8 * min(found.fixed_ratio.absolute, found.straight_line.absolute)
    assert abs(found.predictor.bias) < found.predictor.absolute
    for level, share in found.calibration.items():
        assert share == pytest.approx(level, abs=0.12 if level == 0.5 else 0.05)


@pytest.mark.slow
def test_a_text_counts_the_same_whatever_its_size() -> None:
    """A long text of another ratio must not outweigh a short one that nothing tells apart from it."""
    short, long = made_up(300, 1.0, 1), made_up(3000, 2.0, 2)
    test = made_up(500, 1.0, 3)
    expected = fit_length([short, long]).predict(test.source, test.features)
    assert (expected / test.target).mean() == pytest.approx(1.5, abs=0.08)


def test_own_translations_count_for_half_of_the_ratio_and_not_for_the_quantiles() -> None:
    references, own, test = made_up(600, 2.0, 1), made_up(200, 1.0, 2), made_up(500, 1.0, 3)
    alone, both = fit_length([references]), fit_length([references], [own])
    expected = both.predict(test.source, test.features)
    assert (expected / test.target).mean() == pytest.approx(1.5, abs=0.08)
    for level in both.levels:
        lengths = both.quantile(level, test.source, test.features)
        np.testing.assert_allclose(lengths, alone.quantile(level, test.source, test.features), rtol=0.03)


def test_a_held_out_tenth_shares_no_pair_with_the_rest() -> None:
    sample = LengthSample(np.arange(20), np.arange(20), np.zeros((20, 2)))
    train, test = sample.split()
    assert len(test.source) == 2
    assert sorted([*train.source, *test.source]) == list(range(20))


def test_bias_is_also_told_as_a_share_of_the_true_lengths() -> None:
    test = LengthSample(np.array([10, 10]), np.array([20, 20]), np.zeros((2, 1)))
    ratio = np.log(np.expm1(2.2))  # 22 tokens where 20 are true
    predictor = LinearLength((), np.zeros(2), np.ones(2), np.zeros((1, 2)), np.array([ratio]))
    error = report(predictor, [test], test).predictor
    assert (error.absolute, error.bias, error.relative_bias) == pytest.approx((2.0, 2.0, 0.1))


def test_quantiles_never_cross() -> None:
    random = np.random.default_rng(1)
    predictor = LinearLength(
        (0.5, 0.9, 0.99),
        np.zeros(4),
        np.ones(4),
        random.normal(size=(4, 4)),
        np.zeros(4),
    )
    lengths, features = random.integers(1, 50, 200), random.normal(size=(200, 3))
    low, middle, high = (predictor.quantile(level, lengths, features) for level in predictor.levels)
    assert (low <= middle).all()
    assert (middle <= high).all()
    with pytest.raises(
        ValueError, match=r"quantile 0\.7 is not known to this predictor: it knows q0\.5, q0\.9, q0\.99"
    ):
        predictor.quantile(0.7, lengths, features)


class Nearly:
    """A predictor whose lengths are its features."""

    levels = (0.8,)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return features[:, 0].copy()

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return self.predict(source_lengths, features) + 1.0


@pytest.mark.parametrize(("max_length", "more"), [("predicted", 0), ("q0.8", 1)])
def test_neighbours_cannot_move_a_max_length_over_a_whole_number(max_length: str, more: int) -> None:
    together = np.array([[7.9999], [8.0001], [8.5], [7.0001]])
    asked: list[int] = []

    def alone(index: int) -> Floats:
        asked.append(index)
        return np.array([[8.0], [7.9999], [np.nan], [7.0002]])[index : index + 1]

    lengths = np.array([4, 4, 4, 4])
    found = max_lengths_of(parse_max_length(max_length), Nearly(), lengths, together, alone)
    assert found == [8 + more, 8 + more, 9 + more, 8 + more]
    assert asked == [0, 1, 3]  # the third is far from a whole number


def test_neighbours_cannot_move_an_expected_length_over_a_whole_number() -> None:
    """The adaptive reward reads ⌊L⌋ and predicted-horizon ⌈L⌉."""
    together = np.array([[7.99999], [8.5]])
    policy = LengthPolicy(Nearly(), parse_max_length("20"))
    sentences = policy.sentences([(1,) * 4, (2,) * 4], [(), ()], together, lambda _: np.array([[8.00001]]))
    assert [sentence.expected_length for sentence in sentences] == [8.00001, 8.5]


def test_a_predictor_is_not_fitted_to_next_to_nothing() -> None:
    few = LengthSample(np.arange(1, 10), np.arange(1, 10), np.zeros((9, 2)))
    with pytest.raises(ValueError, match="9 pairs are too few for a length predictor: give 10 or more"):
        fit_length([few])
