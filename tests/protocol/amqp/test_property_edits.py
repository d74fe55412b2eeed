"""Property lists with changes: all that does not change keeps its bytes."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shardmq.message.properties import Properties
from shardmq.protocol.amqp.properties import FIELDS, decode, encode
from shardmq.protocol.amqp.property_edits import rewritten, with_reply_name, with_reply_to, without_bcc
from shardmq.protocol.amqp.property_facts import read_facts
from shardmq.protocol.amqp.tables import wrapped
from tests.protocol.amqp.property_lists import EVERY_TYPE, lists, with_headers


def test_bcc_is_taken_out_and_all_else_keeps_its_bytes() -> None:
    bcc = b"\x03BCC" + wrapped(b"A", b"S\x00\x00\x00\x01k")
    assert without_bcc(with_headers(bcc + EVERY_TYPE + bcc)) == with_headers(EVERY_TYPE)
    assert without_bcc(with_headers(bcc)) == with_headers(b"")


def test_a_reply_queue_is_exchanged_and_all_else_keeps_its_bytes() -> None:
    raw = b"\x26\x04" + wrapped(b"", EVERY_TYPE) + b"\x02\xff\xfe" + b"\x15amq.rabbitmq.reply-to" + b"\x01c"
    assert read_facts(raw).is_direct_reply
    assert with_reply_to(raw, "here") == raw.replace(b"\x15amq.rabbitmq.reply-to", b"\x04here")
    assert with_reply_to(with_headers(EVERY_TYPE), "amq.rabbitmq.reply-to") == raw


@given(lists, st.sampled_from(["", "before ", "before \x15"]))
def test_a_request_names_the_queue_of_its_answer_whatever_else_its_properties_say(known: Properties, text: str) -> None:
    asked = msgspec.structs.replace(known, reply_to="amq.rabbitmq.reply-to")
    for request in (asked, msgspec.structs.replace(asked, correlation_id=text + "\x15amq.rabbitmq.reply-to")):
        raw = encode(request)
        assert read_facts(raw).is_direct_reply
        assert with_reply_name(raw, "amq.rabbitmq.reply-to.q") == with_reply_to(raw, "amq.rabbitmq.reply-to.q")


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
