"""The facts of a property list are what decoding it would tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.message.properties import Properties
from shardmq.protocol.amqp.properties import decode, encode
from shardmq.protocol.amqp.property_facts import (
    DIRECT_REPLY,
    KNOWN_BYTES_MAX,
    KNOWN_MAX,
    Facts,
    PropertyLists,
    read_facts,
)
from tests.protocol.amqp.property_lists import lists, outcome


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
