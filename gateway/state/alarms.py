"""Alarms: a shard, or this gateway, runs short of memory or disk. While one is on, publishers wait."""

from collections.abc import Callable
from typing import Final, Protocol

from shardmq.runtime.memory import memory_default, rss_bytes

WATCH_SECONDS: Final = 1.0
"""How often this process looks how large it is."""

CLEAR_SHARE: Final = 0.9
"""An alarm goes off a good way below where it went on, so that publishers are not stopped and started by turns."""


class Publishing(Protocol):
    """A connection that may be publishing."""

    def block(self, reason: str) -> None:
        """Hold its publishes from now on."""

    def unblock(self) -> None:
        """Take its publishes again."""


class Alarms:
    """Which alarms are on. Connections that publish are told when the first goes on, and when the last goes off.

    Attributes:
        reason: what is short, where; "" while nothing is.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._on: dict[tuple[str, str], str] = {}
        self._publishing: set[Publishing] = set()

    def join(self, connection: Publishing) -> None:
        """Tell a connection of alarms from now on, and at once where one is on."""
        self._publishing.add(connection)
        if self.reason:
            connection.block(self.reason)

    def leave(self, connection: Publishing) -> None:
        """Forget a connection that is gone."""
        self._publishing.discard(connection)

    def turn(self, process: str, resource: str, is_on: bool, text: str) -> None:
        """Turn an alarm of a process on or off."""
        if is_on:
            self._on[process, resource] = text
        else:
            self._on.pop((process, resource), None)
        self._changed()

    def forget(self, process: str) -> None:
        """Forget the alarms of a process that is away."""
        for alarm in [alarm for alarm in self._on if alarm[0] == process]:
            del self._on[alarm]
        self._changed()

    def of(self, process: str) -> list[str]:
        """The texts of a process's alarms that are on."""
        return [text for (owner, _), text in sorted(self._on.items()) if owner == process]

    def _changed(self) -> None:
        was_on = bool(self.reason)
        self.reason = self._reason()
        if self.reason and not was_on:
            for connection in list(self._publishing):
                connection.block(self.reason)
        elif was_on and not self.reason:
            for connection in list(self._publishing):
                connection.unblock()

    def _reason(self) -> str:
        """What is short, in RabbitMQ's words, and what each process says itself."""
        if not self._on:
            return ""
        resources = " & ".join(sorted({resource for _, resource in self._on}))
        return f"low on {resources}: {'; '.join(text for _, text in sorted(self._on.items()))}"


class MemoryWatch:
    """Watches this process's own memory.

    Args:
        alarms: hear of it.
        process: this one's name.
        bytes_max: of resident memory; None for a share of the machine's.
        processes: of the broker, that share it.
        measure: how large the process is, in bytes.

    Attributes:
        bytes_max: of resident memory.
    """

    def __init__(
        self,
        alarms: Alarms,
        process: str,
        bytes_max: int | None,
        processes: int,
        measure: Callable[[], int] = rss_bytes,
    ) -> None:
        self._alarms = alarms
        self._process = process
        self.bytes_max = memory_default(processes) if bytes_max is None else bytes_max
        self._measure = measure
        self._is_on = False
        self._look_at = 0.0

    def tick(self, now: float) -> None:
        """Look, if it is time to, at monotonic time `now`."""
        if now < self._look_at:
            return
        self._look_at = now + WATCH_SECONDS
        taken, limit = self._measure(), self.bytes_max
        is_on = taken > (limit * CLEAR_SHARE if self._is_on else limit)
        if is_on is not self._is_on:
            self._is_on = is_on
            text = f"{self._process} takes {taken >> 20} MB of {limit >> 20} MB; clients have to read what is sent them"
            self._alarms.turn(self._process, "memory", is_on, text)
