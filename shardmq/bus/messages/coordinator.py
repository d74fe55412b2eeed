"""To and from the coordinator."""

from typing import Any, Final

import msgspec

from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect, Refusal, Request
from shardmq.bus.messages.membership import (
    GroupAssignment,
    GroupEnded,
    GroupReleased,
    JoinGroup,
    LeaveGroup,
    ReportMembers,
    TakeEpoch,
)
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.topology.changes import Change
from shardmq.topology.commands import Command
from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
)

CommandResult = bool | int | tuple[int, bool] | None
"""The result of a command: a queue's id, or whether a commit is visible. The result of
BeginTransaction is the transaction's number and whether it was committed before."""


SHARDS_REACHED: Final = "shards_reached"
"""In a gateway's status: how many shards it has reached, of a broker on several hosts, by their numbers from 0 on."""


class RunCommand(Request[CommandResult], frozen=True, tag=60):
    """Carry out a command on the topology. Answered once every connected gateway has applied the change.

    Attributes:
        user: who wants it, for events; "" is the broker itself.
    """

    command: Command
    user: str = ""


class TopologyApplied(BusMessage, frozen=True, tag=61):
    """This gateway routes by topology `version` from now on."""

    version: int


class Snapshot(BusMessage, frozen=True, tag=62):
    """The whole topology, the first message of a session to a gateway.

    Attributes:
        is_promised: see `Changes`.
    """

    version: int
    vhosts: list[Vhost]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]
    permissions: list[Permission]
    shards: list[str]
    transactions: list[OpenTransaction] = []
    broker: str = ""
    generation: int = 0
    topics: list[Topic] = []
    policies: list[Policy] = []
    topic_permissions: list[TopicPermission] = []
    tracing: dict[str, float] = {}
    parameters: list[Parameter] = []
    is_promised: bool = True


class Changes(BusMessage, frozen=True, tag=63):
    """What changed from `version - 1` to `version`.

    Attributes:
        performers: whose the changes are, in their order: (number of changes, user); "" is the broker itself, whose are
            those beyond, too.
        is_awaited: whether somebody may wait until this gateway has applied them; else it may say so with what it says
            next, a little later.
        is_promised: whether enough replicas of the coordinator have all that this and earlier messages tell of; else
            only the coordinator knows whether to answer a repeated declaration.
    """

    version: int
    changes: list[Change]
    performers: list[tuple[int, str]] = []
    is_awaited: bool = True
    is_promised: bool = True


class TellEvents(BusMessage, frozen=True, tag=120):
    """This gateway publishes the events of the topology and of shards' alarms from now on, for all gateways."""


class ReportConnections(BusMessage, frozen=True, tag=64):
    """Who is connected to this gateway. Sent when a session opens, and on every change.

    The coordinator deletes the exclusive queues of an `origin` that no gateway reports any more.

    Attributes:
        origin: random number of this run of the gateway process; it begins the names of its connections.
        connections: (vhost, user, number of connections).
    """

    origin: int
    connections: list[tuple[str, str, int]]


class AdmitConnection(Request[None], frozen=True, tag=65):
    """Ask whether one more connection may be opened. Answer: nil; refused (530) where a limit is reached."""

    vhost: str
    user: str


CoordinatorRequest = RunCommand | Inspect | AdmitConnection | BeginBackup | LookBackup | JoinGroup | TakeEpoch

MembershipNews = ReportMembers | LeaveGroup | GroupReleased
"""What gateways tell of the members of groups without waiting for an answer."""

ToCoordinator = TopologyApplied | ReportConnections | MembershipNews | Call[CoordinatorRequest] | Answer[Any]

CoordinatorEvent = Snapshot | Changes | TellEvents | Call[Inspect] | Refusal | GroupAssignment | GroupEnded
"""Every message of the coordinator except answers with a result."""

FromCoordinator = CoordinatorEvent | Answer[msgspec.Raw]
