"""What a session needs of the protocol in front of it."""

from typing import Protocol

from shardmq.bus.messages.shard import Delivered
from shardmq.errors import RequestError
from shardmq.gateway.links.shard import ShardLink
from shardmq.message.record_batch import RecordBatch


class ConfirmingChannel(Protocol):
    """A channel with confirms for its client."""

    @property
    def number(self) -> int:
        """The client's number of the channel."""

    def take_confirms(self) -> list[tuple[int, int]]:
        """Take the confirms gathered since the last call: ranges of publishes, both ends included."""


class Front(Protocol):
    """What a session needs of the protocol in front of it. Everything is queued and sent at the end of the pass."""

    @property
    def is_writable(self) -> bool:
        """Whether the client's socket takes more."""

    @property
    def is_unread(self) -> bool:
        """Whether nothing more is carried out for the client until it has read what it was sent."""

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is carried out for the client at all."""

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, batch: RecordBatch, deliveries: int
    ) -> None:
        """Send messages to a consumer.

        Args:
            channel: the consumer's.
            consumer: its tag.
            tag: the delivery tag of the first message.
            redelivered: whether they were delivered before.
            batch: the messages.
            deliveries: how often each was delivered in vain before, where its queue counts that.
        """

    def send_read(self, channel: int, consumer: str, tag: int, offset: int, batch: RecordBatch) -> None:
        """Send messages of a stream to a consumer.

        Args:
            channel: the consumer's.
            consumer: its tag.
            tag: the delivery tag of the first message.
            offset: of the first message.
            batch: the messages.
        """

    def send_partition(self, channel: int, consumer: str, tag: int, delivered: Delivered, partition: int) -> None:
        """Send messages of a partition to a consumer of a group.

        Args:
            channel: the consumer's.
            consumer: its tag.
            tag: the delivery tag of the first message.
            delivered: the messages, the first of which has the offset `first`.
            partition: its number.
        """

    def send_assigned(self, channel: int, consumer: str, partitions: list[tuple[int, int]]) -> None:
        """Say that a consumer has partitions from now on: number and next offset of each."""

    def send_revoked(self, channel: int, consumer: str, partitions: list[int], *, is_lost: bool) -> bool:
        """Say that a consumer is to let go of partitions, or has lost them; returns whether the client will answer."""

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int) -> None:
        """Refuse publishes `first` to `last`; where it is one, its first `taken` messages are stored."""

    def send_return(self, channel: int, request: int, batch: RecordBatch) -> None:
        """Return mandatory messages of a publish that no queue took; before its confirm."""

    def send_cancelled(self, channel: int, consumer: str, fault: RequestError | None) -> None:
        """Say that a consumer gets nothing more: its queue is deleted where there is no fault."""

    def confirms_due(self, channel: ConfirmingChannel) -> None:
        """Collect a channel's confirms at the end of the pass."""

    def delivery_bytes(self, consumer: str) -> int:
        """What each message for a consumer takes beside its record and names, where those are written for each."""

    def repay_when_read(self, size: int) -> None:
        """Repay `size` bytes that were lent once the client's socket has taken them."""

    def hold_publishing(self, link: ShardLink) -> None:
        """Read no more until that shard has confirmed most of what it was sent."""
