"""Exchanges, queues and bindings, and looking at them."""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import RUN_RECORDS_MAX
from shardmq.protocol.native.operations.fields import (
    AfterLoss,
    Arguments,
    ClientRequest,
    Name,
)


class ExchangeDeclare(ClientRequest, frozen=True):
    """Answered by Ok. `passive` only asks whether it is there. With `auto_delete` it goes with its last binding; to an
    `internal` one only other exchanges publish.
    """

    after_loss = AfterLoss.ASK_AGAIN

    exchange: Name
    type: Name
    durable: bool = False
    arguments: Arguments = {}
    auto_delete: bool = False
    internal: bool = False
    passive: bool = False


class ExchangeDelete(ClientRequest, frozen=True):
    """Answered by Ok; its bindings go with it. With `if_unused` refused (406) where something is bound to it."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    exchange: Name
    if_unused: bool = False


class QueueDeclare(ClientRequest, frozen=True):
    """Answered by Ok: `{"queue", "messages", "consumers"}`, messages being those ready.

    The server makes up a name for "". `passive` only asks. An `exclusive` queue is this connection's alone (405 for
    others) and goes with it; with `auto_delete` it goes with its last consumer.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    durable: bool = False
    arguments: Arguments = {}
    exclusive: bool = False
    auto_delete: bool = False
    passive: bool = False

    def may_be_asked_again(self) -> bool:
        """Not where the server made up the name: the queue is there, under a name that the client never heard."""
        return bool(self.queue) or self.exclusive


class QueueDelete(ClientRequest, frozen=True):
    """Answered by Ok: `{"messages"}` that went with it; its bindings go too, its consumers are cancelled.

    Refused (406) with `if_unused` where it has consumers, with `if_empty` where it has ready messages.
    """

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    queue: Name
    if_unused: bool = False
    if_empty: bool = False


class QueueBind(ClientRequest, frozen=True):
    """Answered by Ok; binding twice is the same as once."""

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueueUnbind(ClientRequest, frozen=True):
    """Answered by Ok, also when there was no such binding."""

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePurge(ClientRequest, frozen=True):
    """Removes what is ready. Answered by Ok: `{"messages"}`."""

    queue: Name


class ExchangeBind(ClientRequest, frozen=True):
    """`destination` gets what is published to `source` with a matching key; twice is as once. Answered by Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class ExchangeUnbind(ClientRequest, frozen=True):
    """Answered by Ok, also when there was no such binding."""

    after_loss = AfterLoss.ASK_AGAIN

    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePeek(ClientRequest, frozen=True):
    """Looks at ready messages and leaves all as it is, `offset` behind the head. Answered by Ok: a list of tables
    with the fields of BasicDeliver (consumer "", tag 0); fewer than `count` messages where there are no more, or where
    they are large.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]


class TopologyList(ClientRequest, frozen=True):
    """What there is. `noun` is "exchanges", "queues", "bindings", "transactions", "permissions" of the connection's
    virtual host, or "vhosts", "users", "connections", "channels", "consumers" of those the user may see. Ok's result is
    a list of tables.
    """

    after_loss = AfterLoss.ASK_AGAIN

    noun: Name
