"""Sends a process's links to where the primaries of their groups are."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from shardmq.bus.curve import COMPLAINT_SECONDS, COORDINATOR, process_name
from shardmq.bus.dialer import Dialer
from shardmq.errors import StartupRefused
from shardmq.replication.directory import Primary, PrimaryDirectory

SETTLING_SECONDS: Final = 0.3
"""A primary that hands over says what it has taken in before it does; etcd may tell of the next one sooner still. So
long the link to it stays, for what was posted would be refused with it."""

AGAIN_SECONDS: Final = 1.0
"""Between two tries to call an address that cannot be called, as where its host's key was not copied to here yet."""

_log = logging.getLogger(__name__)


class PrimaryDialing:
    """Keeps dialers at the addresses of primaries.

    A term that begins where the one before was changes nothing here: its process is another one, so the session with
    the one before has ended by itself, and there may be one with the new process already.

    Args:
        directory: of the primaries; this closes it.
        dialers: by group.
    """

    def __init__(self, directory: PrimaryDirectory, dialers: "Mapping[str, Dialer[Any]]") -> None:
        self._directory = directory
        self._dialers = dict(dialers)
        self._called: dict[str, Primary] = {}
        self._refused: dict[str, Primary] = {}
        self._again_at = 0.0
        self._settling: dict[str, float] = {}
        self._said: dict[str, tuple[str, float]] = {}

    @property
    def shards(self) -> int:
        """How many shards the broker has, as etcd has told."""
        return self._directory.shards

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to look at."""
        return self._directory.fileno()

    def add(self, group: str, dialer: Dialer[Any], now: float) -> None:
        """Keep one more dialer at its group's primary. `now` is in monotonic seconds."""
        self._dialers[group] = dialer
        self._go(self._directory.primaries.of(group), now)

    def look(self, now: float) -> bool:
        """Take in what etcd has told, and try again what could not be called.

        Args:
            now: monotonic seconds.

        Returns:
            Whether a dialer calls elsewhere now.
        """
        wanted: list[Primary] = []
        if self._directory.look() or not self._called or self._settling:
            wanted = [self._directory.primaries.of(group) for group in self._dialers]
            wanted = [primary for primary in wanted if primary != self._called.get(primary.group)]
        if self._refused and now >= self._again_at:
            self._again_at = now + AGAIN_SECONDS
            wanted += [
                primary for group, primary in self._refused.items() if group not in {each.group for each in wanted}
            ]
        moved = [self._go(primary, now) for primary in wanted]
        return any(moved)

    def close(self) -> None:
        """Watch no more."""
        self._directory.close()

    def _go(self, primary: Primary, now: float) -> bool:
        """Have a group's dialer call its primary; returns whether that is elsewhere."""
        group, dialer = primary.group, self._dialers[primary.group]
        if self._is_settling(primary, now):
            return False
        self._called[group] = primary
        self._refused.pop(group, None)
        before = dialer.address
        try:
            dialer.redirect(primary.address, process_name(primary.host, group))
        except StartupRefused as refused:
            self._refused[group] = primary
            self._complain(group, str(refused), now)
        if dialer.address == before:
            return False
        if dialer.address:
            _log.info("the primary of %s is %s at %s (term %d)", group, primary.host, dialer.address, primary.term)
        return True

    @property
    def is_settling(self) -> bool:
        """Whether a primary that has handed over is yet to say what it took in; `look` again soon."""
        return bool(self._settling)

    def _is_settling(self, primary: Primary, now: float) -> bool:
        group, before = primary.group, self._called.get(primary.group)
        known = self._directory.primaries.groups.get(group)
        has_handed_over = before is not None and known is not None and before.host in known.in_sync
        if group == COORDINATOR or not (has_handed_over and self._dialers[group].is_open):
            self._settling.pop(group, None)
            return False
        if now < self._settling.setdefault(group, now + SETTLING_SECONDS):
            return True
        del self._settling[group]
        return False

    def _complain(self, group: str, reason: str, now: float) -> None:
        before, since = self._said.get(group, ("", 0.0))
        if reason != before or now - since >= COMPLAINT_SECONDS:
            self._said[group] = reason, now
            _log.warning("the primary of %s cannot be called: %s", group, reason)
