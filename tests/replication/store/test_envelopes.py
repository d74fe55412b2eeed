"""What comes from other hosts is refused where it is not what was sent, whatever it is."""

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from shardmq.replication.core.note import BEGINNING
from shardmq.replication.store.envelope import Kind, SealedEdits
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.replication.store.key_range import opened_range, read_range
from shardmq.replication.store.record import opened_record
from shardmq.replication.store.record_ring import RecordRing
from shardmq.replication.store.tail import opened_tail, tail_of
from shardmq.shards.storage.schema import APPLIED, LAYOUT, REPLICA, SPILLED, STATE
from shardmq.storage.memory_engine import MemoryEngine

from .stores import Host, Traffic

ENGINE = MemoryEngine(LAYOUT)
OPEN: dict[Kind, Callable[..., object]] = {
    Kind.RECORD: opened_record,
    Kind.KEY_RANGE: opened_range,
    Kind.TAIL: opened_tail,
    Kind.EDITS: lambda engine, data: SealedEdits.opened(data, engine),
}
Envelopes = dict[Kind, bytes]


@pytest.fixture(scope="module")
def envelopes() -> Iterator[Envelopes]:
    host, traffic = Host(None), Traffic(4, 20)
    primary = host.lead(1, adopt_as="1")
    for _ in range(5):
        primary.apply(traffic.commit(), 9)
    tail = tail_of(primary.replica, host.ring, 0, [(9, ((STATE, b"gone"),))])
    assert tail is not None
    yield {
        Kind.RECORD: bytes(host.sent[-1].data),
        Kind.KEY_RANGE: bytes(read_range(primary, primary.replica.note, BEGINNING)[0]),
        Kind.TAIL: bytes(tail),
        Kind.EDITS: bytes(SealedEdits.sealed(host.sent[-1].edits).data),
    }
    host.close()


@pytest.mark.parametrize("kind", Kind)
def test_every_flipped_bit_and_every_cut_is_refused(envelopes: Envelopes, kind: Kind) -> None:
    whole = envelopes[kind]
    OPEN[kind](ENGINE, whole)
    for bit in range(8 * len(whole)):
        wrong = bytearray(whole)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EnvelopeDamaged, match="its checksum is not that of its bytes; the link begins anew"):
            OPEN[kind](ENGINE, wrong)
    for end in range(len(whole)):
        with pytest.raises(EnvelopeDamaged):
            OPEN[kind](ENGINE, whole[:end])


@pytest.mark.parametrize("kind", Kind)
def test_with_a_right_checksum_nothing_but_typed_errors_come(envelopes: Envelopes, kind: Kind) -> None:
    """Another program's mistake, not the wire's: whatever the bytes are, they are taken, or refused."""
    dice, whole = random.Random(int(kind)), envelopes[kind]
    for _ in range(1500):
        wrong = bytearray(whole[8:])
        for _ in range(dice.choice((1, 1, 2, 9))):
            wrong[dice.randrange(len(wrong))] = dice.choice((0, 0x7F, 0xC0, 0xDD, 0xFF, dice.randrange(256)))
        if dice.random() < 0.2:
            del wrong[dice.randrange(len(wrong)) :]
        try:
            OPEN[kind](ENGINE, xxh3_64_digest(wrong) + wrong)
        except EnvelopeDamaged as fault:
            assert "was refused" in fault.text


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    for kind, take in OPEN.items():
        with pytest.raises(EnvelopeDamaged):
            take(ENGINE, xxh3_64_digest(bytes((kind,)) + data) + bytes((kind,)) + data)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ((REPLICA, b"note", b""), "is none that replicas share"),
        ((SPILLED, b"k", b""), "is none that replicas share"),
        ((99, b"k", b""), "database 99 is none"),
        ((-1, b"k", b""), "database -1 is none"),
        ((STATE, b"", b""), "it has a key of 0 bytes"),
        ((STATE, bytes(512), b""), "it has a key of 512 bytes"),
        ((STATE, APPLIED, b""), "it has the note of a redo log"),
    ],
)
def test_edits_of_what_is_a_replicas_own_are_refused(edit: tuple[int, bytes, bytes], why: str) -> None:
    content = bytes((Kind.RECORD,)) + msgspec.msgpack.encode([[edit], [1, 1, 2, 0.0]])
    with pytest.raises(EnvelopeDamaged, match=why):
        opened_record(ENGINE, xxh3_64_digest(content) + content)


def test_a_range_has_no_row_outside_of_it_and_none_twice() -> None:
    head = [1, 1, [STATE, b"b"], [STATE, b"d"]]
    for keys in ([b"a"], [b"d"], [b"c", b"b"], [b"c", b"c"]):
        content = bytes((Kind.KEY_RANGE,)) + msgspec.msgpack.encode([[[STATE, key, b""] for key in keys], head])
        with pytest.raises(EnvelopeDamaged, match="has no place in it"):
            opened_range(ENGINE, xxh3_64_digest(content) + content)


def test_the_ring_has_the_latest_records_and_no_gap() -> None:
    host, ring = Host(None), RecordRing(1000)
    primary = host.lead(1, adopt_as="1")
    for number in range(30):
        primary.apply([(STATE, b"%d" % number, bytes(100))], 9)
        ring.add(host.sent[-1])
        assert ring.bytes <= 1000
    kept = ring.above(25)
    assert [record.index for record in kept] == [26, 27, 28, 29, 30]
    assert (ring.covers(30), ring.covers(25), ring.covers(1), ring.covers(31)) == (True, True, False, False)
    primary.apply([(STATE, b"large", bytes(2000))], 9)
    ring.add(host.sent[-1])
    assert (ring.covers(31), ring.covers(30), ring.above(31), ring.bytes) == (True, False, [], 0)
    ring.add(host.sent[3])
    assert (ring.covers(3), ring.covers(2), [record.index for record in ring.above(3)]) == (True, False, [4])
