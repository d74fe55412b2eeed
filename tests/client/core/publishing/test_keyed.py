"""Messages to one exchange with different routing keys."""

import pytest

from shardmq.client.api.results import ServerProperties
from shardmq.client.core.batching import MIXED_BYTES, PublishBatch
from shardmq.client.core.publishing.collector import UNMIXED_RECORDS, BatchCollector
from shardmq.client.core.publishing.keyed import KeyedBuilder
from shardmq.errors import InvalidRequest
from shardmq.message import keyed_records
from shardmq.message.properties import Properties
from shardmq.message.record import unpack
from shardmq.message.record_batch import KEYED

Seen = tuple[str, bytes, int | None]


def collector() -> BatchCollector:
    return BatchCollector(server=lambda: ServerProperties(record_keys=True))


def publish(collecting: BatchCollector, key: str, body: bytes, properties: Properties | None = None) -> None:
    filling, head = collecting.filling, None
    if filling.plain is not properties or filling.routing_key != key or filling.exchange != "topic":
        head = collecting.turn_to("topic", key, properties)
        filling = collecting.filling
    filling.bodies.append(body if head is None else (head, body, key) if filling.is_keyed else (head, body))


def seen(batches: list[PublishBatch]) -> list[Seen]:
    found: list[Seen] = []
    for _, key, flags, count, packed, *_ in batches:
        if flags & KEYED:
            assert key == ""
            keyed = keyed_records.unpack(packed, count)
            found += [(each.key, each.body, each.properties.priority if each.properties else None) for each in keyed]
        else:
            plain = unpack(packed, count)
            found += [(key, each.body, each.properties.priority if each.properties else None) for each in plain]
    return found


def test_neighbours_with_different_keys_share_a_batch_in_order() -> None:
    collecting = collector()
    urgent = Properties(priority=9)
    sent: list[Seen] = []
    for number in range(40):
        key, properties = f"k{number % 7}", urgent if number % 3 == 0 else None
        publish(collecting, key, b"%d" % number, properties)
        sent.append((key, b"%d" % number, 9 if properties else None))
    batches = collecting.take()
    assert len(batches) == 1
    assert seen(batches) == sent


def test_what_waited_with_one_key_keeps_it() -> None:
    collecting = collector()
    for number in range(UNMIXED_RECORDS - 1):
        publish(collecting, "first", b"%d" % number, Properties(priority=number))
    publish(collecting, "second", b"last")
    batches = collecting.take()
    assert [batch[3] for batch in batches] == [UNMIXED_RECORDS]
    assert [key for key, *_ in seen(batches)] == ["first"] * (UNMIXED_RECORDS - 1) + ["second"]


def test_long_runs_of_one_key_are_batches_of_that_key() -> None:
    collecting = collector()
    for key in ("a", "b"):
        for _ in range(UNMIXED_RECORDS):
            publish(collecting, key, b"")
    assert [(batch[1], batch[2] & KEYED) for batch in collecting.take()] == [("a", 0), ("b", 0)]


def test_a_publisher_whose_keys_no_longer_differ_is_as_quick_as_others() -> None:
    collecting = collector()
    for key in ("a", "b"):
        publish(collecting, key, b"")
    assert [batch[2] & KEYED for batch in collecting.take()] == [KEYED]
    for _ in range(UNMIXED_RECORDS):
        publish(collecting, "b", b"")
    assert [(batch[1], batch[2] & KEYED) for batch in collecting.take()] == [("b", 0)]
    publish(collecting, "b", b"")
    assert type(collecting.filling) is not KeyedBuilder


def test_a_broker_that_takes_one_key_at_a_time_gets_one_key_at_a_time() -> None:
    collecting = BatchCollector()
    for key in ("a", "b", "a"):
        publish(collecting, key, b"")
    assert [(batch[1], batch[2] & KEYED) for batch in collecting.take()] == [("a", 0), ("b", 0), ("a", 0)]


def test_other_exchanges_come_behind() -> None:
    collecting = collector()
    for key in ("a", "b"):
        publish(collecting, key, b"")
    collecting.turn_to("", "queue", None)
    collecting.filling.bodies.append(b"x")
    publish(collecting, "", b"")
    assert [(batch[0], batch[1], batch[3]) for batch in collecting.take()] == [
        ("topic", "", 2),
        ("", "queue", 1),
        ("topic", "", 1),
    ]


def test_large_messages_are_cut_into_batches() -> None:
    collecting = collector()
    for number in range(5):
        publish(collecting, f"k{number}", bytes(MIXED_BYTES // 2))
    batches = collecting.take()
    assert len(batches) >= 3
    assert [key for key, *_ in seen(batches)] == [f"k{number}" for number in range(5)]


@pytest.mark.parametrize("key", ["k" * 256, "é" * 128])
def test_a_key_that_cannot_be_is_refused_where_it_is_published(key: str) -> None:
    collecting = collector()
    for good in ("a", "b"):
        publish(collecting, good, b"")
    with pytest.raises(InvalidRequest):
        publish(collecting, key, b"")
    assert len(seen(collecting.take())) == 2
