"""What comes from other hosts is refused where it is not what was sent, whatever it is."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from shardmq.replication.store.envelope import KIND, SealedEdits
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.shards.storage.schema import APPLIED, LAYOUT, REPLICA, SPILLED, STATE, edit_value
from shardmq.storage.engine import Edit
from shardmq.storage.memory_engine import MemoryEngine

from .stores import Traffic

ENGINE = MemoryEngine(LAYOUT)


@pytest.fixture(scope="module")
def envelope() -> bytes:
    traffic = Traffic(4, 20)
    commits = [traffic.commit() for _ in range(5)]
    edits = [edit for commit in commits for edit in commit if edit[0] != SPILLED]
    assert {value is None for _, _, value in edits} == {True, False}
    return bytes(SealedEdits.sealed(edits).data)


def test_every_flipped_bit_and_every_cut_is_refused(envelope: bytes) -> None:
    SealedEdits.opened(envelope, ENGINE)
    for bit in range(8 * len(envelope)):
        wrong = bytearray(envelope)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EnvelopeDamaged, match="their checksum is not that of their bytes; the link begins anew"):
            SealedEdits.opened(wrong, ENGINE)
    for end in range(len(envelope)):
        with pytest.raises(EnvelopeDamaged):
            SealedEdits.opened(envelope[:end], ENGINE)


def test_with_a_right_checksum_nothing_but_typed_errors_come(envelope: bytes) -> None:
    """Another program's mistake, not the wire's: whatever the bytes are, they are taken, or refused."""
    dice = random.Random(4)
    for _ in range(1500):
        wrong = bytearray(envelope[8:])
        for _ in range(dice.choice((1, 1, 2, 9))):
            wrong[dice.randrange(len(wrong))] = dice.choice((0, 0x7F, 0xC0, 0xDD, 0xFF, dice.randrange(256)))
        if dice.random() < 0.2:
            del wrong[dice.randrange(len(wrong)) :]
        try:
            SealedEdits.opened(xxh3_64_digest(wrong) + wrong, ENGINE)
        except EnvelopeDamaged as fault:
            assert "were refused" in fault.text


@given(st.binary(max_size=60), st.sampled_from([KIND, 1]))
def test_any_bytes_are_refused(data: bytes, kind: int) -> None:
    content = bytes((kind,)) + data
    with pytest.raises(EnvelopeDamaged):
        SealedEdits.opened(xxh3_64_digest(content) + content, ENGINE)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ((REPLICA, b"note", b""), "is none that replicas share"),
        ((SPILLED, b"k", b""), "is none that replicas share"),
        ((99, b"k", b""), "database 99 is none"),
        ((-1, b"k", b""), "database -1 is none"),
        ((STATE, b"", b""), "they have a key of 0 bytes"),
        ((STATE, bytes(512), b""), "they have a key of 512 bytes"),
        ((STATE, APPLIED, b""), "they have the note of a redo log"),
    ],
)
def test_edits_of_what_is_a_replicas_own_are_refused(edit: Edit, why: str) -> None:
    content = bytes((KIND,)) + msgspec.msgpack.encode([[edit], None])
    with pytest.raises(EnvelopeDamaged, match=why):
        SealedEdits.opened(xxh3_64_digest(content) + content, ENGINE)


def test_edits_of_another_kind_are_refused() -> None:
    content = bytes((1,)) + msgspec.msgpack.encode([[(STATE, b"k", b"")], None])
    with pytest.raises(EnvelopeDamaged, match="they are of kind 1"):
        SealedEdits.opened(xxh3_64_digest(content) + content, ENGINE)


def test_an_edits_value_is_found_again_in_what_is_stored() -> None:
    dice = random.Random(3)
    for database in range(len(LAYOUT.databases)):
        for value in (b"", dice.randbytes(8), dice.randbytes(30)):
            key = dice.randbytes(16)
            stored = bytes(LAYOUT.stored_value(database, key, value))
            found = edit_value(database, key, memoryview(stored))
            assert found is None or bytes(LAYOUT.stored_value(database, key, found)) == stored
