"""RangeSet against a set of integers."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from shardmq.ranges import RangeSet

steps = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 40), st.integers(0, 40)))


def members(ranges: RangeSet) -> set[int]:
    return {number for start, end in ranges for number in range(start, end)}


@given(steps)
def test_adding_and_removing_agree_with_a_set(steps: list[tuple[str, int, int]]) -> None:
    ranges, model = RangeSet(), set[int]()
    for verb, start, end in steps:
        span = set(range(start, end))
        if verb == "add":
            assert ranges.add(start, end) == len(span - model)
            model |= span
        else:
            assert ranges.remove(start, end) == len(span & model)
            model -= span
        assert members(ranges) == model
        assert ranges.count == len(model)
        assert all(number in ranges for number in model)


@given(steps, st.integers(0, 40), st.integers(0, 40))
def test_taking_is_looking_and_removing(steps: list[tuple[str, int, int]], start: int, end: int) -> None:
    taken, looked = RangeSet(), RangeSet()
    for verb, first, last in steps:
        getattr(taken, verb)(first, last)
        getattr(looked, verb)(first, last)
    parts = looked.within(start, end)
    looked.remove(start, end)
    assert taken.take(start, end) == parts
    assert taken == looked
    assert taken.count == looked.count


@given(steps)
def test_ranges_are_sorted_and_never_touch(steps: list[tuple[str, int, int]]) -> None:
    ranges = RangeSet()
    for verb, start, end in steps:
        getattr(ranges, verb)(start, end)
    pairs = list(ranges)
    assert all(start < end for start, end in pairs)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(pairs))


@given(steps, st.integers(0, 40), st.integers(0, 40))
def test_within_and_gaps_part_a_range_in_two(steps: list[tuple[str, int, int]], start: int, end: int) -> None:
    ranges = RangeSet()
    for verb, first, last in steps:
        getattr(ranges, verb)(first, last)
    inside = [number for first, last in ranges.within(start, end) for number in range(first, last)]
    outside = [number for first, last in ranges.gaps(start, end) for number in range(first, last)]
    assert inside == sorted(members(ranges) & set(range(start, end)))
    assert sorted(inside + outside) == list(range(start, end))
    assert ranges.between() == (ranges.gaps(ranges.first()[0], ranges.end) if ranges else [])


spans = (
    st.lists(st.integers(0, 400), max_size=80, unique=True)
    .map(sorted)
    .map(lambda bounds: list(zip(bounds[::2], bounds[1::2], strict=False)))
)
"""Rising ranges, few or many."""


@given(spans, spans)
def test_many_ranges_at_once_go_in_and_out_as_one_by_one(
    there: list[tuple[int, int]], some: list[tuple[int, int]]
) -> None:
    numbers = {number for start, end in some for number in range(start, end)}
    ranges = RangeSet(there)
    before = members(ranges)
    assert ranges.unite(some) == len(numbers - before)
    assert members(ranges) == before | numbers
    assert ranges == RangeSet((number, number + 1) for number in sorted(before | numbers))
    assert ranges.count == len(before | numbers)
    ranges = RangeSet(there)
    parts = ranges.extract(some)
    assert [number for start, end in parts for number in range(start, end)] == sorted(before & numbers)
    assert all(start < end for start, end in parts)
    assert members(ranges) == before - numbers
    assert ranges.count == len(before - numbers)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))


@given(spans, st.integers(0, 400), st.integers(0, 400))
def test_walking_finds_what_is_within(there: list[tuple[int, int]], start: int, end: int) -> None:
    ranges = RangeSet(there)
    assert list(ranges.walk(start, end)) == ranges.within(start, end)
