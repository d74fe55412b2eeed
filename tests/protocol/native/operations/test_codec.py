"""The table of operations: round trips, mutations, directions, and that SPEC.md says the same."""

import re
from importlib import resources
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    MESSAGE_BYTES_HIGHEST,
    MESSAGE_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    RECORD_BATCH_PROPERTIES_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SETTLEMENT_BYTES_MAX,
    frame_bytes_max,
)
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations import codec as operations
from shardmq.protocol.native.operations.basic import BasicConfirm
from shardmq.protocol.native.operations.codec import (
    FROM_CLIENT,
    FROM_SERVER,
    OPERATIONS,
    decode,
    encode,
)
from shardmq.protocol.native.operations.connection import ChannelOpen, Heartbeat
from shardmq.protocol.native.operations.fields import Operation

EITHER = FROM_CLIENT | FROM_SERVER
names = st.text(max_size=40)
numbers = st.integers(0, 2000)
tables = st.dictionaries(st.text(max_size=8), st.integers(0, 9) | st.text(max_size=8), max_size=3)
BY_FIELD = {
    "flags": st.sampled_from((0, 1, 2, 3, 32, 33, 34, 35)),
    "result": st.none() | tables,
    "limits": st.dictionaries(st.text(max_size=8), st.none() | numbers, max_size=3),
}


def values(field: msgspec.inspect.Field) -> st.SearchStrategy[Any]:
    """What a field may hold, by its name where that says more than its type."""
    return BY_FIELD[field.name] if field.name in BY_FIELD else of_type(field.type)


SIMPLE: dict[type[msgspec.inspect.Type], st.SearchStrategy[Any]] = {
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.FloatType: st.floats(0, 1),
    msgspec.inspect.StrType: names,
    msgspec.inspect.BytesType: st.binary(max_size=60),
    msgspec.inspect.DictType: tables,
    msgspec.inspect.NoneType: st.none(),
}


def of_type(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    if type(kind) in SIMPLE:
        return SIMPLE[type(kind)]
    match kind:
        case msgspec.inspect.IntType(ge=least, le=most):
            return st.integers(least or 0, 2000 if most is None else most)
        case msgspec.inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case msgspec.inspect.ListType():
            return st.lists(of_type(kind.item_type), max_size=3)
        case msgspec.inspect.TupleType(item_types=types):
            return st.tuples(*[of_type(each) for each in types])
        case msgspec.inspect.VarTupleType(item_type=item, max_length=most):
            return st.lists(of_type(item), max_size=min(3, most or 3)).map(tuple)
        case msgspec.inspect.StructType(cls=made, fields=fields):
            return st.builds(made, **{field.name: of_type(field.type) for field in fields})
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([of_type(each) for each in types])
    raise NotImplementedError(f"no values for {kind}")


@st.composite
def any_operation(draw: st.DrawFn) -> Operation:
    kind = draw(st.sampled_from(list(OPERATIONS.values())))
    fields = msgspec.inspect.type_info(kind).fields
    required = sum(field.required for field in fields)
    given = draw(st.integers(required, len(fields)))
    return kind(*[draw(values(field)) for field in fields[:given]])


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
        decode(operations.TYPES[BasicConfirm], b"\x92\x01\x90", FROM_CLIENT)


def test_every_operation_has_a_sender() -> None:
    assert set(OPERATIONS.values()) == FROM_CLIENT | FROM_SERVER


def test_the_numbers_of_the_design_stand() -> None:
    first = [kind.__name__ for _, kind in sorted(OPERATIONS.items())[:12]]
    assert first == [
        "ChannelOpen",
        "ChannelClose",
        "ExchangeDeclare",
        "ExchangeDelete",
        "QueueDeclare",
        "QueueDelete",
        "QueueBind",
        "QueueUnbind",
        "BasicPublish",
        "BasicConsume",
        "BasicAck",
        "BasicDeliver",
    ]


def test_the_spec_lists_every_operation_with_its_fields_in_order() -> None:
    rows = spec_rows()
    assert rows.keys() == OPERATIONS.keys()
    for number, kind in OPERATIONS.items():
        fields = [] if kind is Heartbeat else [field.split()[0] for field in _fields(rows[number][2])]
        assert [field.rstrip(":") for field in fields] == list(kind.__struct_fields__), kind.__name__


def test_the_spec_tells_which_fields_may_be_left_out_and_what_they_are_then() -> None:
    shown = {"false": False, "true": True, '""': "", "{}": {}, "[]": [], "nil": None}
    shown |= {f'"{word}"': word for word in ("all", "classic")}
    for number, (_, _, row) in spec_rows().items():
        fields = [field.split(" = ") for field in _fields(row) if " = " in field]
        told = {name.split()[0].rstrip(":"): shown[value] if value in shown else int(value) for name, value in fields}
        known = msgspec.inspect.type_info(OPERATIONS[number]).fields
        assert told == {field.encode_name: default(field) for field in known if not field.required}, number


def test_the_spec_names_and_directions_are_those_of_the_table() -> None:
    for number, (name, senders, _) in spec_rows().items():
        kind = OPERATIONS[number]
        assert name.replace(".", "") == kind.__name__.lower()
        assert senders.split() == [letter for letter, sent in (("C", FROM_CLIENT), ("S", FROM_SERVER)) if kind in sent]


def spec() -> str:
    return (resources.files("shardmq.protocol.native") / "SPEC.md").read_text("utf-8")


def spec_rows() -> dict[int, tuple[str, str, str]]:
    """Name, senders and fields of each operation, as SPEC.md has them."""
    rows = re.findall(r"^\| (\d+) \| ([a-z.]+) \| ([CS ]+) \| (.*) \|$", spec(), re.MULTILINE)
    return {int(number): (name, senders, fields) for number, name, senders, fields in rows}


def default(field: msgspec.inspect.Field) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _fields(row: str) -> list[str]:
    """The fields of a row, without what stands in parentheses; a row of none has only that."""
    return [field for field in re.sub(r"\([^)]*\)", "", row).split(", ") if field.strip()]


def test_the_example_of_the_spec_is_true() -> None:
    assert encode(ChannelOpen(1, 1)) == bytes.fromhex("00000001 00000003 920101".replace(" ", ""))
    assert msgspec.msgpack.encode((None, b"abc")) == bytes.fromhex("92c0c403616263")


@pytest.mark.parametrize(
    "number",
    [
        HELLO_BYTES_MAX,
        REQUEST_BYTES_MAX,
        SETTLEMENT_BYTES_MAX,
        FRAME_BYTES_MAX,
        frame_bytes_max(MESSAGE_BYTES_HIGHEST),
        MESSAGE_BYTES_MAX,
        MESSAGE_BYTES_HIGHEST,
        PROPERTIES_BYTES_MAX,
        RECORD_BATCH_PROPERTIES_BYTES_MAX,
    ],
)
def test_the_spec_tells_the_limits_in_bytes(number: int) -> None:
    assert re.search(rf"(?<![\d,]){number:,}(?!,?\d)", spec())


def test_the_spec_names_all_operations_for_administrators() -> None:
    numbers = {number for number, kind in OPERATIONS.items() if kind.__module__.endswith(".administration")}
    assert numbers == {*range(36, 46), 54, 55, 79, 85, *range(94, 97)}
    assert "Operations 36 to 45, 54, 55, 79, 85 and 94 to 96 are for users with the tag" in spec()


def test_the_spec_gives_every_code_its_name() -> None:
    told = re.findall(r"(\d{3}) ([a-z]+ [a-z]+)", spec().partition("## Reply codes")[2].replace("\n", " "))
    assert {int(code): name for code, name in told} == {
        code.value: code.name.lower().replace("_", " ", 1) if code != ReplyCode.CONTENT_TOO_LARGE else "content too"
        for code in ReplyCode
        if code not in (ReplyCode.INVALID_PATH, ReplyCode.UNEXPECTED_FRAME)
    }
