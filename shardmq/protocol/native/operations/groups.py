"""Ordered consumer groups: which partitions a consumer has."""

from typing import Annotated

from msgspec import Meta

from shardmq.protocol.native.operations.fields import Channel, Name, Operation

Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""The number of a partition in its topic, from 0 on."""


class GroupAssigned(Operation, frozen=True):
    """The consumer has these partitions from now on: `[number, offset]` of each, the offset being what it reads next.

    The messages of a partition come behind it.
    """

    channel: Channel
    consumer: Name
    partitions: list[tuple[Partition, int]]


class GroupRevoked(Operation, frozen=True):
    """The consumer is to let go of these partitions; it gets no more of their messages.

    The client settles what it will, and answers with GroupReleased. What is settled later has no effect. Those that
    are lost (`is_lost`) are gone already, and are not answered.
    """

    channel: Channel
    consumer: Name
    partitions: list[Partition]
    is_lost: bool


class GroupReleased(Operation, frozen=True):
    """The consumer has let go of partitions that were revoked. Others may have them."""

    channel: Channel
    consumer: Name
    partitions: list[Partition]
