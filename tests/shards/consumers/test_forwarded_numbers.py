"""The numbers of what was forwarded, against a plain table of them."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.messages.columns import FORWARDED
from shardmq.ranges import RangeSet
from shardmq.shards.consumers.forwarded_numbers import PRUNE_SPANS, ForwardedNumbers

STEP = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3))
"""Numbers that the gateway leaves out, messages, numbers that the queue gives to others before them."""


@given(st.lists(STEP, min_size=1, max_size=20), st.integers(0, 90), st.integers(0, 12))
def test_each_is_known_by_the_number_that_it_was_forwarded_as(
    steps: list[tuple[int, int, int]], start: int, count: int
) -> None:
    numbers, held, table = ForwardedNumbers(), RangeSet(), dict[int, int]()
    first = number = 1
    for left_out, messages, others in steps:
        first += left_out
        number += others
        held.add(number, number + messages)
        numbers.add(first, messages, number, held)
        table.update(zip(range(first, first + messages), range(number, number + messages), strict=True))
        first += messages
        number += messages
    found = numbers.numbers(FORWARDED + start, FORWARDED + start + count)
    expected = [table[known] for known in range(start, start + count) if known in table]
    assert [each for begin, end in found for each in range(begin, end)] == expected


def test_those_of_settled_messages_are_forgotten_in_the_end() -> None:
    numbers, held = ForwardedNumbers(), RangeSet()
    held.add(0, 1)
    numbers.add(0, 1, 0, held)
    for place in range(1, 10 * PRUNE_SPANS):
        number = 3 * place
        held.add(number, number + 1)
        numbers.add(number, 1, number + 1, held)
        held.remove(number, number + 1)
    assert len(numbers._spans) <= PRUNE_SPANS
    assert numbers.numbers(FORWARDED, FORWARDED + 1) == [(0, 1)]
