"""A command under way, and what it waits for."""

from dataclasses import dataclass
from enum import Enum, auto

from shardmq.bus.listener import Responder
from shardmq.bus.messages.coordinator import CommandResult
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
"""Kind of entity, its virtual host, its name."""


class Stage(Enum):
    """What a command waits for."""

    TURN = auto()
    PREPARE_DELETE = auto()
    PREPARE = auto()
    SHARD = auto()
    FOLLOW = auto()
    GATEWAYS = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command under way.

    Attributes:
        responder: the gateway that asked; None where the coordinator itself issued the command.
        command: what is to be done.
        name: the queue or transaction it names. Commands on one name are carried out one after the other; the next one
            begins when the topology has the effect of this one.
        since: when it came, monotonic seconds.
        stage: what it waits for.
        version: the topology version that every gateway must have applied.
        queue: the queue that is declared or deleted.
        is_new: that queue is not in the topology yet.
        is_delete_prepared: that queue's shard agrees to its deletion.
        is_prepared: all shards have what the commit claims.
        removed: the deleted queues, which their shards are to drop.
        result: the answer's value.
    """

    responder: Responder[CommandResult] | None
    command: Command
    name: Name | None
    since: float
    stage: Stage = Stage.TURN
    version: int = 0
    queue: Queue | None = None
    is_new: bool = False
    is_delete_prepared: bool = False
    is_prepared: bool = False
    removed: tuple[Queue, ...] = ()
    result: CommandResult = None


def name_in(command: Command) -> Name | None:
    """The name that a command holds while it is under way; None where no other command could get in between."""
    match command:
        case DeclareQueue() | DeleteQueue():
            return "queue", command.vhost, command.name
        case Bind(to_exchange=False) | Unbind(to_exchange=False):
            return "queue", command.vhost, command.destination
        case BeginTransaction() | CommitTransaction() | AbortTransaction():
            return "transaction", command.vhost, command.name
        case _:
            return None
