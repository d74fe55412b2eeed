"""What may be new is read every second, for all watchers of a client at once.

A reading has etcd ask a majority whether the member that answers is up to date, however little it brings: with one for
each watcher, three hosts on which nothing happened took etcd a sixth of a slow core.
"""

from typing import Final, Protocol

import msgspec

from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.messages import Range, RangeAnswer, TxnAnswer, ranges_request
from shardmq.runtime.clock import boottime

LOOK_SECONDS: Final = 1.0
"""Between two readings of what may be new. A stream that does not bring until the next one what one of them has found
is given up. So who is primary is known within 1.5 s where the member that was to tell is frozen or cut off, in time for
a failover in 3 s; and by then swaps go to another member."""

READ_SECONDS: Final = 5.0
"""For one reading, from whichever member."""


class Looker(Protocol):
    """Who wants to know what is new."""

    def next_look(self) -> Range | None:
        """What to read for it now; None for nothing this time."""
        ...

    def has_looked(self, asked: float, outcome: RangeAnswer | EtcdError) -> None:
        """It was read, having been asked for at a time by `boottime`; or could not be."""
        ...


class Looks:
    """The readings for all watchers of a client.

    Args:
        client: of etcd.
    """

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._lookers: list[Looker] = []

    def add(self, looker: Looker) -> None:
        """Read for somebody from now on."""
        if not self._lookers:
            self._client.later(LOOK_SECONDS, self._look)
        self._lookers.append(looker)

    def remove(self, looker: Looker) -> None:
        """Read for somebody no more; what is under way may still be told."""
        if looker in self._lookers:
            self._lookers.remove(looker)

    def _look(self) -> None:
        if not self._lookers:
            return
        self._client.later(LOOK_SECONDS, self._look)
        wanted = [(looker, what) for looker in list(self._lookers) if (what := looker.next_look()) is not None]
        if not wanted:
            return
        asked = boottime()

        def answered(outcome: TxnAnswer | EtcdError) -> None:
            if isinstance(outcome, EtcdError):
                for looker, _ in wanted:
                    looker.has_looked(asked, outcome)
                return
            for (looker, _), part in zip(wanted, outcome.responses, strict=False):
                found = part.response_range or RangeAnswer()
                looker.has_looked(asked, msgspec.structs.replace(found, header=outcome.header))

        self._client.ask(ranges_request([what for _, what in wanted]), asked + READ_SECONDS, answered)
