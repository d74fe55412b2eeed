"""Counts by ranges agree with counts one by one."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardmq.shards.segments.delivery_counts import DeliveryCounts

edits = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 12)), max_size=30)


@given(edits, st.integers(0, 50), st.integers(1, 30))
def test_counts_agree_with_counts_one_by_one(edits: list[tuple[bool, int, int]], start: int, length: int) -> None:
    counts, expected = DeliveryCounts(), Counter[int]()
    for is_added, first, size in edits:
        if is_added:
            raised = counts.add(first, first + size)
            expected.update(range(first, first + size))
            assert [(n, c) for a, b, c in raised for n in range(a, b)] == [
                (n, expected[n]) for n in range(first, first + size)
            ]
        else:
            counts.remove(first, first + size)
            for number in range(first, first + size):
                del expected[number]
    numbers = range(start, start + length)
    pieces = counts.pieces(start, start + length)
    assert [(n, c) for a, b, c in pieces for n in range(a, b)] == [(n, expected[n]) for n in numbers]
    kept = list(counts)
    assert all(left[1] <= right[0] and left[1:] != (right[0], right[2]) for left, right in pairwise(kept))
    assert all(count > 0 for _, _, count in kept)
    assert list(DeliveryCounts(kept)) == kept
