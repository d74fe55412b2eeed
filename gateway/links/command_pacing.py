"""Commands of one connection, on their way to the coordinator: so many at a time, the others wait here in their order.

The coordinator carries out what comes first. A client that sends a hundred thousand declarations on a thousand channels
has a few under way; everybody else's command waits behind these few, and not behind all.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.topology.commands import Command

UNDER_WAY_MAX: Final = 32
"""Commands of one connection that the coordinator has at a time: enough to keep it busy by itself."""


class CommandPacing:
    """Sends the commands of one connection, so many at a time.

    Each channel has one command at a time, so what waits is bounded by their number.

    Args:
        perform: sends a command of a user.
        user: who the client is.
    """

    __slots__ = ("_perform", "_under_way", "_user", "_waiting")

    def __init__(self, perform: Callable[[Command, Reply, str], None], user: str) -> None:
        self._perform = perform
        self._user = user
        self._waiting: deque[tuple[Command, Reply]] | None = None  # most connections never need one
        self._under_way = 0

    def perform(self, command: Command, reply: Reply) -> None:
        """Have a command carried out, behind those before it."""
        if self._under_way < UNDER_WAY_MAX:
            self._send(command, reply)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((command, reply))

    def _send(self, command: Command, reply: Reply) -> None:
        self._under_way += 1

        def answered(outcome: Outcome) -> None:
            self._under_way -= 1
            reply(outcome)
            while self._waiting and self._under_way < UNDER_WAY_MAX:
                self._send(*self._waiting.popleft())

        self._perform(command, answered, self._user)
