"""The coordinator as seen from a process with a topology replica: commands under way, changes coming in.

While the coordinator is away, a gateway routes by its replica, and commands wait. A command that was under way when the
link broke is sent again: carrying it out twice has the effect of once, and where a repeated deletion finds nothing, it
counts as done.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal, Request, result_of
from shardmq.bus.messages.coordinator import (
    AdmitConnection,
    Changes,
    FromCoordinator,
    ReportConnections,
    RunCommand,
    Snapshot,
    TopologyApplied,
)
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.errors import NotFound, RequestError, Unavailable, request_error
from shardmq.limits import DECLARE_SECONDS
from shardmq.topology.changes import Change, TransactionBegun, TransactionEnded
from shardmq.topology.commands import (
    Command,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
)
from shardmq.topology.topology import Topology

Outcome = Any | RequestError

Reply = Callable[[Outcome], None]
"""Called once with a request's result, or with the error that refused it."""


REMOVALS: Final = (DeleteQueue, DeleteExchange, DeleteVhost, DeleteUser)
"""Commands whose second execution finds nothing to delete."""

PASSING: Final = (TransactionBegun, TransactionEnded)
"""Changes that no route and no permission depends on, so that cached routes stay."""

ADMIT_SECONDS: Final = 5.0
"""A client that connects waits this long for the coordinator: half of what a handshake may take."""


class Follower(Protocol):
    """Hears of changes once they are in the replica."""

    def loaded(self) -> None:
        """Follow a whole topology that was loaded anew."""

    def changed(self, changes: Sequence[Change]) -> None:
        """Follow changes that were applied."""


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits for its answer, or for the link.

    Attributes:
        message: what is asked.
        reply: called with the result, or with the error that refused it.
        deadline: when it is given up, monotonic seconds.
        is_repeated: it was sent in an earlier session, too.
    """

    message: Request[Any]
    reply: Reply
    deadline: float
    is_repeated: bool = False


class CoordinatorLink:
    """A gateway's link to the coordinator, which keeps the gateway's replica of the topology.

    Args:
        dialer: the link to the coordinator.
        topology: the replica to keep.
        changed: called when something was posted, so that a flush follows.
        rerouted: called when the topology has changed in what routes and permissions depend on.
        table: returns this gateway's status, as a row of the broker's.

    Attributes:
        is_synced: whether a snapshot of the topology has come.
        is_current: whether the link has been open since the last snapshot, so that the replica is up to date.
        identified: called with the broker's id and the coordinator's generation at each snapshot; the owner sets it.
        lists: returns what this gateway has under a noun ("connections", …), for lists of other gateways; the owner
            sets it.
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
        self.is_synced = self.is_current = False
        self._topology = topology
        self._changed = changed
        self._rerouted = rerouted
        self._table = table
        self._number = 0
        self._asked: dict[int, _PendingRequest] = {}
        self._waiting: list[_PendingRequest] = []
        self._followers: list[Follower] = []
        self.lists: Callable[[str], list[dict[str, Any]]] = lambda _noun: []
        self.identified: Callable[[str, int], None] = lambda _broker, _generation: None
        self._present: ReportConnections | None = None

    def follow(self, follower: Follower) -> None:
        """Tell a follower of all changes from now on."""
        self._followers.append(follower)

    def present(self, present: ReportConnections) -> None:
        """Tell the coordinator who is connected here, now and in each new session."""
        self._present = present
        if self.dialer.is_open:
            self.dialer.post(present)
            self._changed()

    def admit(self, vhost: str, user: str, reply: Reply) -> None:
        """Ask whether one more connection may be opened; the outcome is None, or the error that refuses it."""
        self._ask(_PendingRequest(AdmitConnection(vhost, user), reply, time.monotonic() + ADMIT_SECONDS))

    def perform(self, command: Command, reply: Reply) -> None:
        """Have a command carried out; the outcome is its answer, or the error that refused it."""
        self._ask(_PendingRequest(RunCommand(command), reply, time.monotonic() + DECLARE_SECONDS))

    def inspect(self, reply: Reply, seconds: float, noun: str = "") -> None:
        """Ask for the coordinator's status; its `others` are the other gateways' status, or their lists of a noun."""
        self._ask(_PendingRequest(Inspect(noun), reply, time.monotonic() + seconds))

    def begin_backup(self, folder: str, bytes_per_second: int, reply: Reply) -> None:
        """Have all stores copied into subfolders of `folder`."""
        self._ask(_PendingRequest(BeginBackup(folder, bytes_per_second), reply, time.monotonic() + DECLARE_SECONDS))

    def look_backup(self, reply: Reply) -> None:
        """Ask how far the last backup is."""
        self._ask(_PendingRequest(LookBackup(), reply, time.monotonic() + DECLARE_SECONDS))

    def receive(self) -> bool:
        """Take in what the coordinator sent. Returns whether more is left."""
        for event in self.dialer.receive():
            match event:
                case Snapshot():
                    self.identified(event.broker, event.generation)
                    self._topology.load(event)
                    self.is_synced = self.is_current = True
                    self._synced(event.version)
                    for follower in self._followers:
                        follower.loaded()
                case Changes():
                    for change in event.changes:
                        self._topology.apply(change)
                    self._topology.version = event.version
                    self._synced(event.version, not all(isinstance(each, PASSING) for each in event.changes))
                    for follower in self._followers:
                        follower.changed(event.changes)
                case Answer() | Refusal():
                    self._on_reply(event)
                case Call(request, Inspect(noun)):
                    table = self.lists(noun) if noun else self._table()
                    self.dialer.post(Answer(request, table))
                    self._changed()
                case LinkOpened():
                    if self._present is not None:
                        self.dialer.post(self._present)
                    waiting, self._waiting = self._waiting, []
                    for asked in waiting:
                        self._send(asked)
                case LinkLost():
                    self._on_lost()
        return self.dialer.more

    def flush(self) -> bool:
        """Send what was posted. Returns whether there was anything."""
        return self.dialer.flush()

    def tick(self, now: float) -> None:
        """Keep the link alive, and refuse commands whose deadline has passed."""
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

    def _synced(self, version: int, is_rerouted: bool = True) -> None:
        if is_rerouted:
            self._rerouted()
        self.dialer.post(TopologyApplied(version))
        self._changed()

    def _ask(self, asked: _PendingRequest) -> None:
        if self.dialer.is_open:
            self._send(asked)
        else:
            self._waiting.append(asked)

    def _send(self, asked: _PendingRequest) -> None:
        self._number += 1
        self._asked[self._number] = asked
        self.dialer.post(Call(self._number, asked.message))
        self._changed()

    def _on_reply(self, reply: Answer[msgspec.Raw] | Refusal) -> None:
        asked = self._asked.pop(reply.request, None)
        if asked is None:
            return  # its deadline passed
        outcome: Outcome
        if isinstance(reply, Answer):
            outcome = result_of(asked.message, reply)
        else:
            outcome = request_error(reply.code, reply.text)
        if asked.is_repeated and isinstance(outcome, NotFound) and isinstance(asked.message, RunCommand):
            outcome = 0 if isinstance(asked.message.command, REMOVALS) else outcome
        asked.reply(outcome)

    def _on_lost(self) -> None:
        self.is_current = False
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if each.message.may_repeat:
                each.is_repeated = True
                self._waiting.append(each)
            else:
                each.reply(
                    Unavailable("the coordinator went away before it answered; look what it has begun, and ask again")
                )
