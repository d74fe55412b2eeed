"""The coordinator as seen from a process with a topology replica: commands under way, changes coming in.

While the coordinator is away, a gateway routes by its replica, and commands wait. A command that was under way when the
link broke is sent again, once: carrying it out twice has the effect of once, and where a repeated deletion finds
nothing, it counts as done.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from shardmq.bus.dialer import Dialer
from shardmq.bus.inquiry import watched
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal, Request, result_of
from shardmq.bus.messages.coordinator import (
    AdmitConnection,
    Changes,
    FromCoordinator,
    ReportConnections,
    RunCommand,
    Snapshot,
    TellEvents,
    TopologyApplied,
)
from shardmq.bus.messages.membership import GroupAssignment, GroupEnded, ReportMembers
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.errors import NotFound, RequestError, Unavailable, request_error
from shardmq.limits import DECLARE_SECONDS
from shardmq.topology.changes import ParameterProgressed, ShovelsReported, TransactionBegun, TransactionEnded
from shardmq.topology.commands import (
    Command,
    DeleteExchange,
    DeleteQueue,
    DeleteUser,
    DeleteVhost,
)
from shardmq.topology.snapshot import TopologyFields
from shardmq.topology.topology import Topology

Outcome = Any | RequestError

Reply = Callable[[Outcome], None]
"""Called once with a request's result, or with the error that refused it."""

_log = logging.getLogger(__name__)

Lists = Callable[[str, dict[str, Any] | None], list[dict[str, Any]]]
"""Returns what a gateway has under a noun, or what a query wants of it."""


REMOVALS: Final = (DeleteQueue, DeleteExchange, DeleteVhost, DeleteUser)
"""Commands whose second execution finds nothing to delete."""

PASSING: Final = (TransactionBegun, TransactionEnded, ParameterProgressed, ShovelsReported)
"""Changes that no route and no permission depends on, so that cached routes stay."""

ADMIT_SECONDS: Final = 5.0
"""A client that connects waits this long for the coordinator: half of what a handshake may take."""


class Follower(Protocol):
    """Hears of changes once they are in the replica."""

    def loaded(self) -> None:
        """Follow a whole topology that was loaded anew."""

    def changed(self, news: Changes) -> None:
        """Follow changes that were applied."""


class MemberHost(Protocol):
    """Knows the members of consumer groups that this gateway has."""

    def report(self) -> ReportMembers:
        """All of them."""

    def hear(self, message: GroupAssignment | GroupEnded) -> None:
        """Take in what a member is told."""


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits for its answer, or for the link.

    Attributes:
        message: what is asked.
        reply: called with the result, or with the error that refused it.
        deadline: when it is given up, monotonic seconds.
        is_repeated: it was sent in an earlier session, too, which ended before it was answered.
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
        is_promised: whether it is, and enough replicas of the coordinator have all of it: what it has may be promised.
        is_teller: whether this gateway tells the events of the topology, for all gateways.
        identified: called with the broker's id and the coordinator's generation at each snapshot; the owner sets it.
        reloading: called before a snapshot takes the place of what the replica has; the owner sets it.
        lists: returns what this gateway has under a noun ("connections", …), for lists of other gateways; the owner
            sets it.
        members: of consumer groups, which are reported in each new session; the owner sets it.
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
        self.is_synced = self.is_current = self.is_promised = self.is_teller = False
        self._topology = topology
        self._changed = changed
        self._rerouted = rerouted
        self._table = table
        self._number = 0
        self._asked: dict[int, _PendingRequest] = {}
        self._waiting: list[_PendingRequest] = []
        self._followers: list[Follower] = []
        self.lists: Lists = lambda _noun, _query: []
        self.identified: Callable[[str, int], None] = lambda _broker, _generation: None
        self.reloading: Callable[[TopologyFields], None] = lambda _fields: None
        self.members: MemberHost | None = None
        self._present: ReportConnections | None = None
        self._is_silent = False  # the coordinator let a deadline pass, and has answered nothing since
        self._unsaid: int | None = None  # the version of the replica, where the coordinator has yet to hear it
        self._handlers: dict[type, Callable[[Any], None]] = {
            Snapshot: self._on_snapshot,
            Changes: self._on_changes,
            TellEvents: self._on_tell,
            Answer: self._on_reply,
            Refusal: self._on_reply,
            Call: self._on_call,
            GroupAssignment: self._on_membership,
            GroupEnded: self._on_membership,
            LinkOpened: self._on_opened,
            LinkLost: lambda _lost: self._on_lost(),
        }

    def follow(self, follower: Follower) -> None:
        """Tell a follower of all changes from now on."""
        self._followers.append(follower)

    def present(self, present: ReportConnections) -> None:
        """Tell the coordinator who is connected here, now and in each new session."""
        self._present = present
        if self.dialer.is_open:
            self.dialer.post(present)
            self._changed()

    def ask(self, message: Request[Any], reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Send a request; the outcome is its answer, or the error that refused it."""
        asked = _PendingRequest(message, watched(reply), time.monotonic() + seconds)
        if self.dialer.is_open:
            self._send(asked)
        else:
            self._waiting.append(asked)

    def tell(self, message: BusMessage) -> None:
        """Tell something that the report of a new session covers where the link is not open."""
        if self.dialer.is_open:
            self.dialer.post(message)
            self._changed()

    def admit(self, vhost: str, user: str, reply: Reply) -> None:
        """Ask whether one more connection may be opened; the outcome is None, or the error that refuses it."""
        self.ask(AdmitConnection(vhost, user), reply, ADMIT_SECONDS)

    def perform(self, command: Command, reply: Reply, user: str = "") -> None:
        """Have a command carried out for a user, or for the broker itself; the outcome is its answer, or an error."""
        self.ask(RunCommand(command, user), reply)

    def inspect(self, reply: Reply, seconds: float, noun: str = "", query: dict[str, Any] | None = None) -> None:
        """Ask for the coordinator's status; its `others` are the other gateways' status, or their lists of a noun.

        A coordinator that let a deadline pass is left out until it answers something.
        """
        if self._is_silent:
            reply(Unavailable("the coordinator does not answer now; messages still flow"))
        else:
            self.ask(Inspect(noun, query), reply, seconds)

    def begin_backup(self, folder: str, bytes_per_second: int, reply: Reply) -> None:
        """Have all stores copied into subfolders of `folder`."""
        self.ask(BeginBackup(folder, bytes_per_second), reply)

    def look_backup(self, reply: Reply) -> None:
        """Ask how far the last backup is."""
        self.ask(LookBackup(), reply)

    def receive(self) -> bool:
        """Take in what the coordinator sent. Returns whether more is left."""
        for event in self.dialer.receive():
            self._handlers[type(event)](event)
        return self.dialer.more

    def flush(self) -> bool:
        """Send what was posted. Returns whether there was anything."""
        return self.dialer.flush()

    def tick(self, now: float) -> None:
        """Keep the link alive, and refuse commands whose deadline has passed."""
        if self.dialer.tick(now):
            self._on_lost()
        self._say_applied()
        late = [number for number, asked in self._asked.items() if asked.deadline < now]
        overdue = [self._asked.pop(number) for number in late]
        overdue += [asked for asked in self._waiting if asked.deadline < now]
        self._waiting = [asked for asked in self._waiting if asked.deadline >= now]
        self._is_silent = self._is_silent or bool(overdue)
        for asked in overdue:
            asked.reply(
                Unavailable("the coordinator did not answer in time; messages still flow, try this again later")
            )

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        self.identified(snapshot.broker, snapshot.generation)
        if self.is_synced:
            self.reloading(snapshot)
        self._topology.load(snapshot)
        self.is_synced = self.is_current = True
        self.is_promised = snapshot.is_promised
        self._synced(snapshot.version)
        for follower in self._followers:
            follower.loaded()

    def _on_changes(self, message: Changes) -> None:
        for change in message.changes:
            self._topology.apply(change)
        self._topology.version = message.version
        self.is_promised = message.is_promised
        is_rerouted = not all(isinstance(each, PASSING) for each in message.changes)
        self._synced(message.version, is_rerouted, message.is_awaited)
        for follower in self._followers:
            follower.changed(message)

    def _on_tell(self, _message: TellEvents) -> None:
        self.is_teller = True

    def _on_call(self, call: Call[Inspect]) -> None:
        noun, query = call.message.noun, call.message.query
        answer: Any
        try:
            answer = self.lists(noun, query) if noun else self._table()
        except Exception as fault:
            if not noun:
                raise
            _log.error("what there is of %s could not be listed, and is left out", noun, exc_info=fault)
            answer = []
        self.dialer.post(Answer(call.request, answer))
        self._changed()

    def _on_membership(self, message: GroupAssignment | GroupEnded) -> None:
        if self.members is not None:
            self.members.hear(message)

    def _on_opened(self, _opened: LinkOpened) -> None:
        self._is_silent = False
        if self._present is not None:
            self.dialer.post(self._present)
        if self.members is not None:
            self.dialer.post(self.members.report())
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._send(asked)

    def _synced(self, version: int, is_rerouted: bool = True, is_awaited: bool = True) -> None:
        if is_rerouted:
            self._rerouted()
        self._unsaid = version
        if is_awaited:
            self._say_applied()

    def _say_applied(self) -> None:
        if self._unsaid is not None:
            self.dialer.post(TopologyApplied(self._unsaid))
            self._unsaid = None
            self._changed()

    def _send(self, asked: _PendingRequest) -> None:
        self._number += 1
        self._asked[self._number] = asked
        self._say_applied()
        self.dialer.post(Call(self._number, asked.message))
        self._changed()

    def _on_reply(self, reply: Answer[msgspec.Raw] | Refusal) -> None:
        self._is_silent = False
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
        self.is_current = self.is_promised = self.is_teller = False
        self._unsaid = None
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if each.message.may_repeat and not each.is_repeated:
                each.is_repeated = True
                self._waiting.append(each)
            else:  # what was under way each time that it went away may be why
                often = "twice " if each.is_repeated else ""
                each.reply(
                    Unavailable(
                        f"the coordinator went away {often}before it answered; look what it has begun, and ask again"
                    )
                )
