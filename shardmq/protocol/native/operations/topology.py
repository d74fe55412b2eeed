"""Exchanges, queues and bindings, and looking at them; policies, topic permissions and parameters.

Policies are for users with the tag "policymaker" who may open the virtual host, and for administrators; operator
policies and topic permissions for administrators alone. Others are refused (403).
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.protocol.native.operations.fields import (
    AfterLoss,
    Arguments,
    ClientRequest,
    Name,
)


class ExchangeDeclare(ClientRequest, frozen=True):
    """Create an exchange, or with `passive` ask whether it exists. The answer is Ok.

    With `auto_delete` it is deleted with its last binding. Only other exchanges publish to an `internal` one.
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
    """Delete an exchange and its bindings. The answer is Ok; refused (406) with `if_unused` if it has bindings."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    exchange: Name
    if_unused: bool = False


class QueueDeclare(ClientRequest, frozen=True):
    """Create a queue, or with `passive` ask for it. The answer is Ok: `{"queue", "messages", "consumers"}`.

    `messages` counts ready ones. The server chooses a name for "". An `exclusive` queue is for this connection alone
    (405 for others) and is deleted with it. With `auto_delete` it is deleted with its last consumer.
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
    """Delete a queue with its messages and bindings; its consumers are cancelled. The answer is Ok: `{"messages"}`.

    Refused (406) with `if_unused` if it has consumers, with `if_empty` if it has ready messages.
    """

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    queue: Name
    if_unused: bool = False
    if_empty: bool = False


class QueueBind(ClientRequest, frozen=True):
    """Bind a queue to an exchange; a binding that exists stays as it is. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueueUnbind(ClientRequest, frozen=True):
    """Delete a binding of a queue. The answer is Ok, also if there was none."""

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePurge(ClientRequest, frozen=True):
    """Delete the ready messages of a queue. The answer is Ok: `{"messages"}`."""

    queue: Name


class ExchangeBind(ClientRequest, frozen=True):
    """Bind exchange `destination` to exchange `source`; a binding that exists stays as it is. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class ExchangeUnbind(ClientRequest, frozen=True):
    """Delete a binding between exchanges. The answer is Ok, also if there was none."""

    after_loss = AfterLoss.ASK_AGAIN

    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePeek(ClientRequest, frozen=True):
    """Look at ready messages from `offset` behind the head on, without taking them.

    The answer is Ok: a list of tables with the fields of BasicDeliver (consumer "", tag 0). They are fewer than `count`
    messages if there are no more, or if they are large.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    count: Annotated[int, Meta(ge=1, le=RECORD_BATCH_RECORDS_MAX)]


class TopologyList(ClientRequest, frozen=True):
    """List what exists. The answer is Ok: a list of tables.

    `noun` is "exchanges", "queues", "bindings" or "transactions" of the connection's virtual host, or "permissions",
    "vhosts", "users", "connections", "channels" or "consumers" that the user may see.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    noun: Name


class PolicyPut(ClientRequest, frozen=True):
    """Create or change a policy, or an operator policy. The answer is Ok, once it has its effect.

    `apply_to` is all, exchanges, queues, classic_queues, quorum_queues or streams.
    """

    after_loss = AfterLoss.ASK_AGAIN

    vhost: Name
    policy: Name
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False


class PolicyDelete(ClientRequest, frozen=True):
    """Delete a policy, or an operator policy. The answer is Ok, once it has no effect any more."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    vhost: Name
    policy: Name
    is_operator: bool = False


class PolicyPreview(ClientRequest, frozen=True):
    """Ask what setting a policy would change, or with `is_deleted` deleting it. Nothing changes.

    The answer is Ok: a list of tables; SPEC.md has their keys.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    vhost: Name
    policy: Name
    pattern: str = ""
    definition: dict[str, Any] = {}
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False
    is_deleted: bool = False


class PolicyMatch(ClientRequest, frozen=True):
    """Ask which policies match the name of a queue or an exchange, which need not exist; `type` is of the queue then.

    The answer is Ok: a list of tables as of TopologyList of policies, with "applies".
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    vhost: Name
    kind: Literal["queue", "exchange"]
    name: Name
    type: Literal["classic", "quorum", "stream"] = "classic"


class TopicPermissionPut(ClientRequest, frozen=True):
    """Set which routing keys a user may use with a topic exchange, as regular expressions. The answer is Ok."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name
    exchange: Name
    write: str
    read: str


class TopicPermissionDelete(ClientRequest, frozen=True):
    """Delete a user's topic permission for an exchange, nil for all. The answer is Ok, also if there was none."""

    after_loss = AfterLoss.ASK_AGAIN

    user: Name
    vhost: Name
    exchange: Name | None = None


class ParameterPut(ClientRequest, frozen=True):
    """Create or change a parameter of a component, such as a shovel; with `value` nil have it begin anew.

    The answer is Ok. For users who may set policies in the virtual host.
    """

    after_loss = AfterLoss.ASK_AGAIN

    vhost: Name
    component: Name
    name: Name
    value: dict[str, Any] | None = None


class ParameterDelete(ClientRequest, frozen=True):
    """Delete a parameter of a component. The answer is Ok.

    A `generation` other than 0 is the one it must have; it stays where it has another.
    """

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    vhost: Name
    component: Name
    name: Name
    generation: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class ShovelReport(ClientRequest, frozen=True):
    """Tell the broker the states of all shovels, as their process does. The answer is Ok. For administrators."""

    after_loss = AfterLoss.ASK_AGAIN

    rows: list[dict[str, Any]]
