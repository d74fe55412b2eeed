"""Property lists, decoded and encoded; and against pamqp, another codec."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from shardmq.errors import ReplyCode
from shardmq.message.properties import Properties
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.properties import LIST_BYTES_MAX, NO_PROPERTIES, decode, encode
from shardmq.protocol.amqp.property_edits import edited
from shardmq.protocol.amqp.property_facts import Facts, read_facts
from shardmq.protocol.amqp.table_check import entries_of
from tests.protocol.amqp.property_lists import EVERY_TYPE, lists, with_headers


@given(lists)
def test_what_is_written_is_read_again(known: Properties) -> None:
    assert decode(encode(known)) == known


def test_no_properties_are_two_bytes() -> None:
    assert encode(Properties()) == NO_PROPERTIES
    assert decode(NO_PROPERTIES) == Properties()


def test_every_property_has_its_place() -> None:
    raw = encode(Properties(content_type="a", headers={}, delivery_mode=2, priority=3, timestamp=4, app_id="b"))
    assert raw == b"\xb8\x48\x01a\x00\x00\x00\x00\x02\x03\x00\x00\x00\x00\x00\x00\x00\x04\x01b"


def test_the_cluster_id_is_read_past() -> None:
    assert decode(b"\x80\x04\x01a\x02id") == Properties(content_type="a")


def test_flags_without_a_meaning_have_none() -> None:
    assert decode(b"\x80\x03\x01a") == Properties(content_type="a")
    assert read_facts(b"\x10\x03\x02") == Facts(is_persistent=True)


def test_strings_that_are_not_utf8_are_read_escaped() -> None:
    assert decode(b"\x80\x00\x02\xffa") == Properties(content_type="\\xffa")


@pytest.mark.parametrize(
    ("known", "read"),
    [
        (Properties(priority=1000, delivery_mode=-5), Properties(priority=255, delivery_mode=0)),
        (Properties(timestamp=-1), Properties(timestamp=0)),
        (Properties(timestamp=2**70), Properties(timestamp=2**64 - 1)),
        (Properties(type="x" * 256, app_id="x" * 255), Properties(app_id="x" * 255)),
        (Properties(message_id="é" * 200), Properties(headers={"x-message-id": "é" * 200})),
        (
            Properties(correlation_id="x" * 300, headers={"a": 1}),
            Properties(headers={"x-correlation-id": "x" * 300, "a": 1}),
        ),
    ],
)
def test_what_does_not_fit_becomes_the_nearest_that_does(known: Properties, read: Properties) -> None:
    assert decode(encode(known)) == read


def test_headers_that_do_not_fit_into_a_frame_are_left_out_from_the_end() -> None:
    headers: dict[str, Any] = {str(number): {"n": [[], []]} for number in range(20_000)}
    raw = encode(Properties(headers=headers, message_id="m", app_id="a" * 200))
    assert LIST_BYTES_MAX - 30 < len(raw) <= LIST_BYTES_MAX
    read = decode(raw)
    assert read.headers is not None
    assert list(read.headers) == list(headers)[: len(read.headers)]
    assert (read.message_id, read.app_id) == ("m", "a" * 200)


def test_counts_of_deaths_are_longs_as_rabbitmq_writes_them() -> None:
    deaths = [{"queue": "q", "count": 3}, {"count": "none"}, "no death", {"count": 2**70}]
    raw = encode(Properties(headers={"x-death": deaths, "count": 3}))
    [death, count] = [raw[start:end] for _, _, start, end in entries_of(raw, 2)]
    assert b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x03" in death
    assert count == b"I\x00\x00\x00\x03"
    read = decode(raw).headers
    assert read is not None
    assert read["x-death"] == [*deaths[:3], {"count": str(2**70)}]


def test_every_type_is_there() -> None:
    headers = decode(with_headers(EVERY_TYPE)).headers
    assert headers is not None
    assert sorted(headers) == sorted([*"bBsuIilLfdDtSxTAFV", "\\xff"])
    assert headers["T"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\x80\x00\x05text",
        b"\x10\x00",
        b"\x00\x40\x00\x00\x00\x00\x00\x00\x00",
        b"\x20\x00",
        b"\x20\x00\x00\x00\x00\x01",
        b"\x20\x00\x00\x00\x00\x02\x01a",
        b"\x20\x00\x00\x00\x00\x03\x01aZ",
        b"\x20\x00\xff\xff\xff\xff",
        b"\x00\x00\x00",
        b"\x80\x00\x04texts",
        b"\x80\x04\x04text\x05id",
    ],
)
def test_what_is_no_property_list_is_a_syntax_error(raw: bytes) -> None:
    for look in (decode, read_facts, lambda given: edited(given, {})):
        with pytest.raises(AmqpError) as refusal:
            look(raw)
        assert refusal.value.code == ReplyCode.SYNTAX_ERROR


strings = st.none() | st.text(min_size=1, max_size=60)  # what is empty, or 0, it does not write
NAMED_ELSE = {"message_type": "type"}


@given(
    st.builds(
        Properties,
        content_type=strings,
        headers=st.none() | st.dictionaries(st.text(max_size=20), st.booleans() | st.text(), min_size=1, max_size=4),
        delivery_mode=st.none() | st.integers(1, 2),
        priority=st.none() | st.integers(1, 255),
        correlation_id=strings,
        reply_to=strings,
        expiration=strings,
        message_id=strings,
        timestamp=st.none() | st.integers(0, 2**32 - 1),
        type=strings,
        user_id=strings,
        app_id=strings,
    )
)
def test_pamqp_reads_what_is_written_here_and_writes_what_is_read_here(known: Properties) -> None:
    header = ContentHeader()
    header.unmarshal(b"\x00\x3c\x00\x00" + (5).to_bytes(8, "big") + encode(known))
    theirs = header.properties
    for slot in theirs.__slots__:
        if slot == "cluster_id":
            continue
        value = getattr(known, NAMED_ELSE.get(slot, slot))
        if slot == "timestamp" and value is not None:
            value = datetime.datetime.fromtimestamp(value, datetime.UTC)
        assert getattr(theirs, slot) == value, slot
    assert decode(written_by_pamqp(theirs)) == known


def written_by_pamqp(theirs: Basic.Properties) -> bytes:
    return ContentHeader(0, 5, theirs).marshal()[12:]
