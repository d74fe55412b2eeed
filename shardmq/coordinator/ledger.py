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
from dataclasses import dataclass
from typing import Final

import lmdb
import msgspec

from shardmq.clock import ClockNote
from shardmq.commands import TransactionEnded
from shardmq.environment import Environment
from shardmq.limits import COMMITTED_KEPT_MS, RESERVED_KEPT_MS
from shardmq.model import RESERVED_TRANSACTIONS, Transaction

LEDGER_DATABASES: Final = (
    b"transactions", b"decisions", b"conclusions", b"committed", b"committed_times", b"births",
)  # fmt: skip
NEXT_TRANSACTION: Final = b"next_transaction"
CLOCK: Final = b"clock"

SWEEP_MAX: Final = 500
"""Committed names forgotten at once: some milliseconds, in which nobody else is served."""

_NUMBER: Final = struct.Struct(">Q")
_CONCLUSION: Final = struct.Struct(">QI")
_PAIR: Final = struct.Struct(">QQ")

_encode = msgspec.msgpack.Encoder().encode
_decode_transaction = msgspec.msgpack.Decoder(Transaction).decode
_decode_attempts = msgspec.msgpack.Decoder(list[int]).decode
_decode_note = msgspec.msgpack.Decoder(ClockNote).decode


@dataclass(frozen=True, slots=True)
class Conclusion:
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

    undecided: list[Transaction]
    conclusions: dict[int, Conclusion]
    next_number: int
    clock: ClockNote | None


class Ledger:
    """See the module. Its writes are part of the store's: each gets the `lmdb.Transaction`, called `write` here.

    Args:
        environment: of the store.
    """

    def __init__(self, environment: Environment) -> None:
        self._env = environment.env
        self._dbs = environment.dbs

    def load(self) -> StoredTransactions:
        """Read all but the names of what was committed.

        Raises:
            msgspec.DecodeError: an entry cannot be read.
        """
        with self._env.begin() as read:
            state = self._dbs[b"state"]
            next_number = _number(read.get(NEXT_TRANSACTION, db=state), 1)
            note = read.get(CLOCK, db=state)
            undecided = [_decode_transaction(value) for _, value in read.cursor(self._dbs[b"transactions"])]
            conclusions = {
                _number(key): Conclusion(_decode_attempts(value), [])
                for key, value in read.cursor(self._dbs[b"decisions"])
            }
            for key, _ in read.cursor(self._dbs[b"conclusions"]):
                number, shard = _CONCLUSION.unpack(key)
                conclusions[number].shards.append(shard)
        return StoredTransactions(undecided, conclusions, next_number, _decode_note(note) if note else None)

    def committed(self, vhost: str, name: str, now_ms: int) -> int | None:
        """The number under which a name was committed; None where it was not, or is forgotten.

        Args:
            vhost: the transaction's virtual host, as it is now.
            name: the transaction's.
            now_ms: steady time.
        """
        with self._env.begin() as read:
            found = read.get(_name_key(vhost, name), db=self._dbs[b"committed"])
            if found is None:
                return None
            born = _number(read.get(vhost.encode(), db=self._dbs[b"births"]), 0)
        number, ended_ms = _PAIR.unpack(found)
        return int(number) if number >= born and now_ms < ended_ms + COMMITTED_KEPT_MS else None

    def has_to_forget(self, now_ms: int) -> bool:
        """Whether names of what was committed are past their time (steady)."""
        with self._env.begin(db=self._dbs[b"committed_times"]) as read:
            times = read.cursor()
            return times.first() and _is_past(times.key(), now_ms)

    def forget(self, write: lmdb.Transaction, now_ms: int) -> None:
        """Forget a portion of the names that are past their time (steady)."""
        times = write.cursor(self._dbs[b"committed_times"])
        if not times.first():
            return
        for _ in range(SWEEP_MAX):
            key, name = times.item()
            if not key or not _is_past(key, now_ms):
                return
            committed = write.get(name, db=self._dbs[b"committed"])
            if committed is not None and _PAIR.unpack(committed) == _PAIR.unpack(key)[::-1]:  # not committed again
                write.delete(name, db=self._dbs[b"committed"])
            times.delete()

    def begin(self, write: lmdb.Transaction, transaction: Transaction) -> None:
        """A new one, or its time begins anew."""
        number = transaction.number
        write.put(_NUMBER.pack(number), _encode(transaction), db=self._dbs[b"transactions"])
        state = self._dbs[b"state"]
        if number >= _number(write.get(NEXT_TRANSACTION, db=state), 1):
            write.put(NEXT_TRANSACTION, _NUMBER.pack(number + 1), db=state)

    def end(self, write: lmdb.Transaction, ended: TransactionEnded, shards: int) -> None:
        """The decision, and who is to follow it: all shards."""
        number = _NUMBER.pack(ended.number)
        write.delete(number, db=self._dbs[b"transactions"])
        write.put(number, _encode(ended.attempts), db=self._dbs[b"decisions"])
        for shard in range(shards):
            write.put(_CONCLUSION.pack(ended.number, shard), b"", db=self._dbs[b"conclusions"])
        if ended.is_committed:
            name, ended_ms = _name_key(ended.vhost, ended.name), ended.ended_ms
            if ended.name.startswith(RESERVED_TRANSACTIONS):
                ended_ms = max(0, ended_ms - COMMITTED_KEPT_MS + RESERVED_KEPT_MS)  # as if it had ended so long ago
            write.put(name, _PAIR.pack(ended.number, ended_ms), db=self._dbs[b"committed"])
            write.put(_PAIR.pack(ended_ms, ended.number), name, db=self._dbs[b"committed_times"])

    def conclude(self, write: lmdb.Transaction, number: int, shard: int) -> None:
        """A shard has followed a decision; it is forgotten when all have."""
        conclusions = self._dbs[b"conclusions"]
        write.delete(_CONCLUSION.pack(number, shard), db=conclusions)
        rest = write.cursor(conclusions)
        if not rest.set_range(_NUMBER.pack(number)) or bytes(rest.key())[: _NUMBER.size] != _NUMBER.pack(number):
            write.delete(_NUMBER.pack(number), db=self._dbs[b"decisions"])

    def note(self, write: lmdb.Transaction, note: ClockNote) -> None:
        """What time it is."""
        write.put(CLOCK, _encode(note), db=self._dbs[b"state"])

    def bear(self, write: lmdb.Transaction, vhost: str) -> None:
        """A virtual host is made: what was committed in an earlier one of that name is none of its own."""
        next_number = write.get(NEXT_TRANSACTION, db=self._dbs[b"state"])
        if next_number is not None:
            write.put(vhost.encode(), next_number, db=self._dbs[b"births"])

    def bury(self, write: lmdb.Transaction, vhost: str) -> None:
        """A virtual host is gone."""
        write.delete(vhost.encode(), db=self._dbs[b"births"])


def _number(value: bytes | memoryview | None, default: int = 0) -> int:
    return default if value is None else int.from_bytes(value, "big")


def _name_key(vhost: str, name: str) -> bytes:
    return f"{vhost}\0{name}".encode()


def _is_past(key: bytes | memoryview, now_ms: int) -> bool:
    ended_ms, _ = _PAIR.unpack(key)
    return bool(now_ms >= ended_ms + COMMITTED_KEPT_MS)
