"""Large publishes are checked in slices, and found to be what they are when they are checked at once."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ContentTooLarge, InvalidRequest, RequestError
from shardmq.gateway.native.publish import SLICE_BYTES, SlicedCheck
from shardmq.limits import PROPERTIES_BYTES_MAX, RECORD_BATCH_PROPERTIES_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import check, pack, unpack


def checked(records: bytes, count: int) -> object:
    slices = SlicedCheck(records, count)
    while not slices.is_done:
        slices.step()
    return slices.records


def test_what_is_checked_in_slices_is_what_was_sent() -> None:
    records = b"".join(pack(Properties(headers={"n": n}) if n % 3 else None, bytes(n % 999)) for n in range(2000))
    assert len(records) > 3 * SLICE_BYTES
    assert checked(records, 2000) == unpack(records, 2000) == check(records, 2000)


@pytest.mark.parametrize("count", [0, 1, 2999, 3001, 65_537])
def test_another_number_of_records_than_was_said_is_refused(count: int) -> None:
    records = pack(Properties(app_id="a"), bytes(100)) * 3000
    with pytest.raises(InvalidRequest):
        checked(records, count)


def test_properties_are_bounded_by_message_and_by_publish() -> None:
    large = pack(Properties(headers={"x": bytes(PROPERTIES_BYTES_MAX)}), b"")
    with pytest.raises(ContentTooLarge, match="a message with"):
        checked(large * 2, 2)
    half = pack(Properties(headers={"x": bytes(PROPERTIES_BYTES_MAX // 2)}), b"")
    count = RECORD_BATCH_PROPERTIES_BYTES_MAX * 2 // PROPERTIES_BYTES_MAX + 1
    with pytest.raises(ContentTooLarge, match="publish fewer messages at a time"):
        checked(half * count, count)


def test_nothing_is_decoded_of_a_publish_with_too_many_properties() -> None:
    tables = b"\xdd" + (PROPERTIES_BYTES_MAX - 100).to_bytes(4, "big") + b"\x80" * (PROPERTIES_BYTES_MAX - 100)
    records = (b"\x92\x81\xa7headers\x81\xa1x" + tables + b"\xc4\x00") * 100
    tracemalloc.start()
    try:
        with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is"):
            checked(records, 100)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(records)
    finally:
        tracemalloc.stop()


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=12), st.integers(0, 300_000), st.integers(0, 255))
def test_damaged_bytes_are_refused_in_slices_where_they_are_at_once(sizes: list[int], place: int, byte: int) -> None:
    records = bytearray(b"".join(pack(Properties(headers={"k": [size, None]}), bytes(size)) for size in sizes))
    records[place % len(records)] = byte

    def outcome(how: object) -> object:
        try:
            return how(bytes(records), len(sizes))  # type: ignore[operator]
        except RequestError as error:
            return error.code

    at_once = outcome(check)
    assert outcome(checked) == (at_once if at_once is not None else unpack(bytes(records), len(sizes)))
