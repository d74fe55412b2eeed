"""Record batches looked through with filters."""

import gzip
import time
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shardmq.errors import InvalidRequest
from shardmq.message import keyed_records
from shardmq.message.properties import Properties
from shardmq.message.record import pack, pack_raw
from shardmq.message.record_batch import AMQP, KEYED, RecordBatch, message_id
from shardmq.protocol.amqp import properties as property_lists
from shardmq.search.bodies import BODY_BYTES
from shardmq.search.deaths import Death, last_death
from shardmq.search.filters import DeathFilters, SearchFilters
from shardmq.search.matching import SLOW_MAX, Matcher

Given = Sequence[tuple[Properties | None, bytes]]

ORIGIN = 0xABC


def native(messages: Given) -> RecordBatch:
    records = b"".join([pack(properties, body) for properties, body in messages])
    return RecordBatch("ex", "eu.paid", 1, 1000, ORIGIN, 50, len(messages), records)


def amqp(messages: Given) -> RecordBatch:
    records = b"".join([pack_raw(property_lists.encode(each or Properties()), body) for each, body in messages])
    return RecordBatch("ex", "eu.paid", 1 | AMQP, 1000, ORIGIN, 50, len(messages), records)


def keyed(messages: Given) -> RecordBatch:
    records = keyed_records.pack([(properties, body, "eu.paid") for properties, body in messages])
    return RecordBatch("ex", "", 1 | KEYED, 1000, ORIGIN, 50, len(messages), records)


def found(filters: SearchFilters, batch: RecordBatch) -> list[int]:
    matcher = Matcher(filters)
    if not matcher.may_be_in(batch):
        return []
    return [place for place, is_wanted in enumerate(matcher.look(batch)) if is_wanted]


def test_dead_letters_are_found_by_how_they_died_last() -> None:
    first = {"queue": "b", "reason": "expired", "count": 1, "time": datetime.fromtimestamp(10, UTC)}
    last = {"queue": "a", "reason": "rejected", "count": 2, "time": datetime.fromtimestamp(20, UTC)}
    batch = [
        (None, b""),
        (Properties(headers={"x-death": [last, first]}), b""),
        (Properties(headers={"x-death": []}), b""),
    ]
    for make in (native, amqp, keyed):

        def dead(make: Any = make, **wanted: Any) -> list[int]:
            return found(SearchFilters(death=DeathFilters(**wanted)), make(batch))

        assert dead() == dead(reason="rejected") == dead(queue="a", since_ms=20_000, until_ms=20_001) == [1]
        assert dead(reason="expired") == dead(queue="b") == dead(until_ms=20_000) == dead(since_ms=20_001) == []
        matcher = Matcher(SearchFilters(death=DeathFilters()))
        assert [*matcher.look_for_deaths(make(batch))] == [None, Death("a", "rejected", 20_000), None]


DOCUMENT = {"order": {"id": 7, "state": "größer"}}
AS_JSON = msgspec.json.encode(DOCUMENT)
AS_MSGPACK = msgspec.msgpack.encode(DOCUMENT)
MESSAGES: Given = [
    (None, b"plain text"),
    (Properties(headers={"tenant": "acme", "n": 5, "ok": True}), AS_JSON),
    (Properties(message_id="mine", content_type="application/msgpack"), AS_MSGPACK),
    (Properties(content_encoding="gzip", headers={"tenant": "other"}), gzip.compress(AS_JSON)),
    (Properties(content_encoding="deflate"), zlib.compress(AS_MSGPACK)),
    (None, b"\xff\x00 broken"),
]


@pytest.mark.parametrize("batch_of", [native, amqp, keyed])
@pytest.mark.parametrize(
    ("filters", "places"),
    [
        (SearchFilters(), [0, 1, 2, 3, 4, 5]),
        (SearchFilters(key="eu.paid"), [0, 1, 2, 3, 4, 5]),
        (SearchFilters(key="*.p?id"), [0, 1, 2, 3, 4, 5]),
        (SearchFilters(key="eu"), []),
        (SearchFilters(headers=(("tenant", None),)), [1, 3]),
        (SearchFilters(headers=(("tenant", "acme"),)), [1]),
        (SearchFilters(headers=(("n", "5"), ("ok", "true"))), [1]),
        (SearchFilters(headers=(("n", "6"),)), []),
        (SearchFilters(text="text"), [0]),
        (SearchFilters(text="größer"), [1, 2, 3, 4]),
        (SearchFilters(regex=r"pl\w+ text$"), [0]),
        (SearchFilters(regex=r'"id":\s*7'), [1, 2, 3, 4]),
        (SearchFilters(json=("$.order.id == 7",)), [1, 2, 3, 4]),
        (SearchFilters(json=("$.order.id == 7", "$.order.state == x")), []),
        (SearchFilters(json=("$.order",), headers=(("tenant", "other"),)), [3]),
        (SearchFilters(message_id="mine"), [2]),
        (SearchFilters(message_id=message_id(ORIGIN, 51)), [1]),
        (SearchFilters(message_id=message_id(ORIGIN, 52)), []),
        (SearchFilters(message_id=message_id(ORIGIN + 1, 51)), []),
        (SearchFilters(since_ms=1000, until_ms=1001), [0, 1, 2, 3, 4, 5]),
        (SearchFilters(since_ms=1001), []),
        (SearchFilters(until_ms=1000), []),
    ],
)
def test_filters_find_what_fits(batch_of: type, filters: SearchFilters, places: list[int]) -> None:
    assert found(filters, batch_of(MESSAGES)) == places


@pytest.mark.parametrize(
    "filters", [SearchFilters(regex="("), SearchFilters(json=("order",)), SearchFilters(regex="a{1")]
)
def test_filters_that_are_none_are_refused_or_are_text(filters: SearchFilters) -> None:
    if filters.regex == "a{1":
        assert found(filters, native([(None, b"a{1"), (None, b"a")])) == [0]
    else:
        with pytest.raises(InvalidRequest):
            Matcher(filters)


def test_an_expression_that_takes_too_long_ends_the_search() -> None:
    batch = native([(None, b"a" * 60 + b"b")] * 10)
    looking = Matcher(SearchFilters(regex="(a|aa)+$")).look(batch)
    began = time.process_time()
    assert [next(looking) for _ in range(SLOW_MAX - 1)] == [False] * (SLOW_MAX - 1)
    with pytest.raises(InvalidRequest, match="takes more than 5 ms"):
        next(looking)
    assert time.process_time() - began < 0.5


def test_only_a_part_of_a_large_body_is_looked_at_and_that_is_told() -> None:
    bomb = gzip.compress(b"\0" * (BODY_BYTES * 100))
    messages: Given = [(None, b"x" * BODY_BYTES + b"needle"), (None, bomb), (None, gzip.compress(b"needle")[:-9])]
    matcher = Matcher(SearchFilters(text="needle"))
    assert [*matcher.look(native(messages))] == [False, False, True]
    assert matcher.cut == 3


def test_keys_with_many_stars_end_in_time() -> None:
    batch = RecordBatch("ex", "a" * 250, 1, 1000, ORIGIN, 0, 1, pack(None, b""))
    began = time.process_time()
    assert found(SearchFilters(key="*a" * 100 + "b"), batch) == []
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    ("row", "death"),
    [
        ({"queue": "q" * 255, "reason": "r" * 100_000}, Death("q" * 255, "r" * 255, None)),
        ({"queue": "q" * 256, "reason": "rejected"}, None),
        ({"queue": "q", "reason": {"a": [1]}, "time": 2**63}, Death("q", "{'a': [1]}", None)),
        ({"queue": "q", "time": -1}, Death("q", "", None)),
        ({"queue": "q", "time": 253_402_300_799}, Death("q", "", 253_402_300_799_000)),
        ({"queue": "q", "time": datetime(1, 1, 1, tzinfo=UTC)}, Death("q", "", None)),
        ({"queue": "q", "time": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, Death("q", "", 253_402_300_799_000)),
    ],
)
def test_what_publishers_write_of_deaths_is_taken_as_far_as_it_can_be_true(
    row: dict[str, Any], death: Death | None
) -> None:
    assert last_death({"x-death": [row]}) == death
