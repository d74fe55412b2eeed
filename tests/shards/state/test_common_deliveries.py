"""Shared records are sent to a gateway once, and every consumer gets what it would have had without that."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.link import encode, envelope_decoder
from shardmq.bus.messages.base import Ping
from shardmq.bus.messages.deliveries import CommonDelivery, CommonForgotten, DeliveredPart
from shardmq.bus.messages.shard import Delivered, ShardEvent, Wanted
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.shared_batch import SharedBatch, shared_batch
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.state.common_deliveries import KEPT_TICKS, CommonDeliveries
from tests.shards.heard import Heard

KEPT_BYTES = 8 << 20
decode = envelope_decoder(ShardEvent).decode


def body(number: int, count: int = 4, size: int = 10_000) -> SharedBatch:
    records = pack_many([b"%d" % message * size for message in range(count)])
    return shared_batch(RecordBatch("ex", "key", 1, 5, 9, 100 * number, count, records), number, 0, len(records))


def delivered(consumer: int, batch: SharedBatch, start: int = 0, stop: int | None = None) -> Delivered:
    piece = BatchSlicer().view(batch, start, batch.count if stop is None else stop)
    return Delivered(consumer, 7 + start, False, piece)


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def through(common: CommonDeliveries, heard: Heard, messages: list[Any]) -> list[Any]:
    """What a gateway has of the messages of one envelope."""
    return heard.whole(decode(encode((1, 1, common.shorten(list(messages)))))[2])


def plain(messages: list[Any]) -> list[Any]:
    return [msgspec.msgpack.encode(message) for message in messages]


def test_records_are_sent_once_to_many_consumers() -> None:
    batch = body(1)
    sent = CommonDeliveries(KEPT_BYTES).shorten([delivered(consumer, batch) for consumer in range(5)])
    assert kinds(sent) == [CommonDelivery, *[DeliveredPart] * 5]
    assert len(msgspec.msgpack.encode(sent)) < len(batch.records) + 500


def test_a_consumer_that_is_behind_gets_them_without_their_being_sent_again() -> None:
    common, heard, batch = CommonDeliveries(KEPT_BYTES), Heard(), body(1)
    assert through(common, heard, [delivered(1, batch), delivered(2, batch, 0, 2)])
    assert kinds(common.shorten([delivered(2, batch, 2, 4)])) == [DeliveredPart]
    assert plain(through(common, heard, [delivered(2, batch, 2, 4)])) == plain([delivered(2, batch, 2, 4)])


def test_a_small_part_goes_by_itself_where_nobody_has_the_whole() -> None:
    message = delivered(1, body(1), 0, 1)
    assert CommonDeliveries(KEPT_BYTES).shorten([message]) == [message]


def test_what_is_not_shared_stays_as_it_is_and_in_its_place() -> None:
    alone = Delivered(3, 1, False, RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([b"x" * 9000])))
    batch = body(1)
    sent = CommonDeliveries(KEPT_BYTES).shorten([Wanted(1, 2), delivered(1, batch), alone, delivered(2, batch), Ping()])
    assert kinds(sent) == [Wanted, CommonDelivery, DeliveredPart, Delivered, DeliveredPart, Ping]
    assert CommonDeliveries(KEPT_BYTES).shorten([alone, Ping()]) == [alone, Ping()]


def test_a_gateway_is_told_to_forget_what_was_used_longest_ago() -> None:
    common, size = CommonDeliveries(KEPT_BYTES), (1 << 20) - 100
    for number in range(KEPT_BYTES // size - 1):
        assert CommonForgotten not in kinds(common.shorten([delivered(1, body(number, 1, size))]))
    common.shorten([delivered(2, body(0, 1, size))])
    sent = common.shorten([delivered(1, body(50, 1, size)), delivered(1, body(51, 1, size))])
    assert sent[-1] == CommonForgotten([1])


def test_a_gateway_forgets_all_where_nothing_is_shared_for_a_while() -> None:
    common, posted = CommonDeliveries(KEPT_BYTES), []
    common.shorten([delivered(1, body(1)), delivered(1, body(2))])
    for _ in range(KEPT_TICKS + 5):
        common.tick(posted.append)
    assert posted == [CommonForgotten([1, 2])]
    assert kinds(common.shorten([delivered(2, body(1))])) == [CommonDelivery, DeliveredPart]


pieces = st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 3), st.integers(1, 4))


@given(st.lists(st.lists(pieces, min_size=1, max_size=12), max_size=8))
def test_a_gateway_has_what_was_posted(envelopes: list[list[tuple[int, int, int, int]]]) -> None:
    common, heard, bodies = CommonDeliveries(2_000), Heard(), [body(number, 4, 200) for number in range(6)]
    for envelope in envelopes:
        messages = [
            delivered(consumer, bodies[number], start, min(4, start + count))
            for consumer, number, start, count in envelope
        ]
        assert plain(through(common, heard, messages)) == plain(messages)
        common.tick(lambda message: heard.whole([message]))
