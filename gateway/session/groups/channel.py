"""What a member of a group needs of the channel that it is on."""

from collections.abc import Sequence
from typing import Protocol

from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.links.consumer import Consumer, HeldDelivery
from shardmq.gateway.session.delivery_tags import DeliveryTags


class MembersChannel(Protocol):
    """The consumers of the channel that a member is on."""

    @property
    def number(self) -> int:
        """The client's number of the channel."""

    @property
    def all_tags(self) -> Sequence[DeliveryTags[HeldDelivery]]:
        """The delivery tags of what its consumers hold."""

    def pass_on(self, consumer: Consumer, delivered: Delivered) -> None:
        """Number messages and hand them to the client."""

    def disown(self, consumer: Consumer, start: int, end: int) -> None:
        """Ignore what the client settles of messages [start, end) that it has."""
