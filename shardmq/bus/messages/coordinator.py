"""To and from the coordinator."""

from shardmq.bus.messages.base import Answer, BusMessage, Inspect, Refusal
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.topology.changes import Change
from shardmq.topology.commands import Command
from shardmq.topology.entities import Binding, Exchange, OpenTransaction, Permission, Queue, User, Vhost


class RunCommand(BusMessage, frozen=True, tag=60):
    """Carry out a command on the topology. Answered once every gateway that lives has seen the change."""

    request: int
    command: Command


class TopologyApplied(BusMessage, frozen=True, tag=61):
    """This gateway routes by topology `version` from now on."""

    version: int


class Snapshot(BusMessage, frozen=True, tag=62):
    """The whole topology; first thing a gateway is told."""

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


class Changes(BusMessage, frozen=True, tag=63):
    """What changed from `version - 1` to `version`."""

    version: int
    changes: list[Change]


class ReportConnections(BusMessage, frozen=True, tag=64):
    """Who is connected to this gateway: its life (`Hub.origin`), and how many connections each (vhost, user) has. Said
    when a session opens, and when it changes. Exclusive queues of lives that nobody has any more are deleted.
    """

    origin: int
    connections: list[tuple[str, str, int]]


class AdmitConnection(BusMessage, frozen=True, tag=65):
    """May one more connection be opened? Answered by nil, or refused (530) where a limit is reached."""

    request: int
    vhost: str
    user: str


ToCoordinator = (
    RunCommand | TopologyApplied | Inspect | Answer | ReportConnections | AdmitConnection | BeginBackup | LookBackup
)

FromCoordinator = Snapshot | Changes | Inspect | Answer | Refusal
