"""Messages to one queue whose properties alternate."""

import pytest

from shardmq.client.core.batching import MIXED_BYTES, PublishBatch
from shardmq.client.core.publishing.collector import UNMIXED_RECORDS, BatchCollector
from shardmq.client.core.publishing.mixed import HEADS_MAX, MixedBuilder
from shardmq.errors import ContentTooLarge
from shardmq.message.properties import Properties
from shardmq.message.record import Record, unpack

URGENT, IDLE = Properties(priority=9), Properties(priority=0)


def publish(collecting: BatchCollector, properties: Properties | None, body: bytes) -> None:
    head = collecting.turn_to("", "q", properties)
    collecting.filling.bodies.append(body if head is None else (head, body))


def mixed() -> BatchCollector:
    collecting = BatchCollector()
    for number, properties in enumerate([URGENT, IDLE]):
        publish(collecting, properties, b"%d" % number)
    assert type(collecting.filling) is MixedBuilder
    return collecting


def records_of(batches: list[PublishBatch]) -> list[Record]:
    return [record for batch in batches for record in unpack(batch[4], batch[3])]


def test_messages_with_alternating_properties_stay_in_order_in_one_batch() -> None:
    collecting = mixed()
    for properties in (URGENT, None, IDLE, URGENT):
        publish(collecting, properties, b"more")
    [batch] = collecting.take()
    assert [record.properties for record in records_of([batch])] == [URGENT, IDLE, URGENT, None, IDLE, URGENT]


def test_many_neighbours_with_the_same_properties_are_no_mixture() -> None:
    collecting = BatchCollector()
    for properties in (URGENT, IDLE):
        for _ in range(UNMIXED_RECORDS):
            publish(collecting, properties, b"")
    assert type(collecting.filling) is not MixedBuilder
    assert [batch[3] for batch in collecting.take()] == [2 * UNMIXED_RECORDS]


def test_headers_that_the_program_changes_once_they_are_sent_are_those_of_the_next_message() -> None:
    collecting = mixed()
    headers = {"step": 1}
    properties = Properties(headers=headers)
    publish(collecting, properties, b"")
    assert records_of(collecting.take())[-1].properties == Properties(headers={"step": 1})
    headers["step"] = 2
    publish(collecting, properties, b"")
    assert [record.properties for record in records_of(collecting.take())] == [Properties(headers={"step": 2})]


def test_more_properties_than_are_remembered_lose_nothing() -> None:
    collecting = mixed()
    for number in range(3 * HEADS_MAX):
        publish(collecting, Properties(message_id=str(number)), b"")
        assert len(collecting.filling.heads) <= HEADS_MAX
    assert [record.properties for record in records_of(collecting.take())][2:] == [
        Properties(message_id=str(number)) for number in range(3 * HEADS_MAX)
    ]


def test_large_messages_are_cut_into_several_batches() -> None:
    collecting = mixed()
    for number in range(6):
        publish(collecting, URGENT if number % 2 else IDLE, bytes(MIXED_BYTES * 2 // 3))
    batches = collecting.take()
    assert sum(batch[3] for batch in batches) == 8
    assert all(len(batch[4]) <= MIXED_BYTES for batch in batches)
    assert [record.properties for record in records_of(batches)] == [URGENT, IDLE] + 3 * [IDLE, URGENT]


def test_properties_over_their_limit_are_refused_and_change_nothing() -> None:
    collecting = mixed()
    with pytest.raises(ContentTooLarge):
        publish(collecting, Properties(headers={"long": "x" * 140_000}), b"")
    assert [record.body for record in records_of(collecting.take())] == [b"0", b"1"]


def test_a_body_appended_to_what_another_thread_has_mixed_since_is_swept_up() -> None:
    collecting = BatchCollector()
    publish(collecting, URGENT, b"0")
    late = collecting.filling
    publish(collecting, IDLE, b"1")
    late.bodies.append(b"2")
    assert [record.body for record in records_of(collecting.sweep(late))] == [b"0", b"1", b"2"]
