"""Topics: declared, deleted, extended, looked at."""

from typing import Annotated

from msgspec import Meta

from shardmq.protocol.native.operations.fields import AfterLoss, Arguments, ClientRequest, Name, Operation

Partitions = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""How many partitions a topic is to have."""


class TopicDeclare(ClientRequest, frozen=True):
    """Create a topic with so many partitions: queues `topic-0` and so on, and an exchange `topic`. The answer is Ok.

    Refused (406) where there is one with other partitions or arguments, or where something else has one of the names.
    """

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    partitions: Partitions
    arguments: Arguments = {}


class TopicDelete(ClientRequest, frozen=True):
    """Delete a topic with all its messages; its consumers are cancelled. The answer is Ok.

    Refused (406) with `if_unused` if a partition has consumers.
    """

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    topic: Name
    if_unused: bool = False


class TopicExtend(ClientRequest, frozen=True):
    """Add partitions to a topic until it has so many. The answer is Ok; refused (406) if it has more."""

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    partitions: Partitions


class TopicInfo(ClientRequest, frozen=True):
    """Ask for a topic. The answer is Ok: a table; SPEC.md has its keys."""

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    topic: Name


class TopicsGrown(Operation, frozen=True):
    """A topic has got partitions; `growth` is what publishes say from now on.

    Told to clients that gave a `growth` when they connected.
    """

    growth: int
