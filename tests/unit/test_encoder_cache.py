"""The cache of an encoder's last batch."""

from __future__ import annotations

from collections.abc import Sequence

from uncurse.models.encoder_cache import CachedEncoder


def test_the_last_batch_is_encoded_once_and_a_single_source_does_not_displace_it() -> None:
    asked: list[Sequence[Sequence[int]]] = []

    def encode(sources: Sequence[Sequence[int]]) -> int:
        asked.append(sources)
        return len(asked)

    encoded, batch, other = CachedEncoder(encode), [(1, 2), (3,)], [(1, 2), (4,)]
    assert [encoded(batch), encoded([(1, 2)]), encoded([(1, 2)]), encoded(tuple(batch))] == [1, 2, 3, 1]
    assert [encoded(other), encoded(batch), encoded(batch)] == [4, 5, 5]
    assert asked == [batch, [(1, 2)], [(1, 2)], other, batch]
