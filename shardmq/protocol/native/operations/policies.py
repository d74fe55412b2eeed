"""Policies, operator policies and topic permissions.

Policies are for users with the tag "policymaker" who may open the virtual host, and for administrators; operator
policies and topic permissions for administrators alone. Others are refused (403).
"""

from typing import Any, Literal

from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name


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
