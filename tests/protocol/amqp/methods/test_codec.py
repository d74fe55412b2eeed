"""Methods: every one both ways, what is refused; and against pamqp, another codec. (The specification: tests/amqp.)"""

from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands as pamqp

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.field_types import TABLE_DEPTH_MAX
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.codec import METHODS
from shardmq.protocol.amqp.methods.connection import ChannelClose
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import QueueDeclare

short_strings = st.text(max_size=60)
tables = st.dictionaries(
    st.text(max_size=20),
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    max_size=4,
)
DOMAINS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),  # past it pamqp has negative ones
    "shortstr": short_strings,
    "longstr": st.binary(max_size=60),
    "table": tables,
    "message-count": st.integers(0, 2**32 - 1),
}


def any_of(kind: type[Method]) -> st.SearchStrategy[Method]:
    return st.builds(kind, *[DOMAINS[domain] for domain in kind.domains])


any_method = st.sampled_from(sorted(METHODS.values(), key=lambda kind: kind.id)).flatmap(any_of)


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda kind: kind.name)
@settings(max_examples=25)
@given(data=st.data())
def test_every_method_is_written_and_read(kind: type[Method], data: st.DataObject) -> None:
    method = data.draw(any_of(kind))
    payload = methods.encode(method)
    assert payload[:4] == kind.id[0].to_bytes(2, "big") + kind.id[1].to_bytes(2, "big")
    assert methods.decode(payload, 1) == method


def refused(payload: bytes) -> AmqpError:
    with pytest.raises(AmqpError) as refusal:
        methods.decode(payload, 7)
    return refusal.value


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00\x0a\x00"])
def test_a_payload_without_room_for_its_ids_is_a_frame_error(payload: bytes) -> None:
    assert refused(payload).code == ReplyCode.FRAME_ERROR


@pytest.mark.parametrize("ids", [(0, 0), (10, 9), (60, 130), (61, 10), (110, 10), (0xFFFF, 0xFFFF)])
def test_a_method_that_does_not_exist_is_not_implemented(ids: tuple[int, int]) -> None:
    error = refused(ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big"))
    assert (error.code, error.method) == (ReplyCode.NOT_IMPLEMENTED, ids)
    assert error.is_hard


@given(any_method, st.data())
def test_a_method_that_is_cut_off_is_a_syntax_error_of_its_own(method: Method, data: st.DataObject) -> None:
    payload = methods.encode(method)
    if len(payload) == 4:
        return
    error = refused(payload[: data.draw(st.integers(4, len(payload) - 1))])
    assert (error.code, error.method) == (ReplyCode.SYNTAX_ERROR, method.id)


@given(any_method, st.binary(min_size=1, max_size=8))
def test_bytes_behind_a_method_are_a_syntax_error_of_its_own(method: Method, more: bytes) -> None:
    error = refused(methods.encode(method) + more)
    assert (error.code, error.method) == (ReplyCode.SYNTAX_ERROR, method.id)


def test_a_short_string_that_is_not_utf8_is_refused_in_rabbitmqs_words() -> None:
    error = refused(b"\x00\x32\x00\x0a\x00\x00\x02\xff\xfe\x00\x00\x00\x00\x00")
    assert (str(error), error.method) == ("FRAME_ERROR - Malformed UTF-8 in shortstr", (50, 10))


def test_a_table_that_makes_no_sense_is_a_fault_of_its_method() -> None:
    deep: dict[str, Any] = {}
    for _ in range(TABLE_DEPTH_MAX):
        deep = {"n": deep}
    error = refused(methods.encode(QueueDeclare(0, "q"))[:-4] + b"\x00\x00\x00\x04\x01aZ\x00")
    assert (error.code, error.method) == (ReplyCode.SYNTAX_ERROR, (50, 10))
    methods.decode(methods.encode(QueueDeclare(0, "q", arguments=deep)), 1)


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=100))
def test_any_bytes_are_a_method_or_refused(ids: tuple[int, int], payload: bytes) -> None:
    try:
        method = methods.decode(ids[0].to_bytes(2, "big") + ids[1].to_bytes(2, "big") + payload, 1)
    except AmqpError as error:
        assert error.code in (ReplyCode.SYNTAX_ERROR, ReplyCode.FRAME_ERROR)
        assert error.method == ids
    else:
        assert method.id == ids


def test_a_text_that_is_too_long_for_a_short_string_is_cut_between_characters() -> None:
    method = methods.decode(methods.encode(ChannelClose(404, "€" * 100, 0, 0)), 1)
    assert isinstance(method, ChannelClose)
    assert method.reply_text == "€" * 85


@pytest.mark.parametrize("kind", [kind for kind in METHODS.values() if "message-count" in kind.domains])
def test_more_messages_than_a_count_can_tell_of_are_as_many_as_it_can(kind: type[Method]) -> None:
    values = [2**40 if domain == "message-count" else VALUES[domain] for domain in kind.domains]
    assert methods.decode(methods.encode(kind(*values)), 1).message_count == 2**32 - 1  # type: ignore[attr-defined]


VALUES: Final[dict[str, Any]] = {"shortstr": "q", "long": 1, "longlong": 1, "bit": True}

THEIRS: Final = {"access"}
"""Classes of methods that pamqp has not."""


def theirs_of(kind: type[Method]) -> Any:
    group, name = kind.name.split(".")
    return getattr(getattr(pamqp, group.capitalize()), "".join([part.capitalize() for part in name.split("-")]))


@pytest.mark.parametrize(
    "kind", [kind for kind in METHODS.values() if kind.name.split(".")[0] not in THEIRS], ids=lambda kind: kind.name
)
@settings(max_examples=25)
@given(data=st.data())
def test_pamqp_reads_what_is_written_here_and_writes_the_same(kind: type[Method], data: st.DataObject) -> None:
    method = data.draw(any_of(kind))
    payload = methods.encode(method)
    theirs = object.__new__(theirs_of(kind))
    assert (theirs.index, theirs.synchronous) == (kind.id[0] << 16 | kind.id[1], kind.is_synchronous)
    theirs.unmarshal(payload[4:])
    values = [getattr(theirs, slot) for slot in theirs.__slots__]
    names = kind.__struct_fields__
    assert [as_bytes(value, domain) for value, domain in zip(values, kind.domains, strict=True)] == [
        getattr(method, name) for name in names
    ]
    for slot, value, name, domain in zip(theirs.__slots__, values, names, kind.domains, strict=True):
        if domain == "table":  # it has a shorter type for small numbers
            setattr(theirs, slot, {})
            method = msgspec.structs.replace(method, **{name: {}})
        elif domain == "longstr" and isinstance(value, bytes):  # and writes no bytes that are not text
            setattr(theirs, slot, "")
            method = msgspec.structs.replace(method, **{name: b""})
    with patch.object(type(theirs), "validate", lambda _: None):  # it checks what values mean, too
        assert theirs.marshal() == methods.encode(method)[4:]


def as_bytes(value: Any, domain: str) -> Any:
    return value.encode() if domain == "longstr" and isinstance(value, str) else value
