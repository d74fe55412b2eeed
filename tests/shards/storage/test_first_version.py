"""Stores of the first version, whose rows had no checksums: read as they are, and brought up to date."""

import struct
from pathlib import Path

import lmdb
import msgspec
import pytest
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from shardmq.errors import RowDamaged, StoreRefused, StoreUnwritable
from shardmq.shards.storage.schema import BODIES_APART, DATABASES, WITH_KEYS_CHECKED
from shardmq.shards.storage.store import Store
from shardmq.storage.redo.log import REDO_BYTES
from shardmq.storage.redo.recovery import ENTRY
from tests.shards.storage.test_flips import fill, found
from tests.storage.flips import flipped

CHECKSUM = 8
_encode = msgspec.msgpack.Encoder().encode


def age(folder: Path, commits: list[bytes] | None = None) -> None:
    """Make a store of the first version of one: as that wrote its rows, its bodies and its redo log."""
    env = lmdb.open(str(folder), max_dbs=len(DATABASES) + 1, map_size=1 << 40)
    for number, name in enumerate(DATABASES):
        db = env.open_db(name)
        with env.begin(write=True, db=db) as transaction:
            for key, value in list(transaction.cursor()):
                rest = value[CHECKSUM:]
                if number in BODIES_APART:
                    rest = xxh3_64_digest(rest) + rest
                elif number in WITH_KEYS_CHECKED and rest:
                    rest = xxh3_64_digest(rest[CHECKSUM:]) + rest[CHECKSUM:]
                transaction.put(key, rest)
    with env.begin(write=True, db=env.open_db(b"meta")) as transaction:
        transaction.put(b"version", b"1")
    with env.begin(db=env.open_db(b"state")) as transaction:
        (applied,) = struct.unpack(">Q", transaction.get(b"redo"))
    env.close()
    entries = b"".join(
        ENTRY.pack(len(payload), number, xxh3_64_intdigest(struct.pack(">Q", number) + payload)) + payload
        for number, payload in enumerate(commits or (), applied + 1)
    )
    header = b"shardmq-redo\0" + struct.pack(">IQ", 1, REDO_BYTES)
    (folder / "redo").write_bytes((header.ljust(4096, b"\0") + entries).ljust(REDO_BYTES, b"\0"))


def version(folder: Path) -> bytes:
    env = lmdb.open(str(folder), max_dbs=1, readonly=True)
    with env.begin(db=env.open_db(b"meta", create=False)) as transaction:
        found = bytes(transaction.get(b"version"))
    env.close()
    return found


def test_a_store_of_the_first_version_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    fill(tmp_path, is_sharing=False)
    expected = found(tmp_path)
    age(tmp_path)
    assert version(tmp_path) == b"1"
    assert found(tmp_path) == expected
    assert version(tmp_path) == b"15"
    assert found(tmp_path) == expected
    with (tmp_path / "redo").open("rb") as stream:
        assert struct.unpack(">I", stream.read(17)[13:]) == (2,)


def test_commits_in_its_redo_log_are_taken_over(tmp_path: Path) -> None:
    fill(tmp_path, is_sharing=False)
    segments, timers, _, staged, places, rest = found(tmp_path)
    store = Store.open(tmp_path)
    kept = store.load().segments[-1]
    batches = store.read(kept)
    store.close()
    body = _encode(batches)
    key = struct.pack(">QQ", 1, 1 << 30)
    extent = struct.pack(">QII", (1 << 30) + 4, 4, kept.bytes) + b"\x90"
    delayed = struct.pack(">QQQI", 4, 9000, 5, 1 | 1 << 31)
    age(
        tmp_path,
        [
            _encode([(DATABASES.index(b"segments"), key, xxh3_64_digest(body) + body)]),
            _encode([(DATABASES.index(b"index"), key, extent), (DATABASES.index(b"timers"), delayed, b"")]),
        ],
    )
    again = found(tmp_path)
    assert len(again[0]) == len(segments) + 1
    assert len(again[1]) == len(timers) + 1
    assert again[3:] == (staged, places, rest)
    assert found(tmp_path) == again


def test_a_redo_log_that_cannot_be_replaced_is_kept(tmp_path: Path) -> None:
    fill(tmp_path, is_sharing=False)
    expected = found(tmp_path)
    age(tmp_path)
    log = (tmp_path / "redo").read_bytes()
    (tmp_path / "redo.new").mkdir()  # nothing can be written there, as on a full disk
    for _ in range(2):
        with pytest.raises(StoreUnwritable):
            Store.open(tmp_path)
    assert (tmp_path / "redo").read_bytes() == log
    (tmp_path / "redo.new").rmdir()
    assert found(tmp_path) == expected


def test_a_row_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, is_sharing=False)
    age(tmp_path)
    env = lmdb.open(str(tmp_path), max_dbs=1, map_size=1 << 40)
    with env.begin(write=True, db=env.open_db(b"queues")) as transaction:
        transaction.put(struct.pack(">Q", 7), b"\xc1")
    env.close()
    for _ in range(2):
        with pytest.raises(RowDamaged, match="in database 'queues', key 0000000000000007: the queue cannot be read"):
            found(tmp_path)


def test_no_flipped_bit_makes_a_row_of_the_first_version(tmp_path: Path) -> None:
    fill(tmp_path, is_sharing=False)
    place = (tmp_path / "data.mdb").read_bytes().index(b"version15")
    content = (tmp_path / "data.mdb").read_bytes()
    for bit in range(place * 8, (place + 9) * 8):
        (tmp_path / "data.mdb").write_bytes(flipped(content, bit))
        with pytest.raises(StoreRefused):
            found(tmp_path)


def test_a_store_of_the_second_version_goes_on_as_it_is_and_older_programs_refuse_it_from_then_on(
    tmp_path: Path,
) -> None:
    fill(tmp_path, is_sharing=False)
    expected = found(tmp_path)
    env = lmdb.open(str(tmp_path), max_dbs=len(DATABASES) + 1, map_size=1 << 40)
    with env.begin(write=True) as transaction:
        transaction.put(b"version", b"2", db=env.open_db(b"meta", txn=transaction))
        for name in (b"shared", b"spilled_shared"):
            transaction.drop(env.open_db(name, txn=transaction))
    env.close()
    assert version(tmp_path) == b"2"
    assert found(tmp_path) == expected
    assert version(tmp_path) == b"15"
