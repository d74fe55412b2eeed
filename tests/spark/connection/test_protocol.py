"""Frames made with msgpack alone are those that the broker and the SDK make, operation by operation."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ProtocolError
from shardmq.protocol.native.frames import HEADER, FrameReader
from shardmq.protocol.native.operations import codec as operations
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from shardmq.protocol.native.operations.codec import OPERATIONS
from shardmq.protocol.native.operations.connection import PROTOCOL_VERSION, Ok
from shardmq.protocol.native.operations.publishing import encode_publish
from shardmq.protocol.native.operations.transaction import TransactionCommit
from shardmq.spark.connection import protocol as wire
from shardmq.spark.connection.protocol import FIELDS, Op

LEFT_OUT = {Op.BASIC_PUBLISH: ("growth",), Op.GROUP_OFFSETS: ("partitions",)}
"""Fields at the end that are not sent: Spark's transactions have the partitions of their beginning, and all partitions
are asked for."""

SIZES = [0, 1, 255, 256, 65_535, 65_536, 300_000]


def test_type_numbers_and_fields_are_the_protocols() -> None:
    assert set(FIELDS) == set(Op)
    for operation in Op:
        theirs = OPERATIONS[operation]
        assert theirs.__name__.upper() == operation.name.replace("_", "")
        assert theirs.__struct_fields__ == (*FIELDS[operation], *LEFT_OUT.get(operation, ()))
    assert wire.PROTOCOL_VERSION == PROTOCOL_VERSION
    assert wire.HEADER.format == HEADER.format


def test_a_request_is_encoded_as_the_sdk_does() -> None:
    attempts = [(2**62 + 1, 500), (2**63 - 1, 0)]
    ours = wire.encode(Op.TRANSACTION_COMMIT, 3, 1, "orders", 7, attempts)
    assert ours == operations.encode(TransactionCommit(3, 1, "orders", 7, attempts))


@given(
    st.sampled_from(SIZES),
    st.text(max_size=60),
    st.text(max_size=60),
    st.integers(0, 3),
    st.integers(1, 65_536),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_publish_is_encoded_as_the_sdk_does(
    size: int, exchange: str, key: str, flags: int, count: int, delay: int, producer: int, sequence: int, number: int
) -> None:
    records = bytes(size)
    pieces = wire.encode_publish(
        9, 1, exchange, key, flags, count, memoryview(records), delay, producer, sequence, number
    )
    operation = BasicPublish(9, 1, exchange, key, flags, count, records, delay, producer, sequence, number)
    assert b"".join(pieces) == encode_publish(operation)


def test_a_publish_does_not_copy_its_records() -> None:
    records = memoryview(bytes(300_000))
    assert any(piece is records for piece in wire.encode_publish(9, 1, "", "work", 1, 3, records, 0, 0, 0, 0))


def test_what_the_broker_says_is_read() -> None:
    said = operations.encode(Ok(3, 1, {"number": 7})) + operations.encode(BasicConfirm(1, [(1, 3), (5, 5)]))
    heard = [wire.decode(kind, payload) for kind, payload in FrameReader().feed(said)]
    assert heard == [(Op.OK, [3, 1, {"number": 7}]), (Op.BASIC_CONFIRM, [1, [[1, 3], [5, 5]]])]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [(999, b"\x90"), (Op.OK, b"\x92\x01\x01"), (Op.OK, b"\xc1"), (Op.OK, b"\x93\x01"), (Op.HEARTBEAT, b"\x80")],
)
def test_what_makes_no_sense_is_refused(kind: int, payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(kind, memoryview(payload))


def test_frames_are_the_same_with_msgpacks_python_part_alone() -> None:
    code = (
        "from msgpack import Packer; assert Packer.__module__ == 'msgpack.fallback'\n"
        "from shardmq.spark.connection import protocol as wire; from shardmq.spark.connection.protocol import Op\n"
        "made = wire.encode(Op.TRANSACTION_COMMIT, 3, 1, 'orders', 7, [(2**62 + 1, 500)])\n"
        "made += b''.join(wire.encode_publish(9, 1, 'e', 'k', 3, 2, memoryview(bytes(70000)), 5, 2**63 - 1, 6, 7))\n"
        "assert wire.decode(16, memoryview(b'\\x93\\x03\\x01\\x81\\xa1a\\xc4\\x01x')) == (Op.OK, [3, 1, {'a': b'x'}])\n"
        "import sys; sys.stdout.buffer.write(made)"
    )
    environment = {**os.environ, "MSGPACK_PUREPYTHON": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
    expected = operations.encode(TransactionCommit(3, 1, "orders", 7, [(2**62 + 1, 500)]))
    expected += encode_publish(BasicPublish(9, 1, "e", "k", 3, 2, bytes(70_000), 5, 2**63 - 1, 6, 7))
    assert ran.stdout == expected
