"""The table of operations: round trips, mutations, directions, and that SPEC.md says the same."""

import re
from importlib import resources

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.wire import operations
from shardmq.wire.frames import FrameReader
from shardmq.wire.operations import FROM_CLIENT, FROM_SERVER, OPERATIONS, Operation, decode, encode

EITHER = FROM_CLIENT | FROM_SERVER
names = st.text(max_size=40)
numbers = st.integers(0, 2000)
tables = st.dictionaries(st.text(max_size=8), st.integers(0, 9) | st.text(max_size=8), max_size=3)
ranges = st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 9000)), max_size=4)
BY_FIELD = {
    "request": st.integers(0, 2**63 - 1),
    "channel": st.integers(0, 2047),
    "arguments": tables,
    "client": tables,
    "durable": st.booleans(),
    "auto_ack": st.booleans(),
    "requeue": st.booleans(),
    "redelivered": st.booleans(),
    "tags": ranges,
    "requests": ranges,
    "records": st.binary(max_size=60),
    "result": st.none() | tables,
    "count": st.integers(1, 65_536),
    "tag": st.integers(1, 2**63 - 1),
    "flags": st.integers(0, 1),
    **dict.fromkeys(["version", "heartbeat", "prefetch", "code", "timestamp_ms", "origin", "serial"], numbers),
}


@st.composite
def any_operation(draw: st.DrawFn) -> Operation:
    kind = draw(st.sampled_from(list(OPERATIONS.values())))
    return kind(*[draw(BY_FIELD.get(field, names)) for field in kind.__struct_fields__])


def decode_stream(stream: bytes) -> list[Operation]:
    return [decode(kind, payload, EITHER) for kind, payload in FrameReader().feed(stream)]


@given(st.lists(any_operation(), max_size=5))
def test_operations_survive_the_wire(sent: list[Operation]) -> None:
    assert decode_stream(b"".join(encode(operation) for operation in sent)) == sent


@given(any_operation(), st.data())
def test_a_mutated_frame_gives_an_operation_or_a_documented_error(operation: Operation, data: st.DataObject) -> None:
    stream = bytearray(encode(operation))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_stream(bytes(stream))
    except ProtocolError as error:
        assert error.code in {ReplyCode.FRAME_ERROR, ReplyCode.SYNTAX_ERROR, ReplyCode.COMMAND_INVALID}


@given(st.sampled_from(sorted(OPERATIONS)), st.binary(max_size=80))
def test_a_garbage_payload_is_a_syntax_error_that_names_the_operation(kind: int, payload: bytes) -> None:
    try:
        decode(kind, payload, EITHER)
    except ProtocolError as error:
        assert error.code == ReplyCode.SYNTAX_ERROR
        assert OPERATIONS[kind].__name__ in error.text


def test_deep_nesting_is_refused() -> None:
    nested = b"\x98\x01\x01\xa1q\xa1e\xc3\x81\xa1k" + b"\x91" * 50_000
    with pytest.raises(ProtocolError):
        decode(3, nested, FROM_CLIENT)


def test_an_unknown_type_is_an_invalid_command() -> None:
    with pytest.raises(ProtocolError, match="9999") as caught:
        decode(9999, b"\x90", FROM_CLIENT)
    assert caught.value.code == ReplyCode.COMMAND_INVALID


def test_what_only_servers_say_is_refused_from_clients() -> None:
    with pytest.raises(ProtocolError, match="BasicConfirm"):
        decode(operations.TYPES[operations.BasicConfirm], b"\x92\x01\x90", FROM_CLIENT)


def test_every_operation_has_a_sender() -> None:
    assert set(OPERATIONS.values()) == FROM_CLIENT | FROM_SERVER


def test_the_numbers_of_the_design_stand() -> None:
    first = [kind.__name__ for _, kind in sorted(OPERATIONS.items())[:12]]
    assert first == [
        "ChannelOpen", "ChannelClose", "ExchangeDeclare", "ExchangeDelete", "QueueDeclare", "QueueDelete", "QueueBind",
        "QueueUnbind", "BasicPublish", "BasicConsume", "BasicAck", "BasicDeliver",
    ]  # fmt: skip


def test_the_spec_lists_every_operation_with_its_fields_in_order() -> None:
    spec = (resources.files("shardmq.wire") / "SPEC.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| [a-z.]+ \| [CS ]+ \| (.*) \|$", spec, re.MULTILINE))
    for number, kind in OPERATIONS.items():
        fields = [] if kind is operations.Heartbeat else [field.split()[0] for field in _fields(rows[str(number)])]
        assert [field.rstrip(":") for field in fields] == list(kind.__struct_fields__), kind.__name__


def _fields(row: str) -> list[str]:
    row = re.sub(r"noun: .*", "noun", re.sub(r"\([^)]*\)", "", row))
    return row.split(", ")


def test_the_example_of_the_spec_is_true() -> None:
    assert encode(operations.ChannelOpen(1, 1)) == bytes.fromhex("00000001 00000003 920101".replace(" ", ""))
    assert msgspec.msgpack.encode((None, b"abc")) == bytes.fromhex("92c0c403616263")
