"""What a session needs of the protocol in front of it."""

from typing import Protocol

from shardmq.errors import RequestError
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.channel import Channel
from shardmq.message.record_batch import RecordBatch


class Front(Protocol):
    """What a session needs of the protocol in front of it. Everything is queued and sent at the end of the pass."""

    @property
    def is_writable(self) -> bool:
        """Whether the client's socket takes more."""

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, run: RecordBatch, deliveries: int
    ) -> None:
        """Messages for a consumer; each was delivered so often in vain before, where its queue counts that."""

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int) -> None:
        """These publishes are not certain to be stored; but for the first `taken` messages if it is one."""

    def send_return(
        self, channel: int, request: int, exchange: str, key: str, flags: int, count: int, records: bytes
    ) -> None:
        """Mandatory messages of a publish that no queue took; before its confirm."""

    def send_cancelled(self, channel: int, consumer: str, fault: RequestError | None) -> None:
        """A consumer gets nothing more: its queue is deleted where there is no fault."""

    def confirms_due(self, channel: "Channel") -> None:
        """The channel has confirms to be collected with `take_confirms` at the end of the pass."""

    def delivery_bytes(self, consumer: str) -> int:
        """What each message for a consumer takes beside its record and names, where those are written for each."""

    def repay_when_read(self, size: int) -> None:
        """So many bytes of what was sent were lent: they are free again once the client's socket has taken them."""

    def hold_publishing(self, link: ShardLink) -> None:
        """Too much is unconfirmed at that shard: read no more until it has caught up."""
