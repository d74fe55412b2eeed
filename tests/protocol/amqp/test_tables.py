"""Field tables: every type both ways, what is refused, what huge and deep ones cost; and against another codec."""

import datetime
import math
import struct
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from shardmq.errors import ReplyCode
from shardmq.limits import REQUEST_BYTES_MAX
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.field_types import TABLE_DEPTH_MAX
from shardmq.protocol.amqp.table_check import check_table, entries_of
from shardmq.protocol.amqp.tables import (
    decode_table,
    decode_value,
    encode_long,
    encode_table,
    encode_value,
    wrapped,
)

UTC = datetime.UTC
NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=UTC)

decimals = st.builds(
    lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-(2**31), 2**31 - 1), st.integers(0, 255)
)
times = st.datetimes(
    min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(9999, 12, 31), timezones=st.just(UTC)
).map(lambda moment: moment.replace(microsecond=0))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | decimals
    | times
)
names = st.text(max_size=60)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=20
)
tables = st.dictionaries(names, values, max_size=6)


def table_of(*entries: bytes) -> bytes:
    return wrapped(b"", b"".join(entries))


def entry(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + value


def alone(value: bytes) -> Any:
    """What a table's only value is read as; twice, as nothing may depend on where it lies."""
    table, end = decode_table(b"\xff" + table_of(entry(b"n", value)) + b"\xff", 1)
    assert end == 1 + 4 + 2 + len(value)
    assert decode_value(value, 0) == (table["n"], len(value))
    return table["n"]


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (b"t\x00", False),
        (b"t\x01", True),
        (b"t\x07", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"l" + b"\xff" * 8, -1),
        (b"L\x7f" + b"\xff" * 7, 2**63 - 1),
        (b"f" + struct.pack(">f", 0.5), 0.5),
        (b"d" + struct.pack(">d", 0.1), 0.1),
        (b"D\x02\x00\x00\x00\x7d", Decimal("1.25")),
        (b"D\x00\xff\xff\xff\xff", Decimal(-1)),
        (b"D\xff\x00\x00\x00\x01", Decimal("1E-255")),
        (b"S\x00\x00\x00\x03\xe2\x82\xac", "€"),
        (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"x\x00\x00\x00\x02hi", b"hi"),
        (b"T" + (1_700_000_000).to_bytes(8, "big"), datetime.datetime.fromtimestamp(1_700_000_000, UTC)),
        (b"T" + (253_402_300_799).to_bytes(8, "big"), datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (b"T" + (1_700_000_000_000).to_bytes(8, "big"), 1_700_000_000_000),
        (b"T" + b"\xff" * 8, 2**64 - 1),
        (b"V", None),
        (b"A\x00\x00\x00\x00", []),
        (b"A\x00\x00\x00\x03Vt\x01", [None, True]),
        (b"F\x00\x00\x00\x00", {}),
        (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
    ],
)
def test_every_type_that_rabbitmq_reads_is_read(value: bytes, meaning: Any) -> None:
    read = alone(value)
    assert read == meaning
    assert type(read) is type(meaning)


@pytest.mark.parametrize("letter", sorted({chr(number) for number in range(256)} - set("tbBsuIilLfdDSxATFV")))
def test_there_are_no_other_types(letter: str) -> None:
    packed = table_of(entry(b"n", letter.encode("latin-1") + bytes(12)))
    for read in (decode_table, check_table):
        with pytest.raises(AmqpError, match="unknown type") as refusal:
            read(packed, 0)
        assert refusal.value.code == ReplyCode.SYNTAX_ERROR


def test_what_is_no_number_is_read() -> None:
    table, _ = decode_table(table_of(entry(b"n", b"d" + struct.pack(">d", math.nan))), 0)
    assert math.isnan(table["n"])


def test_of_a_name_that_comes_twice_the_first_counts() -> None:
    table, _ = decode_table(table_of(entry(b"n", b"B\x01"), entry(b"n", b"B\x02")), 0)
    assert table == {"n": 1}


def test_names_that_are_not_utf8_are_escaped() -> None:
    assert decode_table(table_of(entry(b"\xffn", b"V")), 0)[0] == {"\\xffn": None}


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x01",
        b"\x00\x00\x00\x01\x01",
        b"\x00\x00\x00\x02\x01a",
        b"\x00\x00\x00\x03\x01at",
        b"\xff\xff\xff\xff\x01at\x01",
        table_of(b"\x05aV"),
        table_of(entry(b"a", b"S\x00\x00\x00\x09hi")),
        table_of(entry(b"a", b"S\xff\xff\xff\xffhi")),
        table_of(entry(b"a", b"S\x00\x00")),
        table_of(entry(b"a", b"l\x00")),
        table_of(entry(b"a", b"T\x00")),
        table_of(entry(b"a", b"D\x00")),
        table_of(entry(b"a", b"A\x00\x00\x00\x02t")) + b"\x01",
        table_of(entry(b"a", b"A\x00\x00\x00\x01t")) + b"\x01",
        table_of(entry(b"a", b"F\x00\x00\x00\x04\x01aV")),
        table_of(entry(b"a", b"F\x00\x00\x00\x02\x01aV")),
    ],
)
def test_a_table_that_ends_in_the_middle_is_refused(cut: bytes) -> None:
    for read in (decode_table, check_table):
        with pytest.raises(AmqpError) as refusal:
            read(cut, 0)
        assert refusal.value.code == ReplyCode.SYNTAX_ERROR


def nested(depth: int, letter: bytes) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = wrapped(letter, entry(b"", value) if letter == b"F" else value)
    return table_of(entry(b"n", value))


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_tables_nest_to_a_limit(letter: bytes) -> None:
    decode_table(nested(TABLE_DEPTH_MAX, letter), 0)
    check_table(nested(TABLE_DEPTH_MAX, letter), 0)
    for depth in (TABLE_DEPTH_MAX + 1, 5000, 16_000):
        for read in (decode_table, check_table):
            with pytest.raises(AmqpError, match="nests deeper than"):
                read(nested(depth, letter), 0)


@pytest.mark.parametrize(
    "content",
    [
        entry(b"a", b"V"),
        entry(b"", b"F\x00\x00\x00\x00"),
        entry(b"n", wrapped(b"A", b"V" * 100)),
        entry(b"n", wrapped(b"A", b"F\x00\x00\x00\x00" * 100)),
        entry(b"n", b"S\x00\x00\x00\x00"),
    ],
)
def test_a_table_as_large_as_a_frame_takes_little_time_and_memory(content: bytes) -> None:
    packed = table_of(content * (REQUEST_BYTES_MAX // len(content)))
    tracemalloc.start()
    begun = time.process_time()
    try:
        check_table(packed, 0)
        checked_bytes = tracemalloc.get_traced_memory()[1]
        table, _ = decode_table(packed, 0)
        read_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert table
    assert checked_bytes < 100_000
    assert read_bytes < 100 * len(packed)
    assert time.process_time() - begun < 20  # 0.1 s here, with the memory traced


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_refused(data: bytes) -> None:
    outcomes = []
    for read in (lambda: decode_table(data, 0)[1], lambda: check_table(data, 0)):
        try:
            outcomes.append(read())
        except AmqpError as error:
            assert error.code == ReplyCode.SYNTAX_ERROR
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]  # the short look finds what reading finds


@given(tables, st.data())
def test_a_table_with_a_changed_byte_is_one_or_refused(table: dict[str, Any], data: st.DataObject) -> None:
    packed = bytearray(encode_table(table))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    outcomes = []
    for read in (lambda: decode_table(bytes(packed), 0)[1], lambda: check_table(bytes(packed), 0)):
        try:
            outcomes.append(read())
        except AmqpError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@given(tables)
def test_what_is_written_is_read_again(table: dict[str, Any]) -> None:
    packed = encode_table(table)
    assert decode_table(packed, 0) == (table, len(packed))
    assert check_table(packed, 0) == len(packed)


@given(tables)
def test_what_was_read_and_written_is_the_same_again(table: dict[str, Any]) -> None:
    packed = encode_table(table)
    assert encode_table(decode_table(packed, 0)[0]) == packed


@given(tables)
def test_entries_are_found_where_they_are(table: dict[str, Any]) -> None:
    packed = encode_table(table)
    found = entries_of(packed, 0)
    assert [name.decode() for name, *_ in found] == list(table)
    assert [decode_value(packed, start) for _, _, start, _ in found] == [
        (value, end) for value, (_, _, _, end) in zip(table.values(), found, strict=True)
    ]
    assert b"".join(packed[at:end] for _, at, _, end in found) == packed[4:]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, b"t\x01"),
        (1, b"I\x00\x00\x00\x01"),
        (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (2**63, b"S\x00\x00\x00\x139223372036854775808"),
        (-(2**70), wrapped(b"S", str(-(2**70)).encode())),
        (Decimal("1.25"), b"D\x02\x00\x00\x00\x7d"),
        (Decimal("1E+3"), wrapped(b"S", b"1E+3")),
        (Decimal("1E-256"), wrapped(b"S", b"1E-256")),
        (Decimal("2147483648"), wrapped(b"S", b"2147483648")),
        (Decimal("1." + "0" * 100_000), wrapped(b"S", b"1." + b"0" * 100_000)),
        (Decimal("-0.0"), wrapped(b"S", b"-0.0")),
        (Decimal("NaN"), wrapped(b"S", b"NaN")),
        (Decimal("-Infinity"), wrapped(b"S", b"-Infinity")),
        (Decimal("1E+999999"), wrapped(b"S", b"1E+999999")),
        (NOON, b"T" + int(NOON.timestamp()).to_bytes(8, "big")),
        (NOON.replace(microsecond=999_999), b"T" + int(NOON.timestamp()).to_bytes(8, "big")),
        (
            NOON.astimezone(datetime.timezone(datetime.timedelta(hours=9))),
            b"T" + int(NOON.timestamp()).to_bytes(8, "big"),
        ),
        (NOON.replace(tzinfo=None), b"T" + int(NOON.timestamp()).to_bytes(8, "big")),
        (datetime.datetime(1969, 12, 31, tzinfo=UTC), wrapped(b"S", b"1969-12-31T00:00:00+00:00")),
        (datetime.datetime(1, 1, 1), wrapped(b"S", b"0001-01-01T00:00:00")),
        ((1, "a"), wrapped(b"A", b"I\x00\x00\x00\x01S\x00\x00\x00\x01a")),
        (bytearray(b"hi"), b"x\x00\x00\x00\x02hi"),
        (memoryview(b"hi"), b"x\x00\x00\x00\x02hi"),
        (Ext(7, b"hi"), b"x\x00\x00\x00\x02hi"),
        (ReplyCode.NOT_FOUND, b"I\x00\x00\x01\x94"),
        ({1: 2, b"\xff": None, None: None}, wrapped(b"F", b"\x011I\x00\x00\x00\x02\x04\\xffV\x04NoneV")),
        ("\ud800", wrapped(b"S", b"\\ud800")),
        (1 + 2j, wrapped(b"S", b"(1+2j)")),
    ],
)
def test_what_amqp_has_no_type_for_becomes_the_nearest_one(value: Any, written: bytes) -> None:
    assert encode_value(value) == written
    assert encode_table({"n": value}) == table_of(entry(b"n", written))
    alone(written)


def test_a_long_is_a_long_however_small() -> None:
    assert encode_long(1) == b"l\x00\x00\x00\x00\x00\x00\x00\x01"


def test_a_name_that_is_too_long_is_left_out_with_its_value() -> None:
    longest = "€" * 85
    assert list(decode_table(encode_table({longest + "a": 1, longest: 2, "b": 3}), 0)[0]) == [longest, "b"]


def test_what_nests_too_deep_to_be_read_again_is_nothing() -> None:
    value: Any = 1
    for number in range(300):
        value = [value, "beside"] if number % 2 else {"n": value}
    packed = encode_table({"n": value, "m": 2})
    assert decode_table(packed, 0)[0]["m"] == 2
    assert check_table(packed, 0) == len(packed)


def shown(value: Any) -> Any:
    """A value as pamqp has it: its bytes are a bytearray, and its times past 2106 are taken for milliseconds."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return {key: shown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shown(inner) for inner in value]
    return value


short_names = st.text(max_size=30)  # it cuts them at 128 bytes
near_times = st.datetimes(
    min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(2105, 1, 1), timezones=st.just(UTC)
).map(lambda moment: moment.replace(microsecond=0))
both_have = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=32, allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | near_times
    | st.builds(lambda digits, scale: Decimal(digits).scaleb(-scale), st.integers(-9999, 9999), st.integers(0, 20)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_names, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(short_names, both_have, max_size=6))
def test_pamqp_reads_what_is_written_here(table: dict[str, Any]) -> None:
    packed = encode_table(table)
    size, read = pamqp_decode.field_table(packed)
    assert (size, shown(read)) == (len(packed), shown(table))


@given(st.dictionaries(short_names, both_have, max_size=6))
def test_what_pamqp_writes_is_read_here(table: dict[str, Any]) -> None:
    packed = pamqp_encode.field_table(table)
    assert decode_table(packed, 0) == (shown(table), len(packed))
    assert check_table(packed, 0) == len(packed)


@given(st.lists(st.tuples(st.binary(max_size=30), values), min_size=1, max_size=4), st.integers(0), st.integers(0, 255))
@example([(b"", None), (b"", [None])], 0, 0)  # by Python 3.11.2, a possessive expression matches beyond its end
def test_large_tables_are_checked_many_entries_at_a_time_and_as_strictly(
    entries: list[tuple[bytes, Any]], place: int, byte: int
) -> None:
    some = b"".join(entry(name, encode_value(value)) for name, value in entries)
    table = bytearray(table_of(some * (3000 // len(some) + 1)))
    assert check_table(bytes(table), 0) == len(table)
    table[4 + place % (len(table) - 4)] = byte

    def outcome(read: Any) -> Any:
        try:
            return read(bytes(table), 0)
        except AmqpError as error:
            return error.code

    decoded = outcome(decode_table)
    assert outcome(check_table) == (decoded[1] if isinstance(decoded, tuple) else decoded)
