"""A consumer, as its shard link knows it."""

from collections.abc import Callable
from typing import Any, Protocol

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.groups import GroupReading
from shardmq.bus.messages.shard import Consume, Delivered
from shardmq.bus.messages.streams import Reading
from shardmq.errors import RequestError
from shardmq.limits import DECLARE_SECONDS, DELIVERY_WINDOW_BYTES
from shardmq.message.record_batch import RecordBatch


class ConsumerLink(Protocol):
    """The link to the shard of a consumer's queue.

    Attributes:
        life: how often the shard went away; what was delivered in another life cannot be settled.
        publish: `PublishWindow.add` of the link.
    """

    life: int
    publish: Callable[..., bool]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to the shard, nor from it but for what others have caused."""

    def ask(self, message: Any, reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Ask the shard; it may be asked twice where it was away."""

    def start(self, consumer: "Consumer", reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Ask the shard for deliveries."""

    def get(self, consumer: "Consumer", auto_ack: bool, room: int, reply: Reply) -> None:
        """Ask the shard for one message; the result is its size where it takes more than `room` bytes."""

    def permit(self, consumer: "Consumer", size: int) -> None:
        """Allow `size` bytes beyond the consumer's window."""

    def cancel(self, consumer: "Consumer", reply: Reply) -> None:
        """Stop deliveries; what the consumer holds it keeps."""

    def release(self, consumer: "Consumer", is_unseen: bool = False) -> None:
        """Forget a consumer; what it holds returns to its queue: as it was, where its client has seen none of it."""

    def settle(self, consumer: "Consumer", start: int, end: int) -> None:
        """Acknowledge messages [start, end)."""

    def nack(
        self, consumer: "Consumer", start: int, end: int, requeue: bool, delay_ms: int = 0, is_unhandled: bool = False
    ) -> None:
        """Reject messages [start, end): back to their place, after a while; or dead-lettered or dropped.

        Args:
            consumer: who holds them.
            start: the number of the first.
            end: behind that of the last.
            requeue: whether they return.
            delay_ms: after how long.
            is_unhandled: whether the client's program has seen none of them.
        """

    def put_back(self, consumer: "Consumer", ranges: list[tuple[int, int]]) -> None:
        """Have messages that the client has not seen return to their queue as they were."""

    def renew(self, consumer: "Consumer", start: int, end: int) -> None:
        """Begin the consumer timeout of messages [start, end) anew."""

    def decline(self, consumer: "Consumer") -> None:
        """Tell the shard that a consumer that was starved has no more prefetch now."""

    def taken(self, consumer: "Consumer") -> None:
        """Give the consumer credit for what the client's socket took."""


class Receiver(Protocol):
    """Whoever takes deliveries: a channel's consumers.

    Attributes:
        unacked: messages that its consumers hold together, those of basic.get apart.
    """

    unacked: int

    def deliver(self, consumer: "Consumer", delivered: Delivered) -> None:
        """Take messages for one of its consumers."""

    def deliver_fresh(self, consumer: "Consumer", first: int, batch: RecordBatch) -> None:
        """Take messages for one of its consumers that nobody was delivered before, numbered from `first` on."""

    def take_forwarded(self, consumer: "Consumer", first: int, batch: RecordBatch) -> bool:
        """Take messages that are on their way to the shard, numbered from `first` on; returns whether it does."""

    def cancelled(self, consumer: "Consumer", fault: RequestError | None) -> None:
        """Forget a consumer that gets nothing more: its queue is deleted where there is no fault."""

    def wanted(self, consumer: "Consumer", size: int) -> None:
        """Find room for the next message of a consumer, which does not fit into its window."""

    def starved(self, consumer: "Consumer") -> None:
        """Give a consumer of a shared group more prefetch, or decline: its shard has messages beyond it."""

    def spent(self, consumer: "Consumer", size: int, used: int) -> None:
        """Account for room for `size` bytes beyond a consumer's window, of which so much was used.

        `used` is below 0 where what was used before is free, too.
        """


class Consumer:
    """A consumer, or a channel's basic.get on a queue, for as long as it may hold messages.

    Attributes:
        acked_in: of a shared group's, the life of its link in which the first ack was sent that is not known to be on
            disk; None for no such ack.
        acks_lost: whether acks came for what it got before its shard went away, or was to ignore; they had no effect.
        is_plain: whether it comes and goes without effect on its queue, and on whether that has other consumers.
        takes_replies: whether its queue is one of answers to its client's requests.
        settled_late: what it gets without acknowledgements is settled here, when it is handed to the client.
        prefetch: how many it may hold, as its shard knows; own_prefetch: without what its channel limits.
        times_out: whether messages return by themselves while it holds them.
        unacked: messages handed to the client and not settled; `hold` counts them.
        is_counted: whether they count in its receiver's `unacked`.
        window: bytes that may be under way to its socket.
        overhead: bytes that each message takes beside its record and names, for the client's protocol.
        owed: bytes the socket has taken since the shard last heard.
        permitted: bytes that may be on their way beyond the window.
        borrowed: bytes that have come beyond it, and were not handed to the socket.
        reading: what its shard is to read of a stream from here on; None for other queues.
        forwarded_upto: the numbers of what was forwarded to it are below, FORWARDED apart.
        group: how it consumes a stream as a member of a group; None for others.
        partition: the number of the stream in its topic.
    """

    __slots__ = (
        "acked_in",
        "acks_lost",
        "auto_ack",
        "borrowed",
        "exclusive",
        "forwarded_upto",
        "group",
        "is_counted",
        "is_plain",
        "link",
        "number",
        "overhead",
        "own_prefetch",
        "owed",
        "partition",
        "permitted",
        "prefetch",
        "priority",
        "queue",
        "reading",
        "receiver",
        "running",
        "settled",
        "settled_late",
        "takes_replies",
        "tag",
        "timeout_ms",
        "times_out",
        "unacked",
        "window",
    )

    def __init__(self, receiver: Receiver, link: ConsumerLink, number: int, queue: int, tag: str) -> None:
        self.receiver = receiver
        self.link = link
        self.number = number
        self.queue = queue
        self.tag = tag
        self.auto_ack = self.settled_late = self.takes_replies = False
        self.prefetch = self.own_prefetch = 0
        self.priority = 0
        self.exclusive = False
        self.timeout_ms = 0
        self.times_out = self.acks_lost = False
        self.acked_in: int | None = None
        self.running = False
        self.unacked = 0
        self.is_counted = bool(tag)
        self.is_plain = False
        self.window = DELIVERY_WINDOW_BYTES
        self.overhead = self.owed = self.forwarded_upto = 0
        self.permitted = self.borrowed = 0
        self.settled: list[tuple[int, int]] = []
        self.reading: Reading | None = None
        self.group: GroupReading | None = None
        self.partition = 0

    def hold(self, count: int) -> None:
        """Count messages that are handed to the client; below 0, messages that are settled or were lost."""
        self.unacked += count
        if self.is_counted:
            self.receiver.unacked += count

    def start_request(self) -> Consume:
        """What asks its shard for deliveries."""
        return Consume(
            self.number,
            self.queue,
            self.prefetch,
            self.auto_ack,
            self.window,
            self.priority,
            self.exclusive,
            self.timeout_ms,
            self.settled_late,
            self.overhead,
            self.reading,
            self.group,
        )

    def repay(self) -> None:
        """Repay what was lent for messages that will not come."""
        permitted, self.permitted = self.permitted, 0
        borrowed, self.borrowed = self.borrowed, 0
        if permitted or borrowed:
            self.receiver.spent(self, permitted, -borrowed)

    def read_on(self, offset: int) -> None:
        """Note where to read on in a stream, should its shard be started again."""
        reading = self.reading
        assert reading is not None
        self.reading = Reading("offset", offset, reading.tags, reading.has_untagged, reading.is_exact)


HeldDelivery = tuple[Consumer, int]
"""A consumer and the life of its link in which it was given messages: they stand behind each delivery tag.
An ack for what was delivered before a shard died is not to settle what it numbered anew."""
