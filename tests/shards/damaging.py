"""Damage to what a shard has stored, made on purpose: one bit, in one row."""

from pathlib import Path

from shardmq.shards.storage.schema import DATABASES, PLACE
from shardmq.shards.storage.store import Store

Rows = dict[bytes, bytes]


def rows(store: Store, database: str, queue: int) -> Rows:
    """A queue's rows in one database."""
    store.engine.sync()
    prefix = queue.to_bytes(8, "big")
    db = store.engine._dbs[DATABASES.index(database.encode())]
    with store.engine._env.begin(db=db) as transaction:
        return {bytes(key): bytes(value) for key, value in transaction.cursor() if bytes(key).startswith(prefix)}


def flip(store: Store, database: str, key: bytes) -> None:
    """One bit of a row changes on the disk, in the middle of its value."""
    store.engine.sync()
    db = store.engine._dbs[DATABASES.index(database.encode())]
    with store.engine._env.begin(write=True, db=db) as transaction:
        value = bytearray(transaction.get(key))
        value[len(value) // 2] ^= 4
        transaction.put(key, bytes(value))


def flip_body(store: Store, queue: int, first: int = 0) -> None:
    """A segment's messages are damaged."""
    flip(store, "segments", PLACE.pack(queue, first))


def flip_in_file(file: Path, content: bytes) -> None:
    """One bit changes where a file has these bytes, which it has once."""
    data = file.read_bytes()
    assert data.count(content) == 1
    place = data.index(content) + len(content) // 2
    with file.open("r+b") as stream:
        stream.seek(place)
        stream.write(bytes([data[place] ^ 4]))
