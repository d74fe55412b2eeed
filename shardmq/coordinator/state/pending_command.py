"""A command under way, and what it waits for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from shardmq.bus.listener import Responder
from shardmq.bus.messages.coordinator import CommandResult
from shardmq.errors import RequestError
from shardmq.topology.changes import Change
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    Bind,
    Command,
    CommitTransaction,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    DeleteQueue,
    DeleteTopic,
    ExtendTopic,
    Unbind,
)
from shardmq.topology.entities import PARTITIONS_MAX, Queue, partition_names

Name = tuple[str, str, str]
"""Kind of entity, its virtual host, its name."""


class Stage(Enum):
    """What a command waits for."""

    TURN = auto()
    OWNER = auto()
    PREPARE_DELETE = auto()
    PREPARE = auto()
    SHARD = auto()
    FOLLOW = auto()
    SPREAD = auto()
    GATEWAYS = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class PendingCommand:
    """A command under way.

    Attributes:
        responder: the gateway that asked; None where the coordinator itself issued the command.
        command: what is to be done.
        names: what it names, as queues or a transaction. Commands on one name are carried out one after the other; the
            next one begins when the topology has the effect of this one.
        since: when it came, monotonic seconds.
        user: who wants it; "" is the broker itself.
        stage: what it waits for.
        version: the topology version that every gateway must have applied.
        queues: those whose shards are still to answer, by id: they are declared, or their deletion is prepared.
        asked: all queues whose shards were asked whether they may be deleted.
        coming: decided, and not in the topology yet.
        is_delete_prepared: the shards agree to the deletion.
        is_prepared: all shards have what the commit claims.
        shards: those that are still to hear of changed policies.
        removed: the deleted queues, which their shards are to drop.
        result: the answer's value.
        error: why it was refused.
    """

    responder: Responder[CommandResult] | None
    command: Command
    names: Sequence[Name]
    since: float
    user: str = ""
    stage: Stage = Stage.TURN
    version: int = 0
    queues: dict[int, Queue] = field(default_factory=dict)
    asked: Sequence[Queue] = ()
    coming: Sequence[Change] = ()
    is_delete_prepared: bool = False
    is_prepared: bool = False
    shards: set[str] = field(default_factory=set)
    removed: tuple[Queue, ...] = ()
    result: CommandResult = None
    error: RequestError | None = None


def names_in(command: Command) -> Sequence[Name]:
    """The names that a command holds while it is under way; none where no other command could get in between."""
    match command:
        case DeclareQueue() | DeleteQueue():
            return (("queue", command.vhost, command.name),)
        case Bind(to_exchange=False) | Unbind(to_exchange=False):
            return (("queue", command.vhost, command.destination),)
        case BeginTransaction() | CommitTransaction() | AbortTransaction():
            return (("transaction", command.vhost, command.name),)
        case DeclareExchange() | DeleteTopic():
            return (("exchange", command.vhost, command.name),)
        case DeclareTopic() | ExtendTopic():
            queues = partition_names(command.name, min(command.partitions, PARTITIONS_MAX))
            exchange = "exchange", command.vhost, command.name
            return [exchange, *(("queue", command.vhost, queue) for queue in queues)]
        case _:
            return ()
