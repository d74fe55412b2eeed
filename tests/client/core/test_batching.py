"""Record batches made of what is published: sizes and checks."""

import pytest

from shardmq.client.core.batching import (
    BATCH_RECORDS,
    MANY_BYTES,
    batches_of,
    record_of,
)
from shardmq.errors import ContentTooLarge
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties


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


def test_one_body_where_many_are_wanted_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="iterable of bodies"):
        list(batches_of(b"one", None))  # type: ignore[arg-type]


def test_a_message_at_the_limit_passes_and_a_byte_more_does_not() -> None:
    properties = Properties(content_type="text/plain")
    for limit in (1000, MESSAGE_BYTES_MAX):
        for take in (
            lambda body, limit=limit: record_of(body, properties, limit),
            lambda body, limit=limit: list(batches_of([body], properties, limit)),
        ):
            take(bytes(limit))
            with pytest.raises(ContentTooLarge, match=rf"{limit + 1} bytes was not sent: .* {limit} at most"):
                take(bytes(limit + 1))


def test_properties_over_their_limit_are_refused_before_they_are_sent() -> None:
    properties = Properties(headers={"long": "x" * 140_000})
    for take in (
        lambda: record_of(b"", properties),
        lambda: list(batches_of([b""], properties)),
    ):
        with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is 131072"):
            take()
