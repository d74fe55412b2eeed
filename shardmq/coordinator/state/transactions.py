"""What the coordinator knows of transactions beside the topology: their numbers, committed names, the time."""

import math
from collections.abc import Collection, Iterable
from typing import Final

from shardmq.coordinator.rules.transactions import TransactionCommand, TransactionFacts, is_overdue
from shardmq.coordinator.storage.store import Store
from shardmq.runtime.clock import ClockNote, SteadyClock
from shardmq.topology.changes import Change, TransactionBegun, TransactionEnded, VhostRemoved
from shardmq.topology.entities import OpenTransaction
from shardmq.topology.topology import Topology

NOTE_SECONDS: Final = 1.0
"""Time between two notes of the time while a transaction is undecided; a wrong clock can prolong it by as much."""

SWEEP_SECONDS: Final = 1.0
"""How often a portion of the committed names is forgotten, if any are past their time."""


class TransactionState:
    """Transaction numbers, committed names, deadlines.

    Args:
        topology: the authority; only looked at.
        store: knows what was committed.
        clock: steady time.
        next_number: of the next new transaction.

    Attributes:
        next_number: of the next new transaction.
    """

    def __init__(self, topology: Topology, store: Store, clock: SteadyClock, next_number: int) -> None:
        self._topology = topology
        self._store = store
        self._clock = clock
        self.next_number = next_number
        self._committed: dict[tuple[str, str], int] = {}  # committed in this pass, not yet on disk
        self._removed: set[str] = set()  # virtual hosts, likewise
        self._expiring: set[int] = set()
        self._next_due_ms = 0.0
        self._note_at = self._sweep_at = 0.0
        self._is_note_due = False

    @property
    def now_ms(self) -> int:
        """Steady time."""
        return self._clock.now_ms()

    def skip(self, number: int) -> None:
        """Begin none with a number that a shard knows: a coordinator whose store is lost may have given it."""
        self.next_number = max(self.next_number, number + 1)

    def facts(
        self, command: TransactionCommand, following: int, growing: Collection[tuple[str, str]]
    ) -> TransactionFacts:
        """What the rules need to know for a command."""
        now_ms = self.now_ms
        committed = self._find(command.vhost, command.name, now_ms)
        return TransactionFacts(self.next_number, now_ms, committed, following, growing)

    def take_in(self, changes: Iterable[Change]) -> None:
        """Take in changes that were decided in this pass, and are not yet on disk."""
        for change in changes:
            match change:
                case TransactionBegun(there):
                    self.next_number = max(self.next_number, there.number + 1)
                    self._next_due_ms = min(self._next_due_ms, there.touched_ms + there.timeout_ms)
                    self._is_note_due = True
                case TransactionEnded():
                    self._is_note_due = True
                    if change.is_committed:
                        self._committed[change.vhost, change.name] = change.number
                case VhostRemoved():
                    self._removed.add(change.name)
                    self._committed = {
                        name: number for name, number in self._committed.items() if name[0] != change.name
                    }

    def written(self) -> None:
        """Note that everything taken in is on disk."""
        self._committed.clear()
        self._removed.clear()

    def take_note(self) -> ClockNote | None:
        """A note of the time, if it is due to be written with this pass; else None."""
        if not self._is_note_due:
            return None
        self._is_note_due = False
        return self._clock.note()

    def tick(self, now: float) -> None:
        """Note the time and forget old names when they are due. `now` is in monotonic seconds."""
        if self._topology.transactions and now >= self._note_at:
            self._note_at = now + NOTE_SECONDS
            self._is_note_due = True
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            self._store.forget_committed(self.now_ms)

    def take_overdue(self) -> list[OpenTransaction]:
        """The transactions whose timeout has passed, each once until `expired` is called for it."""
        now_ms = self.now_ms
        if now_ms < self._next_due_ms:
            return []
        there = self._topology.transactions.values()
        self._next_due_ms = min((each.touched_ms + each.timeout_ms for each in there), default=math.inf)
        overdue = [each for each in there if is_overdue(each, now_ms) and each.number not in self._expiring]
        self._expiring.update(each.number for each in overdue)
        return overdue

    def expired(self, transaction: int) -> None:
        """Note that a transaction's abort was tried. One that still exists is listed as overdue again."""
        self._expiring.discard(transaction)

    def _find(self, vhost: str, name: str, now_ms: int) -> int | None:
        found = self._committed.get((vhost, name))
        if found is None and vhost not in self._removed:
            found = self._store.committed(vhost, name, now_ms)
        return found
