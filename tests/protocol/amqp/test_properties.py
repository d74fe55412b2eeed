"""Property lists: looked through, read, written, changed value by value; and against pamqp, another codec."""

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
from shardmq.protocol.amqp.properties import (
    DIRECT_REPLY,
    FIELDS,
    KNOWN_BYTES_MAX,
    KNOWN_MAX,
    LIST_BYTES_MAX,
    NO_PROPERTIES,
    Facts,
    PropertyLists,
    decode,
    encode,
    read_facts,
)
from shardmq.protocol.amqp.property_edits import edited, rewritten, with_reply_to, without_bcc
from shardmq.protocol.amqp.tables import entries_of, wrapped
from tests.protocol.amqp.test_tables import tables

texts = st.none() | st.text(max_size=60)
lists = st.builds(
    Properties,
    content_type=texts,
    content_encoding=texts,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts,
    reply_to=texts | st.just(DIRECT_REPLY),
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=texts,
    user_id=texts,
    app_id=texts,
)


def outcome(look: Any, raw: bytes) -> Any:
    try:
        return look(raw)
    except AmqpError as fault:
        assert fault.code == ReplyCode.SYNTAX_ERROR
        return None


# --- reading and writing ----------------------------------------------------------------------------------------------


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


# --- looking through --------------------------------------------------------------------------------------------------


def facts_of(known: Properties) -> Facts:
    """By reading everything."""
    headers = known.headers or {}
    has_bcc = "BCC" in headers
    facts = Facts(
        known.delivery_mode == 2,
        is_plain=False,
        priority=known.priority,
        expiration=known.expiration,
        user_id=known.user_id,
        has_cc=has_bcc or "CC" in headers,
        has_bcc=has_bcc,
        is_direct_reply=known.reply_to == DIRECT_REPLY,
    )
    nothing = Facts(facts.is_persistent, is_plain=False)
    return facts._replace(is_plain=facts == nothing)


@given(lists)
def test_a_look_tells_what_reading_everything_tells(known: Properties) -> None:
    assert read_facts(encode(known)) == facts_of(known)


@pytest.mark.parametrize("copies", [{"CC": ["a"]}, {"BCC": []}, {"CC": 1, "BCC": None}, {"n": {"CC": []}}, {"CCC": 1}])
def test_headers_with_more_routing_keys_are_seen(copies: dict[str, Any]) -> None:
    known = Properties(headers={"a": "CC and BCC", **copies})
    assert read_facts(encode(known)) == facts_of(known)


@given(st.integers(0, 0xFFFF), st.binary(max_size=100))
def test_any_bytes_are_a_list_or_refused_and_both_looks_agree(flags: int, rest: bytes) -> None:
    raw = flags.to_bytes(2, "big") + rest
    known, facts = outcome(decode, raw), outcome(read_facts, raw)
    assert (known is None) == (facts is None)
    if known is not None:
        assert facts == facts_of(known)


@given(lists, st.data())
def test_a_list_with_a_changed_byte_is_one_or_refused_and_both_looks_agree(known: Properties, data: Any) -> None:
    raw = bytearray(encode(known))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    read, facts = outcome(decode, bytes(raw)), outcome(read_facts, bytes(raw))
    assert (read is None) == (facts is None)
    if read is not None:
        assert facts == facts_of(read)


def test_lists_that_were_seen_are_not_read_again_until_there_are_many() -> None:
    seen = PropertyLists()
    first = seen.facts(encode(Properties(priority=1, message_id="first")))
    assert seen.facts(encode(Properties(priority=1, message_id="first"))) is first
    for number in range(KNOWN_MAX):
        assert seen.facts(encode(Properties(message_id=str(number)))).is_plain
    again = seen.facts(encode(Properties(priority=1, message_id="first")))
    assert again == first
    assert again is not first


def test_long_lists_are_not_remembered() -> None:
    seen = PropertyLists()
    long = encode(Properties(priority=1, headers={"text": "x" * KNOWN_BYTES_MAX}))
    assert seen.facts(long) == seen.facts(long)
    assert seen.facts(long) is not seen.facts(long)


# --- changing ---------------------------------------------------------------------------------------------------------


EVERY_TYPE = (
    b"\x01bb\xff\x01BB\xff\x01ss\xff\xff\x01uu\xff\xff\x01II\x00\x00\x00\x01\x01ii\x00\x00\x00\x01"
    b"\x01ll\x00\x00\x00\x00\x00\x00\x00\x01\x01LL\x00\x00\x00\x00\x00\x00\x00\x01"
    b"\x01ff\x3f\x00\x00\x00\x01dd\x3f\xe0\x00\x00\x00\x00\x00\x00\x01DD\x02\x00\x00\x00\x7d"
    b"\x01tt\x01\x01SS\x00\x00\x00\x01a\x01xx\x00\x00\x00\x01a\x01TT\x00\x00\x00\x00\x00\x00\x00\x01"
    b"\x01AA\x00\x00\x00\x04Vs\x01\x01\x01FF\x00\x00\x00\x04\x01nb\x01\x01VV\x01\xffV"
)
"""A table's entries: one of each type, named by its letter; and a name that is not UTF-8."""


def with_headers(entries: bytes) -> bytes:
    """A list with headers, a correlation id that is not UTF-8, and a cluster id."""
    return b"\x24\x04" + wrapped(b"", entries) + b"\x02\xff\xfe" + b"\x01c"


def test_every_type_is_there() -> None:
    headers = decode(with_headers(EVERY_TYPE)).headers
    assert headers is not None
    assert sorted(headers) == sorted([*"bBsuIilLfdDtSxTAFV", "\\xff"])
    assert headers["T"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)


def test_bcc_is_taken_out_and_all_else_keeps_its_bytes() -> None:
    bcc = b"\x03BCC" + wrapped(b"A", b"S\x00\x00\x00\x01k")
    assert without_bcc(with_headers(bcc + EVERY_TYPE + bcc)) == with_headers(EVERY_TYPE)
    assert without_bcc(with_headers(bcc)) == with_headers(b"")


def test_a_reply_queue_is_exchanged_and_all_else_keeps_its_bytes() -> None:
    raw = b"\x26\x04" + wrapped(b"", EVERY_TYPE) + b"\x02\xff\xfe" + b"\x15amq.rabbitmq.reply-to" + b"\x01c"
    assert read_facts(raw).is_direct_reply
    assert with_reply_to(raw, "here") == raw.replace(b"\x15amq.rabbitmq.reply-to", b"\x04here")
    assert with_reply_to(with_headers(EVERY_TYPE), "amq.rabbitmq.reply-to") == raw


@given(lists, st.text(max_size=60))
def test_only_what_is_exchanged_changes(known: Properties, value: str) -> None:
    values = {name: getattr(known, name) for name in known.__struct_fields__} | {"reply_to": value}
    assert decode(with_reply_to(encode(known), value)) == Properties(**values)


@given(lists, lists, st.sets(st.sampled_from([name for name, *_ in FIELDS[:-1]])))
def test_a_list_says_what_it_was_to_say(before: Properties, other: Properties, changed: set[str]) -> None:
    raw = encode(before)
    known = decode(raw)
    values = {name: getattr(other if name in changed else known, name) for name in known.__struct_fields__}
    after = Properties(**values)
    read = decode(rewritten(raw, known, after))
    assert (read.headers or {}) == (after.headers or {})
    assert [getattr(read, name) for name in values if name != "headers"] == [
        value for name, value in values.items() if name != "headers"
    ]


def test_what_is_not_changed_keeps_its_bytes() -> None:
    raw = with_headers(EVERY_TYPE + b"\x04goneV" + b"\x04goneV")
    before = decode(raw)
    assert before.headers is not None
    headers = {**{name: value for name, value in before.headers.items() if name != "gone"}, "s": 7, "new": "n"}
    after = Properties(headers=headers, correlation_id=before.correlation_id, priority=9)
    expected = EVERY_TYPE.replace(b"\x01ss\xff\xff", b"") + b"\x01sI\x00\x00\x00\x07\x03newS\x00\x00\x00\x01n"
    assert rewritten(raw, before, after) == b"\x2c\x04" + wrapped(b"", expected) + b"\x09\x02\xff\xfe\x01c"
    assert rewritten(raw, before, before) == raw


# --- another codec ----------------------------------------------------------------------------------------------------

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
