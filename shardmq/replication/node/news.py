"""What the register tells a node beside its group's key: where the others are, and what operators wish."""

from collections.abc import Iterable
from typing import Any, Final

from shardmq.replication.core.events import ElectUnclean, Transfer
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import Host, Wish

AGAIN_SECONDS: Final = 1.0
"""Before a wish that did not come true is tried again."""


class Addresses:
    """Where the replicas of a group are.

    Args:
        group: name of the group.
    """

    def __init__(self, group: str) -> None:
        self._name = f"{group}/replica"
        self._known: dict[str, str] = {}

    def seen(self, entries: Iterable[Entry[Host]]) -> None:
        """Take note of hosts. One that is not in the register at the moment stays where it was."""
        for entry in entries:
            if entry.value is not None and self._name in entry.value.addresses:
                self._known[entry.name] = entry.value.addresses[self._name]

    def of(self, group: Group) -> dict[str, str]:
        """Return the addresses of a group's replicas, as far as they are known."""
        return {name: self._known[name] for name in group.replicas if name in self._known}


class Wishes:
    """What operators, or the balance of the broker, wish of a group's replica.

    Args:
        group: name of the group.
        host: of the replica.
    """

    def __init__(self, group: str, host: str) -> None:
        self._name = group
        self._host = host
        self._wish = Wish()
        self._tried_at = float("-inf")
        self._unclean = ""

    def seen(self, entries: Iterable[Entry[Any]]) -> None:
        """Take note of wishes."""
        for entry in entries:
            if entry.name == self._name:
                self._wish = entry.value or Wish()
                self._tried_at = float("-inf")

    def due(self, now: float, group: Group | None, leads: int) -> Transfer | ElectUnclean | None:
        """Return what is to be done now. A wish holds for one term: an election makes it void.

        Args:
            now: seconds on the replica's clock.
            group: what is known of the group's key.
            leads: the term that this replica leads.
        """
        wish = self._wish
        if not wish.primary or group is None or wish.term != group.term or now - self._tried_at < AGAIN_SECONDS:
            return None
        self._tried_at = now
        if wish.unclean:
            is_mine = wish.primary == self._host and not leads and wish.unclean != self._unclean
            self._unclean = wish.unclean if is_mine else self._unclean
            return ElectUnclean(wish.unclean) if is_mine else None
        may = leads == wish.term and wish.primary != self._host and wish.primary in group.in_sync
        return Transfer(wish.primary) if may else None
