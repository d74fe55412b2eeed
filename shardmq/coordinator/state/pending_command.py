"""A command under way, and what it waits for."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from shardmq.bus.listener import Peer
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    Bind,
    Command,
    CommitTransaction,
    DeclareQueue,
    DeleteQueue,
    Unbind,
)
from shardmq.topology.entities import Queue

Name = tuple[str, str, str]
"""What kind of thing, its virtual host, its name."""


class Stage(Enum):
    """What a command waits for."""

    TURN = auto()
    CONDEMN = auto()
    PREPARE = auto()
    SHARD = auto()
    FOLLOW = auto()
    GATEWAYS = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command under way.

    Attributes:
        peer: the gateway that asked; None for what the coordinator wants itself.
        request: its number there.
        command: what it asked for.
        name: the queue or transaction it names; the first of those with the same name goes on, the others wait until it
            is told.
        since: when it came, monotonic seconds.
        stage: what it waits for.
        version: the topology every gateway must have reached.
        queue: the queue that is declared or deleted.
        is_new: that queue is not in the topology yet.
        is_condemned: that queue's shard agrees to its deletion.
        is_prepared: all shards have what the commit claims.
        removed: the queues that go, to be dropped by their shards.
        result: what it is answered with.
    """

    peer: Peer | None
    request: int
    command: Command
    name: Name | None
    since: float
    stage: Stage = Stage.TURN
    version: int = 0
    queue: Queue | None = None
    is_new: bool = False
    is_condemned: bool = False
    is_prepared: bool = False
    removed: tuple[Queue, ...] = ()
    result: Any = None


def name_in(command: Command) -> Name | None:
    """What a command names that others may name meanwhile; None where nothing could get in between."""
    match command:
        case DeclareQueue() | DeleteQueue():
            return "queue", command.vhost, command.name
        case Bind(to_exchange=False) | Unbind(to_exchange=False):
            return "queue", command.vhost, command.destination
        case BeginTransaction() | CommitTransaction() | AbortTransaction():
            return "transaction", command.vhost, command.name
        case _:
            return None
