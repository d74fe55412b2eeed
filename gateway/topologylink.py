"""The coordinator as seen from a gateway: commands under way, changes coming in.

While the coordinator is away, the replica routes on and commands wait. A command that was under way when the link broke
is sent again: declaring, binding and unbinding twice is the same as once, and deleting what is gone is what was wanted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardmq.bus.link import Dialer, Lost, Opened
from shardmq.bus.messages import Answer, Changes, FromCoordinator, Inspect, Perform, Refusal, Snapshot, Synced
from shardmq.commands import Change, Command, DeleteExchange, DeleteQueue
from shardmq.errors import NotFound, Unavailable, request_error
from shardmq.gateway.shardlink import Outcome, Reply
from shardmq.limits import DECLARE_SECONDS
from shardmq.topology import Topology


@dataclass(slots=True)
class _Asked:
    command: Command | None  # None asks how the coordinator is
    reply: Reply
    deadline: float
    again: bool = False


class TopologyLink:
    """See the module.

    Args:
        dialer: the link to the coordinator.
        topology: the replica to keep.
        changed: called when something was posted, so that a flush follows.
        rerouted: called when the topology has changed.
        table: how this gateway is, for the others' status.
    """

    def __init__(
        self,
        dialer: "Dialer[FromCoordinator]",
        topology: Topology,
        changed: Callable[[], None],
        rerouted: Callable[[], None],
        table: Callable[[], dict[str, Any]],
    ) -> None:
        self.dialer = dialer
        self.is_synced = False
        self._topology = topology
        self._changed = changed
        self._rerouted = rerouted
        self._table = table
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._waiting: list[_Asked] = []

    def perform(self, command: Command, reply: Reply) -> None:
        """Have a command carried out; the outcome is its answer, or the error that refused it."""
        self._ask(_Asked(command, reply, time.monotonic() + DECLARE_SECONDS))

    def inspect(self, reply: Reply, seconds: float) -> None:
        """Ask how the coordinator is."""
        self._ask(_Asked(None, reply, time.monotonic() + seconds))

    def receive(self) -> bool:
        """Take in what the coordinator sent; returns whether more is left."""
        for event in self.dialer.receive():
            match event:
                case Snapshot():
                    self._topology.load(event)
                    self.is_synced = True
                    self._synced(event.version)
                case Changes():
                    for change in event.changes:
                        self._apply(change)
                    self._topology.version = event.version
                    self._synced(event.version)
                case Answer() | Refusal():
                    self._on_answer(event)
                case Inspect():
                    self.dialer.post(Answer(event.request, self._table()))
                    self._changed()
                case Opened():
                    waiting, self._waiting = self._waiting, []
                    for asked in waiting:
                        self._send(asked)
                case Lost():
                    self._on_lost()
        return self.dialer.more

    def flush(self) -> bool:
        """Send what was posted; returns whether there was anything."""
        return self.dialer.flush()

    def tick(self, now: float) -> None:
        """Keep the link alive; give up commands whose time is over."""
        if self.dialer.tick(now):
            self._on_lost()
        late = [number for number, asked in self._asked.items() if asked.deadline < now]
        overdue = [self._asked.pop(number) for number in late]
        overdue += [asked for asked in self._waiting if asked.deadline < now]
        self._waiting = [asked for asked in self._waiting if asked.deadline >= now]
        for asked in overdue:
            asked.reply(
                Unavailable("the coordinator did not answer in time; messages still flow, try this again later")
            )

    def _apply(self, change: Change) -> None:
        self._topology.apply(change)

    def _synced(self, version: int) -> None:
        self._rerouted()
        self.dialer.post(Synced(version))
        self._changed()

    def _ask(self, asked: _Asked) -> None:
        if self.dialer.is_open:
            self._send(asked)
        else:
            self._waiting.append(asked)

    def _send(self, asked: _Asked) -> None:
        self._number += 1
        self._asked[self._number] = asked
        if asked.command is None:
            self.dialer.post(Inspect(self._number))
        else:
            self.dialer.post(Perform(self._number, asked.command))
        self._changed()

    def _on_answer(self, message: Answer | Refusal) -> None:
        asked = self._asked.pop(message.request, None)
        if asked is None:
            return  # its deadline passed
        outcome: Outcome = message.result if isinstance(message, Answer) else request_error(message.code, message.text)
        if asked.again and isinstance(outcome, NotFound) and isinstance(asked.command, DeleteQueue | DeleteExchange):
            outcome = 0
        asked.reply(outcome)

    def _on_lost(self) -> None:
        asked, self._asked = self._asked, {}
        for command in asked.values():
            command.again = True
        self._waiting.extend(asked.values())
