"""The part of the coordinator's store that is about transactions.

    transactions    number, u64                 -> Transaction             undecided
    decisions       number, u64                 -> attempts                decided, while a shard has yet to follow
    conclusions     number, u64; shard, u32     -> ""                      decided, and not yet followed by that shard
    committed       vhost 0 name                -> number, u64; ended_ms, u64
    committed_times ended_ms, u64; number, u64  -> vhost 0 name            to forget the oldest
    births          vhost                       -> u64                     numbers below are of an earlier virtual host
                                                                           of that name
    state           "next_transaction"          -> u64
                    "clock"                     -> ClockNote

Committed names are many (a stream commits every second, and each is kept for days), so they are looked up here and held
nowhere else.
"""

import struct
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

import lmdb
import msgspec

from shardmq.limits import COMMITTED_KEPT_MS, RESERVED_KEPT_MS
from shardmq.runtime.clock import ClockNote
from shardmq.storage.table import Table
from shardmq.topology.changes import TransactionEnded
from shardmq.topology.entities import RESERVED_TRANSACTIONS, OpenTransaction

LEDGER_DATABASES: Final = (
    b"transactions",
    b"decisions",
    b"conclusions",
    b"committed",
    b"committed_times",
    b"births",
)
NEXT_TRANSACTION: Final = b"next_transaction"
CLOCK: Final = b"clock"

SWEEP_MAX: Final = 500
"""Committed names forgotten at once: some milliseconds, in which nobody else is served."""

_NUMBER: Final = struct.Struct(">Q")
_CONCLUSION: Final = struct.Struct(">QI")
_PAIR: Final = struct.Struct(">QQ")

_encode = msgspec.msgpack.Encoder().encode
_decode_transaction = msgspec.msgpack.Decoder(OpenTransaction).decode
_decode_attempts = msgspec.msgpack.Decoder(list[int]).decode
_decode_note = msgspec.msgpack.Decoder(ClockNote).decode


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision that some shards have yet to follow.

    Attributes:
        attempts: that count, in order.
        shards: that have not answered.
    """

    attempts: list[int]
    shards: list[int]


@dataclass(frozen=True, slots=True)
class StoredTransactions:
    """What a start finds.

    Attributes:
        undecided: in order of their numbers.
        conclusions: by transaction's number.
        next_number: of the next new transaction.
        clock: the last note taken of the steady clock; None where there never was a transaction.
    """

    undecided: list[OpenTransaction]
    conclusions: dict[int, Decision]
    next_number: int
    clock: ClockNote | None


class TransactionTable:
    """See the module. Its writes are part of the store's: each gets the `lmdb.Transaction`, called `write` here.

    Args:
        env: of the store.
        tables: of the store, by name.
    """

    def __init__(self, env: lmdb.Environment, tables: dict[bytes, Table]) -> None:
        self._env = env
        self._tables = tables

    def load(self) -> StoredTransactions:
        """Read all but the names of what was committed.

        Raises:
            RowDamaged: an entry is not what was written; those of names, too.
            msgspec.DecodeError: an entry cannot be read.
        """
        tables = self._tables
        with self._env.begin() as read:
            next_number = _number(tables[b"state"].get(read, NEXT_TRANSACTION), 1)
            note = tables[b"state"].get(read, CLOCK)
            undecided = [_decode_transaction(value) for _, value in tables[b"transactions"].items(read)]
            conclusions = {
                _number(key): Decision(_decode_attempts(value), []) for key, value in tables[b"decisions"].items(read)
            }
            for key, _ in tables[b"conclusions"].items(read):
                number, shard = _CONCLUSION.unpack(key)
                conclusions[number].shards.append(shard)
            for name in (b"committed", b"committed_times", b"births"):
                deque(tables[name].items(read), maxlen=0)
        return StoredTransactions(undecided, conclusions, next_number, _decode_note(note) if note else None)

    def committed(self, vhost: str, name: str, now_ms: int) -> int | None:
        """The number under which a name was committed; None where it was not, or is forgotten.

        Args:
            vhost: the transaction's virtual host, as it is now.
            name: the transaction's.
            now_ms: steady time.
        """
        with self._env.begin() as read:
            found = self._tables[b"committed"].get(read, _name_key(vhost, name))
            if found is None:
                return None
            born = _number(self._tables[b"births"].get(read, vhost.encode()), 0)
        number, ended_ms = _PAIR.unpack(found)
        return int(number) if number >= born and now_ms < ended_ms + COMMITTED_KEPT_MS else None

    def has_to_forget(self, now_ms: int) -> bool:
        """Whether names of what was committed are past their time (steady)."""
        with self._env.begin(db=self._tables[b"committed_times"].db) as read:
            times = read.cursor()
            return times.first() and _is_past(times.key(), now_ms)

    def forget(self, write: lmdb.Transaction, now_ms: int) -> None:
        """Forget a portion of the names that are past their time (steady)."""
        times, committed = self._tables[b"committed_times"], self._tables[b"committed"]
        for key, name in list(islice(times.items(write), SWEEP_MAX)):
            if not _is_past(key, now_ms):
                return
            found = committed.get(write, name)
            if found is not None and _PAIR.unpack(found) == _PAIR.unpack(key)[::-1]:  # not committed again
                committed.delete(write, name)
            times.delete(write, key)

    def begin(self, write: lmdb.Transaction, transaction: OpenTransaction) -> None:
        """A new one, or its time begins anew."""
        number = transaction.number
        self._tables[b"transactions"].put(write, _NUMBER.pack(number), _encode(transaction))
        state = self._tables[b"state"]
        if number >= _number(state.get(write, NEXT_TRANSACTION), 1):
            state.put(write, NEXT_TRANSACTION, _NUMBER.pack(number + 1))

    def end(self, write: lmdb.Transaction, ended: TransactionEnded, shards: int) -> None:
        """The decision, and who is to follow it: all shards."""
        number = _NUMBER.pack(ended.number)
        self._tables[b"transactions"].delete(write, number)
        self._tables[b"decisions"].put(write, number, _encode(ended.attempts))
        for shard in range(shards):
            self._tables[b"conclusions"].put(write, _CONCLUSION.pack(ended.number, shard), b"")
        if ended.is_committed:
            name, ended_ms = _name_key(ended.vhost, ended.name), ended.ended_ms
            if ended.name.startswith(RESERVED_TRANSACTIONS):
                ended_ms = max(0, ended_ms - COMMITTED_KEPT_MS + RESERVED_KEPT_MS)  # as if it had ended so long ago
            self._tables[b"committed"].put(write, name, _PAIR.pack(ended.number, ended_ms))
            self._tables[b"committed_times"].put(write, _PAIR.pack(ended_ms, ended.number), name)

    def conclude(self, write: lmdb.Transaction, number: int, shard: int) -> None:
        """A shard has followed a decision; it is forgotten when all have."""
        conclusions = self._tables[b"conclusions"]
        conclusions.delete(write, _CONCLUSION.pack(number, shard))
        rest = write.cursor(conclusions.db)
        if not rest.set_range(_NUMBER.pack(number)) or bytes(rest.key())[: _NUMBER.size] != _NUMBER.pack(number):
            self._tables[b"decisions"].delete(write, _NUMBER.pack(number))

    def note(self, write: lmdb.Transaction, note: ClockNote) -> None:
        """What time it is."""
        self._tables[b"state"].put(write, CLOCK, _encode(note))

    def bear(self, write: lmdb.Transaction, vhost: str) -> None:
        """A virtual host is made: what was committed in an earlier one of that name is none of its own."""
        next_number = self._tables[b"state"].get(write, NEXT_TRANSACTION)
        if next_number is not None:
            self._tables[b"births"].put(write, vhost.encode(), next_number)

    def bury(self, write: lmdb.Transaction, vhost: str) -> None:
        """A virtual host is gone."""
        self._tables[b"births"].delete(write, vhost.encode())


def _number(value: bytes | memoryview | None, default: int = 0) -> int:
    return default if value is None else int.from_bytes(value, "big")


def _name_key(vhost: str, name: str) -> bytes:
    return f"{vhost}\0{name}".encode()


def _is_past(key: bytes | memoryview, now_ms: int) -> bool:
    ended_ms, _ = _PAIR.unpack(key)
    return bool(now_ms >= ended_ms + COMMITTED_KEPT_MS)
