"""Alarms: a shard, or this gateway, runs short of memory or disk. While one is on, publishers wait."""

from collections.abc import Callable
from typing import Protocol


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
        turned: called with process, resource, whether it is on, and the text, when an alarm goes on or off.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._on: dict[tuple[str, str], str] = {}
        self._publishing: set[Publishing] = set()
        self.turned: Callable[[str, str, bool, str], object] = lambda _process, _resource, _is_on, _text: None

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
        was_on = (process, resource) in self._on
        if is_on:
            self._on[process, resource] = text
        else:
            self._on.pop((process, resource), None)
        self._changed()
        if is_on != was_on:
            self.turned(process, resource, is_on, text)

    def forget(self, process: str) -> None:
        """Turn off the alarms of a process that is away: it says which are on when it is back."""
        for owner, resource in [alarm for alarm in self._on if alarm[0] == process]:
            self.turn(owner, resource, False, f"{owner} went away while its {resource} alarm was on")

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
