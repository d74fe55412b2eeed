"""Whose turn it is: commands that hold a name in common go one after the other, in the order they came."""

from collections import deque
from collections.abc import Iterator

from shardmq.coordinator.state.pending_command import Name, PendingCommand


class Turns:
    """The commands that hold or wait for each name.

    A command takes its place with all its names at once, so none waits for one that waits for it.
    """

    def __init__(self) -> None:
        self._by_name: dict[Name, deque[PendingCommand]] = {}

    def enter(self, pending: PendingCommand) -> bool:
        """Give a command its place; returns whether it is its turn at once."""
        is_first = True
        for name in pending.names:
            turn = self._by_name.get(name)
            if turn is None:
                self._by_name[name] = deque((pending,))
            else:
                turn.append(pending)
                is_first = False
        return is_first

    def leave(self, pending: PendingCommand) -> Iterator[PendingCommand]:
        """Take a command out, and yield each of those whose turn it is now."""
        names, pending.names = pending.names, ()
        for name in names:
            turn = self._by_name[name]
            was_first = turn[0] is pending
            turn.remove(pending)
            if not turn:
                del self._by_name[name]
            elif was_first and self._is_first(turn[0]):
                yield turn[0]

    def _is_first(self, pending: PendingCommand) -> bool:
        return all(self._by_name[name][0] is pending for name in pending.names)
