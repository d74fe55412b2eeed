"""Runs made of what is published."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.client.core.batching import (
    BATCH_RECORDS,
    MANY_BYTES,
    BatchCollector,
    PublishBatch,
    batches_of,
    flags_of,
    record_of,
)
from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import PERSISTENT


def collected(messages: list[tuple[str, str, bytes, Properties | None]]) -> list[PublishBatch]:
    """The batches that messages become when nothing sends them in between."""
    collecting = BatchCollector()
    batches: list[PublishBatch] = []
    for exchange, key, body, properties in messages:
        filling = collecting.filling
        if (filling.exchange, filling.routing_key) != (exchange, key) or filling.properties is not properties:
            batches += collecting.turn_to(exchange, key, properties)
            filling = collecting.filling
        filling.check(body)
        filling.bodies.append(body)
        filling.size += len(body)
    return batches + collecting.take()


PROPERTIES = st.sampled_from([None, Properties(type="a"), Properties(delivery_mode=1), Properties(delivery_mode=2)])
MESSAGES = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("kl"), st.binary(max_size=40), PROPERTIES))


@given(MESSAGES)
def test_batches_hold_every_message_in_order_with_its_own_route_and_properties(
    messages: list[tuple[str, str, bytes, Properties | None]],
) -> None:
    seen = [
        (exchange, key, record.body, record.properties, flags)
        for exchange, key, flags, count, packed, *_ in collected(messages)
        for record in records.unpack(packed, count)
    ]
    assert seen == [(exchange, key, body, kind, flags_of(kind)) for exchange, key, body, kind in messages]


@given(MESSAGES)
def test_neighbours_alike_in_exchange_key_and_flags_share_a_run(
    messages: list[tuple[str, str, bytes, Properties | None]],
) -> None:
    routes = [(exchange, key, flags) for exchange, key, flags, *_ in collected(messages)]
    assert all(left != right for left, right in pairwise(routes))


def test_large_bodies_collected_by_many_threads_are_cut_into_several_batches() -> None:
    batches = collected([("", "k", b"x" * 200_000, None)] * 10)
    assert [batch[3] for batch in batches] == [1] * 10


def test_a_body_appended_to_a_batch_that_another_thread_turned_from_is_swept_up() -> None:
    collecting = BatchCollector()
    collecting.turn_to("", "a", None)
    late = collecting.filling
    late.bodies.append(b"1")
    assert [batch[3] for batch in collecting.turn_to("", "b", None)] == [1]
    late.bodies.append(b"2")
    assert collecting.sweep(late) == [("", "a", PERSISTENT, 1, records.pack(None, b"2"), 0, 0, 0, 0)]


def test_many_bodies_make_batches_of_some_hundred_records() -> None:
    batches = list(batches_of([b"x" * 100] * 1234, None))
    assert [count for count, _ in batches] == [BATCH_RECORDS, BATCH_RECORDS, 234]
    assert all(records.unpack(packed, count) for count, packed in batches)


def test_many_large_bodies_make_batches_of_bounded_bytes() -> None:
    batches = list(batches_of(iter([b"x" * 100_000] * 11), None))
    assert sum(count for count, _ in batches) == 11
    assert all(len(packed) <= MANY_BYTES + 1000 for _, packed in batches)


def test_no_bodies_make_no_run() -> None:
    assert not list(batches_of([], None))


@pytest.mark.parametrize("body", ["text", bytearray(b"x"), None, 3])
def test_a_body_that_is_not_bytes_is_a_type_error(body: object) -> None:
    with pytest.raises(TypeError, match="a message's body is bytes"):
        record_of(body, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a message's body is bytes"):
        list(batches_of([b"fine", body], None))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a message's body is bytes"):
        BatchCollector().filling.check(body)  # type: ignore[arg-type]


def test_one_body_where_many_are_wanted_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="iterable of bodies"):
        list(batches_of(b"one", None))  # type: ignore[arg-type]


def test_properties_of_another_type_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"properties are shardmq\.Properties"):
        BatchCollector().turn_to("", "k", {"type": "x"})  # type: ignore[arg-type]


def test_a_message_at_the_limit_passes_and_a_byte_more_does_not() -> None:
    properties = Properties(content_type="text/plain")
    for limit in (1000, MESSAGE_BYTES_MAX):
        collecting = BatchCollector(0, lambda limit=limit: limit)
        collecting.turn_to("", "k", properties)
        for take in (
            lambda body, limit=limit: record_of(body, properties, limit),
            lambda body, limit=limit: list(batches_of([body], properties, limit)),
            collecting.filling.check,
        ):
            take(bytes(limit))
            with pytest.raises(ContentTooLarge, match=rf"{limit + 1} bytes was not sent: .* {limit} at most"):
                take(bytes(limit + 1))


def test_properties_over_their_limit_are_refused_before_they_are_sent() -> None:
    properties = Properties(headers={"long": "x" * 140_000})
    collecting = BatchCollector()
    for take in (
        lambda: record_of(b"", properties),
        lambda: list(batches_of([b""], properties)),
        lambda: collecting.turn_to("", "k", properties),
    ):
        with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is 131072"):
            take()


def test_a_routing_key_over_255_bytes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="256 bytes"):
        BatchCollector().turn_to("", "ü" * 128, None)
