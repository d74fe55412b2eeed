"""Acks and nacks on their way."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.client.core.acknowledgements import Acknowledgements
from shardmq.limits import SETTLEMENT_BYTES_MAX
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicAck, BasicNack, BasicPutBack
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode
from shardmq.protocol.native.operations.fields import Operation


def told(settlements: Acknowledgements) -> list[Operation]:
    """What the broker is told."""
    frames, *_ = settlements.take(3)
    return [decode(kind, payload, FROM_CLIENT) for kind, payload in FrameReader().feed(b"".join(frames))]


@given(st.permutations(range(1, 60)))
def test_acks_of_neighbours_in_any_order_become_one_range(tags: list[int]) -> None:
    settlements = Acknowledgements()
    settlements.singles.extend(tags)
    assert settlements.count == 59
    assert told(settlements) == [BasicAck(3, [(1, 59)])]
    assert settlements.count == 0
    assert not told(settlements)


@given(st.lists(st.integers(1, 50)))
def test_every_ack_is_told_as_often_as_it_was_made(tags: list[int]) -> None:
    settlements = Acknowledgements()
    settlements.singles.extend(tags)
    ranges = [span for operation in told(settlements) for span in operation.tags]  # type: ignore[attr-defined]
    assert sorted(tag for first, last in ranges for tag in range(first, last + 1)) == sorted(tags)


def test_a_single_ack_has_the_brokers_number_and_is_dropped_where_it_is_of_an_earlier_life() -> None:
    settlements = Acknowledgements()
    for tag, told in ((8, BasicAck(3, [(2, 2)])), (6, None)):
        settlements.singles.append(tag)
        frames, acked, nacked, ranges = settlements.take(3, stale=6, offset=6)
        said = [decode(kind, payload, FROM_CLIENT) for kind, payload in FrameReader().feed(b"".join(frames))]
        assert said == ([] if told is None else [told])
        assert (acked, nacked, ranges, settlements.count) == (len(said), 0, [(tag, tag)] * len(said), 0)


def test_ranges_and_single_acks_join() -> None:
    settlements = Acknowledgements()
    settlements.ack(5, 9)
    settlements.singles.append(4)
    settlements.ack(10, 10)
    assert told(settlements) == [BasicAck(3, [(4, 10)])]


def test_nacks_say_whether_to_requeue() -> None:
    settlements = Acknowledgements()
    settlements.nack(1, 2, True)
    settlements.nack(5, 5, False)
    settlements.nack(3, 3, True)
    assert told(settlements) == [BasicNack(3, [(1, 3)], True), BasicNack(3, [(5, 5)], False)]


def test_what_was_not_seen_is_put_back_and_not_nacked() -> None:
    settlements = Acknowledgements()
    settlements.put_back(3, 3)
    settlements.nack(1, 1, True)
    settlements.put_back(4, 6)
    assert settlements.count == 5
    assert told(settlements) == [BasicPutBack(3, [(3, 6)]), BasicNack(3, [(1, 1)], True)]
    assert settlements.count == 0


def test_what_is_too_much_for_a_frame_takes_several() -> None:
    settlements = Acknowledgements()
    tags = range(2**62, 2**62 + 240_000, 2)
    settlements.singles.extend(tags)
    for tag in tags:
        settlements.nack(tag + 1_000_000, tag + 1_000_000, requeue=True)
    frames, *_ = settlements.take(3)
    assert max(map(len, frames)) <= SETTLEMENT_BYTES_MAX
    spans = [span for frame in frames for operation in _read(frame) for span in operation.tags]  # type: ignore[attr-defined]
    assert spans == [(tag, tag) for tag in tags] + [(tag + 1_000_000, tag + 1_000_000) for tag in tags]


def _read(frame: bytes) -> list[Operation]:
    return [decode(kind, payload, FROM_CLIENT) for kind, payload in FrameReader().feed(frame)]
