"""Queues cut into slices, and looked through without a trace."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.reads import Read, Reserve, Slices
from shardmq.bus.messages.shard import Ack, Get, Got, Nack, PrepareDelete
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.handlers.reads import PASS_BYTES, READ_RANGES, slices_of
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.queues.plain_queue import PEEK_BYTES
from shardmq.topology.entities import Queue
from tests.shards.clocked import EVERYTHING, Clocked
from tests.shards.driver import run_of

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "urgent", 2, 0, arguments={"x-max-priority": 5}),
    Queue("/", "counted", 3, 0, arguments={"x-delivery-limit": 5}),
    Queue("/", "narrow", 4, 0, arguments={"x-max-length": 3}),
)

spans = (
    st.lists(st.integers(0, 10**6), max_size=40, unique=True)
    .map(sorted)
    .map(lambda length_limit: list(zip(length_limit[::2], length_limit[1::2], strict=False)))
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def of_priority(priority: int, start: int, count: int) -> RecordBatch:
    batch = run_of(start, count)
    batch.priority = priority
    return batch


def of_bytes(start: int, count: int, size: int) -> RecordBatch:
    return RecordBatch(
        "ex", "key", 1, 5, 9, start, count, pack_many([b"%08d" % number * (size // 8) for number in range(count)])
    )


@given(spans, st.integers(1, 300))
def test_slices_are_of_one_size_and_hold_every_number_once(ranges: list[tuple[int, int]], count: int) -> None:
    slices = slices_of(ranges, count)
    total = sum(end - start for start, end in ranges)
    assert len(slices) == min(count, total)
    assert sum(messages for _, _, messages in slices) == total
    behind = 0
    for first, end, messages in slices:
        assert behind <= first < end
        assert messages == sum(max(0, min(end, stop) - max(first, start)) for start, stop in ranges)
        assert messages in (total // count, total // count + 1)
        behind = end


@given(spans, spans, st.integers(1, 300))
def test_no_slice_goes_from_one_lane_to_another(
    low: list[tuple[int, int]], high: list[tuple[int, int]], count: int
) -> None:
    ranges = [*low, *[(start + (1 << SUBQUEUE_BITS), end + (1 << SUBQUEUE_BITS)) for start, end in high]]
    slices = slices_of(ranges, count)
    total = sum(end - start for start, end in ranges)
    assert min(count, total) <= len(slices) <= min(count, total) + 1
    assert sum(messages for _, _, messages in slices) == total
    for first, end, messages in slices:
        assert first >> SUBQUEUE_BITS == (end - 1) >> SUBQUEUE_BITS
        assert messages == sum(max(0, min(end, stop) - max(first, start)) for start, stop in ranges)


def test_what_comes_later_in_any_lane_is_in_no_slice(shard: Clocked) -> None:
    shard.take_in(of_priority(5, 0, 10), queue=2)
    shard.take_in(of_priority(1, 10, 10), queue=2)
    slices = shard.do(Slices, 2, 1)
    shard.take_in(of_priority(5, 100, 10), queue=2)
    shard.take_in(of_priority(1, 100, 10), queue=2)
    assert [len(shard.read(queue=2, first=first, end=end)) for first, end, _ in slices] == [10, 10]


def test_an_empty_queue_has_no_slices_and_nothing_to_read(shard: Clocked) -> None:
    assert shard.do(Slices, 1, 8) == []
    assert shard.do(Read, 1, 0, EVERYTHING, 10, "") == [[], None]


def test_slices_are_ranges_of_numbers(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10_000))
    assert shard.do(Slices, 1, 8) == [[place * 1250, (place + 1) * 1250, 1250] for place in range(8)]
    shard.take_in(run_of(10_000, 1))
    assert shard.bodies() == list(range(10_001))
    assert [len(shard.read(first=first, end=end)) for first, end, _ in shard.do(Slices, 1, 3)] == [3333, 3334, 3334]


def test_only_what_is_ready_is_in_slices_and_read(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    for _ in range(6):
        shard.get()
    shard.tell(Ack(9, [(1, 3)]), Nack(9, [(4, 5)], True))
    assert [(number, redelivered) for number, _, redelivered, _ in shard.read()] == [
        (4, True),
        (6, False),
        (7, False),
        (8, False),
        (9, False),
    ]
    assert shard.do(Slices, 1, 2) == [[4, 7, 2], [7, 10, 3]]
    assert shard.do(Slices, 1, 1) == [[4, 10, 5]]


def test_lanes_of_priority_are_read_in_the_order_of_delivery(shard: Clocked) -> None:
    shard.take_in(of_priority(0, 0, 4), of_priority(5, 10, 3), of_priority(2, 20, 2), of_priority(5, 13, 2), queue=2)
    assert shard.bodies(queue=2) == [10, 11, 12, 13, 14, 20, 21, 0, 1, 2, 3]
    slices = shard.do(Slices, 2, 4)
    assert [messages for _, _, messages in slices] == [2, 3, 2, 1, 3]  # none of two subqueues
    assert slices == sorted(slices)
    parts = [[int(body) for _, body, _, _ in shard.read(queue=2, first=a, end=b, count=1)] for a, b, _ in slices]
    assert parts == [[10, 11], [12, 13, 14], [20, 21], [0], [1, 2, 3]]


def test_nobody_sees_a_queue_over_its_bounds(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10), queue=4)
    assert shard.do(Slices, 4, 2) == [[7, 8, 1], [8, 10, 2]]
    assert shard.bodies(queue=4) == [7, 8, 9]


def test_a_page_says_where_to_read_on(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    deliveries, following = shard.do(Read, 1, 2, 9, 4, "")
    assert ([(first, batch[6]) for first, _, _, batch in deliveries], following) == ([(2, 4)], 6)
    deliveries, following = shard.do(Read, 1, 6, 9, 4, "")
    assert ([(first, batch[6]) for first, _, _, batch in deliveries], following) == ([(6, 3)], None)
    assert shard.do(Read, 1, 10, EVERYTHING, 4, "") == [[], None]
    assert shard.do(Read, 1, 5, 5, 4, "") == [[], None]


def test_a_page_ends_at_its_bytes_but_has_one_message_at_least(shard: Clocked) -> None:
    shard.take_in(*[of_bytes(place, 1, size) for place, size in enumerate([100, 5 << 20, 3 << 20, 3 << 20])])
    pages = []
    following: int | None = 0
    while following is not None:
        deliveries, following = shard.do(Read, 1, following, EVERYTHING, 100, "")
        pages.append(sum(batch[6] for _, _, _, batch in deliveries))
        assert sum(len(batch[7]) for _, _, _, batch in deliveries) <= PEEK_BYTES or pages[-1] == 1
    assert pages == [1, 1, 1, 1]


def test_parcels_do_not_mix_what_was_delivered_and_what_was_not(shard: Clocked) -> None:
    shard.take_in(run_of(0, 6))
    for _ in range(3):
        shard.get()
    shard.tell(Nack(9, [(0, 3)], True))
    deliveries, _ = shard.do(Read, 1, 0, EVERYTHING, 100, "")
    assert [(first, redelivered, batch[6]) for first, redelivered, _, batch in deliveries] == [
        (0, True, 3),
        (3, False, 3),
    ]


def test_deliveries_in_vain_are_told(shard: Clocked) -> None:
    shard.take_in(run_of(0, 4), queue=3)
    shard.get(queue=3)
    shard.tell(Nack(9, [(0, 1)], True))
    assert [(redelivered, delivery_count) for _, _, redelivered, delivery_count in shard.read(queue=3)] == [
        (True, 1),
        (False, 0),
        (False, 0),
        (False, 0),
    ]


def test_what_lies_scattered_is_shown_in_pages_of_so_many_ranges(shard: Clocked) -> None:
    count = 2 * READ_RANGES + 200
    shard.take_in(run_of(0, count))
    shard.reserve("all")
    shard.acknowledge("all", [(number, number + 1) for number in range(0, count, 2)])
    shard.release("all")
    deliveries, following = shard.do(Read, 1, 0, EVERYTHING, 65_536, "")
    assert len(deliveries) == READ_RANGES
    assert following == 2 * READ_RANGES + 1
    assert shard.bodies() == list(range(1, count, 2))


def test_reading_leaves_everything_as_it_is(shard: Clocked) -> None:
    for place in range(40):
        shard.take_in(of_bytes(place * 100, 100, 80))
    shard.get()
    shard.tell()
    buffer = shard.loop._buffer
    before = shard.table(), buffer.cache.bytes, _in_memory(shard)
    assert any(before[2])
    assert not all(before[2])
    assert len(shard.read(count=70)) == 3999
    assert before == (shard.table(), buffer.cache.bytes, _in_memory(shard))
    got = shard.get()
    assert got is not None
    assert (got.first, got.redelivered) == (1, False)


def _in_memory(shard: Clocked) -> list[bool]:
    subqueue = shard.loop._state.queues[1].queue.subqueues[0]
    return [segment.batches is not None for segment in subqueue.index.segments]


def test_readers_beyond_what_a_pass_shows_are_served_in_the_next_ones(shard: Clocked) -> None:
    shard.take_in(*[of_bytes(place, 1, PEEK_BYTES // 2) for place in range(4)])
    readers = 3 * PASS_BYTES // PEEK_BYTES
    shard.passes = 0
    shard.send(
        *[Call(request, Read(1, 0, EVERYTHING, 10, "")) for request in range(1, readers + 1)], Call(99, Get(9, 1, True))
    )
    got = shard.expect(Got)
    assert got.first == 0
    answers = [shard.expect(Answer).result for _ in range(readers)]
    assert shard.passes > 1
    assert [deliveries[0][0] for deliveries, _ in answers].count(0) < readers, "who waited sees the queue as it is then"
    assert shard.loop._reads.wait_seconds(0.0) is None


def in_segments(shard: Clocked, count: int) -> None:
    """Of 1 MB each, with a hundred messages; few of them are in memory."""
    for place in range(count):
        shard.take_in(of_bytes(place * 100, 100, 10_000))


def test_who_shows_little_of_much_that_is_read_leaves_turns_for_others_too(shard: Clocked) -> None:
    in_segments(shard, 10)
    shard.passes = 0
    shard.send(*[Call(request, Read(1, request * 10, EVERYTHING, 1, "")) for request in range(90)])
    answers = {answer.request: answer.result for answer in [shard.expect(Answer) for _ in range(90)]}
    assert [answers[request][0][0][0] for request in range(90)] == [request * 10 for request in range(90)]
    assert shard.passes >= 80 * 1_000_000 // PASS_BYTES


def test_a_page_of_what_lies_in_many_places_is_a_few_of_them(shard: Clocked) -> None:
    count = 40
    in_segments(shard, count)
    shard.reserve("all")
    shard.acknowledge("all", [(place * 100, place * 100 + 99) for place in range(count)])
    before = shard.loop._buffer.read_once_bytes
    deliveries, following = shard.do(Read, 1, 0, EVERYTHING, 1000, "all")
    assert 0 < shard.loop._buffer.read_once_bytes - before <= 2 * PEEK_BYTES + (2 << 20)
    assert following == deliveries[-1][0] + 100
    assert [number for number, _, _, _ in shard.read("all")] == [place * 100 + 99 for place in range(count)]


def test_who_waits_for_a_pass_and_hangs_up_is_forgotten(shard: Clocked) -> None:
    shard.take_in(*[of_bytes(place, 1, PEEK_BYTES // 2) for place in range(4)])
    shard.send(*[Call(request, Read(1, 0, EVERYTHING, 10, "")) for request in range(1, 100)])
    shard.restart()
    assert shard.do(Slices, 1, 1)[0][2] == 4


def test_a_queue_that_is_not_there_or_is_to_go_is_not_read(shard: Clocked) -> None:
    for kind, fields in ((Slices, (3,)), (Read, (0, 10, 3, "")), (Reserve, ("x", 0, 1000))):
        assert shard.refused(kind, 77, *fields).code == 404
    shard.do(PrepareDelete, 1, False, False)
    assert shard.refused(Slices, 1, 3).code == 404


def test_a_reservation_that_is_not_there_is_not_read(shard: Clocked) -> None:
    shard.take_in(run_of(0, 3))
    for refusal in (shard.refused(Slices, 1, 3, "night"), shard.refused(Read, 1, 0, 10, 3, "night")):
        assert refusal.code == 404
        assert "queue 'q' in vhost '/' has no reservation 'night': it was never made" in refusal.text
