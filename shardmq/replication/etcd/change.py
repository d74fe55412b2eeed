"""A value that is changed until it is what it should be, whoever else writes it and whatever answers are lost."""

from collections.abc import Callable
from typing import Final, Generic

from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError, OutcomeUnknown, Unreachable
from shardmq.replication.etcd.register import Entry, NotSwapped, Register, SwapOutcome, Swapped, SwapUnknown, Value
from shardmq.replication.etcd.values import Kind
from shardmq.runtime.clock import boottime

ATTEMPT_SECONDS: Final = 1.0
"""For one reading or swap, and twice as long after each that etcd did not answer: it may be slow."""

ATTEMPT_SECONDS_MAX: Final = 8.0
"""None gets longer."""

AGAIN_SECONDS: Final = 0.25
"""Before the next attempt, where etcd could not be asked."""

Edit = Callable[[Value | None], Value | None]
"""Called with the value as it is, None where there is none; returns what it should be, or None to leave it. It may be
called again with what it has made: after a lost answer, nobody knows."""

Outcome = tuple[Entry[Value], bool] | EtcdError
"""What the key has now, and whether it was changed; or why it could not be."""


class Change(Generic[Value]):
    """A change of one value; two of one value are made one after the other.

    Args:
        client: of etcd.
        register: of the broker.
        kind: of the value.
        name: of the host or group; "" for the broker.
        edit: what the value should be; None to delete it.
        deadline: until when it is tried, by `boottime`.
        done: called from the client's `turn` when it is over.
    """

    def __init__(
        self,
        client: EtcdClient,
        register: Register,
        kind: Kind[Value],
        name: str,
        edit: Edit[Value] | None,
        deadline: float,
        done: Callable[[Outcome[Value]], None],
    ) -> None:
        self._client = client
        self._register = register
        self._kind = kind
        self._name = name
        self._edit = edit
        self._deadline = deadline
        self._done = done
        self._seconds = ATTEMPT_SECONDS
        self._lost_marks: set[str] = set()
        self._has_deleted = False

    def begin(self) -> None:
        """Read what is there, and go on from that."""
        self._register.read(self._kind, self._name, self._until, self._read)

    @property
    def _until(self) -> float:
        return min(self._deadline, boottime() + self._seconds)

    def _read(self, outcome: Entry[Value] | EtcdError) -> None:
        if isinstance(outcome, EtcdError):
            self._fail(outcome)
        else:
            self._decide(outcome)

    def _decide(self, entry: Entry[Value]) -> None:
        if entry.mark in self._lost_marks:
            self._done((entry, True))
            return
        if self._edit is None and entry.value is not None:
            self._register.remove(self._kind, entry, self._until, self._removed)
            return
        value = self._edit(entry.value) if self._edit is not None else None
        if value is None or value == entry.value:
            self._done((entry, self._has_deleted))
        else:
            self._register.swap(self._kind, entry, value, self._until, self._swapped)

    def _swapped(self, outcome: SwapOutcome[Value]) -> None:
        if isinstance(outcome, Swapped):
            self._done((outcome.entry, True))
        elif isinstance(outcome, NotSwapped):
            self._decide(outcome.entry)
        elif isinstance(outcome, SwapUnknown):
            self._lost_marks.add(outcome.mark)
            self._fail(outcome.error)
        else:
            self._fail(outcome)

    def _removed(self, outcome: bool | EtcdError) -> None:
        if isinstance(outcome, EtcdError):
            self._has_deleted |= isinstance(outcome, OutcomeUnknown)
            self._fail(outcome)
        else:
            self._has_deleted |= outcome
            self.begin()

    def _fail(self, error: EtcdError) -> None:
        """Try again, where that is of use and there is time."""
        self._seconds = min(2 * self._seconds, ATTEMPT_SECONDS_MAX)
        is_passing = isinstance(error, (Unreachable, OutcomeUnknown))
        if is_passing and boottime() + AGAIN_SECONDS < self._deadline:
            self._client.later(AGAIN_SECONDS, self.begin)
        else:
            self._done(error)
