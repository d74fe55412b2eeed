"""Transactions, decisions, and which shards have yet to follow them.

Committed names are many (a stream commits every second, and each is kept for days), so they are looked up in the store
and held nowhere else.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from shardmq.coordinator.storage.schema import (
    CLOCK,
    CONCLUSION,
    NEXT_TRANSACTION,
    NUMBER,
    PAIR,
    decode_attempts,
    decode_clock,
    decode_transaction,
    encode,
    name_key,
    number_of,
)
from shardmq.coordinator.storage.write_batch import Rows, WriteBatch
from shardmq.limits import COMMITTED_KEPT_MS, RESERVED_KEPT_MS, SHOVEL_KEPT_MS
from shardmq.runtime.clock import ClockNote
from shardmq.topology.changes import TransactionEnded
from shardmq.topology.entities import RESERVED_TRANSACTIONS, SHOVEL_TRANSACTIONS, OpenTransaction

SWEEP_MAX: Final = 500
"""Committed names forgotten in one step, which takes some milliseconds of a pass."""


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
class RecoveredTransactions:
    """The transactions in the store at a start.

    Attributes:
        undecided: in order of their numbers.
        decisions: that some shard has yet to follow, by transaction's number.
        next_number: of the next new transaction.
        clock: the last note taken of the steady clock; None where there never was a transaction.
    """

    undecided: list[OpenTransaction]
    decisions: dict[int, Decision]
    next_number: int
    clock: ClockNote | None


class TransactionTable:
    """The part of the coordinator's store that is about transactions.

    Args:
        rows: of the store.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def load(self) -> RecoveredTransactions:
        """Read all but the names of what was committed.

        Raises:
            RowDamaged: an entry is not what was written; those of names, too.
            msgspec.DecodeError: an entry cannot be read.
        """
        rows = self._rows
        next_number = number_of(rows.get(b"state", NEXT_TRANSACTION), 1)
        note = rows.get(b"state", CLOCK)
        undecided = [decode_transaction(value) for _, value in rows.scan(b"transactions")]
        decisions = {number_of(key): Decision(decode_attempts(value), []) for key, value in rows.scan(b"decisions")}
        for key, _ in rows.scan(b"conclusions"):
            number, shard = CONCLUSION.unpack(key)
            decisions[number].shards.append(shard)
        for name in (b"committed", b"committed_times", b"births"):
            deque(rows.scan(name), maxlen=0)  # to notice damage at the start
        return RecoveredTransactions(undecided, decisions, next_number, decode_clock(note) if note else None)

    def committed(self, vhost: str, name: str, now_ms: int) -> int | None:
        """The number under which a name was committed; None where it was not, or is forgotten.

        Args:
            vhost: the transaction's virtual host, as it is now.
            name: the transaction's.
            now_ms: steady time.
        """
        found = self._rows.get(b"committed", name_key(vhost, name))
        if found is None:
            return None
        born = number_of(self._rows.get(b"births", vhost.encode()))
        number, ended_ms = PAIR.unpack(found)
        return int(number) if number >= born and now_ms < ended_ms + COMMITTED_KEPT_MS else None

    def forget(self, batch: WriteBatch, now_ms: int) -> None:
        """Forget a portion of the committed names that are past their time (steady)."""
        for count, (key, name) in enumerate(self._rows.scan(b"committed_times")):
            if count == SWEEP_MAX or not _is_past(key, now_ms):
                return
            found = batch.get(b"committed", name)
            if found is not None and PAIR.unpack(found) == PAIR.unpack(key)[::-1]:  # not committed again
                batch.delete(b"committed", name)
            batch.delete(b"committed_times", key)

    def begin(self, batch: WriteBatch, transaction: OpenTransaction) -> None:
        """Write a new transaction, or one whose time begins anew."""
        number = transaction.number
        batch.put(b"transactions", NUMBER.pack(number), encode(transaction))
        if number >= number_of(batch.get(b"state", NEXT_TRANSACTION), 1):
            batch.put(b"state", NEXT_TRANSACTION, NUMBER.pack(number + 1))

    def end(self, batch: WriteBatch, ended: TransactionEnded, shards: int) -> None:
        """Write a decision, which all shards are to follow."""
        number = NUMBER.pack(ended.number)
        batch.delete(b"transactions", number)
        batch.put(b"decisions", number, encode(ended.attempts))
        for shard in range(shards):
            batch.put(b"conclusions", CONCLUSION.pack(ended.number, shard), b"")
        if ended.is_committed:
            name, ended_ms = name_key(ended.vhost, ended.name), ended.ended_ms
            if ended.name.startswith(RESERVED_TRANSACTIONS):
                kept_ms = SHOVEL_KEPT_MS if ended.name.startswith(SHOVEL_TRANSACTIONS) else RESERVED_KEPT_MS
                ended_ms = max(0, ended_ms - COMMITTED_KEPT_MS + kept_ms)  # as if it had ended so long ago
            batch.put(b"committed", name, PAIR.pack(ended.number, ended_ms))
            batch.put(b"committed_times", PAIR.pack(ended_ms, ended.number), name)

    def followed(self, batch: WriteBatch, number: int, shard: int) -> None:
        """Note that a shard has followed a decision, which is forgotten when all have."""
        batch.delete(b"conclusions", CONCLUSION.pack(number, shard))
        if not batch.has_prefix(b"conclusions", NUMBER.pack(number)):
            batch.delete(b"decisions", NUMBER.pack(number))

    def note(self, batch: WriteBatch, note: ClockNote) -> None:
        """Write a note of the time."""
        batch.put(b"state", CLOCK, encode(note))

    def add_vhost(self, batch: WriteBatch, vhost: str) -> None:
        """Note where a new virtual host's transactions begin: those committed in an earlier one are not its own."""
        next_number = batch.get(b"state", NEXT_TRANSACTION)
        if next_number is not None:
            batch.put(b"births", vhost.encode(), next_number)

    def remove_vhost(self, batch: WriteBatch, vhost: str) -> None:
        """Forget where a deleted virtual host's transactions began."""
        batch.delete(b"births", vhost.encode())


def _is_past(key: bytes, now_ms: int) -> bool:
    ended_ms, _ = PAIR.unpack(key)
    return bool(now_ms >= ended_ms + COMMITTED_KEPT_MS)
