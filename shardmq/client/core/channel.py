"""What the core keeps of a channel, and of what was asked and published on it until it is answered."""

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from shardmq.client.api.defaults import ACK_AT_MOST
from shardmq.client.api.message import Settler
from shardmq.client.core.acknowledgements import Acknowledgements
from shardmq.client.core.batching import PublishBatch
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.groups.plain import PlainInbox
from shardmq.client.core.interfaces import Confirms, Inbox, Reply, again
from shardmq.errors import ShardmqError
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.protocol.native.operations.basic import BasicConsume, BasicPublish
from shardmq.protocol.native.operations.connection import ChannelOpen, ConnectionOpen
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, TagRanges
from shardmq.ranges import RangeSet

T = TypeVar("T")

Published = tuple[Confirms, BasicPublish]
"""A publish until it is confirmed: who counts it, and the operation. One with request 0 was never sent."""


class PendingRequest(Generic[T]):
    """A request until it is answered.

    Attributes:
        channel: the channel that it ends with; None where it ends with the connection alone.
        operation: what is asked; the connection numbers a copy of it when it is sent.
        reply: who waits for the answer.
        finish: makes of the result of its Ok what the reply gets.
        what: the request in words, for the text of an error: "purging queue 'work'".
        is_repeated: it was asked before, and perhaps carried out, when the connection was lost.
    """

    __slots__ = ("channel", "finish", "is_repeated", "operation", "reply", "what")

    def __init__(
        self,
        channel: "ChannelCore | None",
        operation: ClientRequest | ConnectionOpen,
        reply: Reply[T],
        finish: Callable[[object], T],
        what: str = "a request",
    ) -> None:
        self.channel = channel
        self.operation = operation
        self.reply = reply
        self.finish = finish
        self.what = what
        self.is_repeated = False

    def carried_out(self, result: object) -> None:
        """Settle the reply with what the result means; what follows from it is done also where nobody waits."""
        finished = self.finish(result)
        if not self.reply.done():
            self.reply.set_result(finished)

    def failed(self, error: ShardmqError) -> None:
        """Settle the reply with an error, if somebody waits."""
        if not self.reply.done():
            self.reply.set_exception(error)

    def outlives(self, error: ShardmqError) -> bool:
        """Whether it is asked again over the next connection, as this one is lost; if not, it was settled."""
        operation = self.operation
        if isinstance(operation, ConnectionOpen):  # the next life has its own
            self.failed(again(error))
            return False
        if operation.after_loss is AfterLoss.DONE:
            self.carried_out(None)
            return False
        if self.reply.done():
            return False
        if self.channel is not None and isinstance(operation, ChannelOpen):
            self.channel.opening = cast("Reply[None]", self.reply)
            return False
        if self.channel is not None and operation.may_be_asked_again():
            self.is_repeated = True
            return True
        self.failed(error.with_text(f"{error.text}; {self.what} was under way, and may have been carried out or not"))
        return False


def as_it_is(result: object) -> object:
    """The result of an Ok, for whoever asks."""
    return result


QUEUES_MAX: Final = 16_384
"""Queues of which a channel remembers the number of the next message."""


class QueueNumbers:
    """The numbers of messages that go to queues by their names: they count for each queue on their own.

    Where too many queues are known, all are forgotten: the next messages have numbers above all that there were.

    Attributes:
        producer: whose numbers they are.
    """

    __slots__ = ("_base", "_next", "producer")

    def __init__(self) -> None:
        self.producer = FRAMED_PRODUCERS | secrets.randbits(62)
        self._base = 1
        self._next: dict[str, int] = {}

    def take(self, queue: str, count: int) -> int:
        """The number of the first of so many messages."""
        known = self._next
        number = known.get(queue, self._base)
        if len(known) >= QUEUES_MAX and queue not in known:
            number = self._base = max(known.values())
            known.clear()
        known[queue] = number + count
        return number


class ChannelCore:
    """A channel, over all lives of its connection.

    Delivery tags rise over all lives, so that a tag means one message: the broker's are `tag_offset` less.

    Attributes:
        number: of the channel.
        settler: passes on the acks of its messages.
        opening: who waits for it to be opened; None once it was, and where nobody ever did.
        is_asked_for: whether the broker was asked to open it, in this life of the connection.
        is_open: whether it has done so.
        inboxes: its consumers' by their tag.
        unheard: tags of consumers whose messages are acked as they are sent, and thrown away until they are cancelled.
        manual: tags of those consumers whose messages are acked.
        consumers: what was asked for each, by its tag.
        producer: its number as a publisher.
        sequence: of the next message it publishes.
        queue_numbers: of those that go to queues by their names.
        unconfirmed: its publishes by request number.
        held: what is to be sent when that is possible again, in order.
        put_off: its publishes that were refused for now, until `ConnectionCore.publish_again`.
        unacked: delivery tags that came and are not settled with the broker.
        last_tag: the highest that came.
        stale_tag: messages up to this one are the broker's again; settling them means nothing.
        tag_offset: what its delivery tags are more than the broker's in this life.
        acknowledgements: acks and nacks the broker was not told yet.
        undelivered: bytes that came for its consumers and were not taken yet.
        fault: why it is closed, if it is.
    """

    __slots__ = (
        "acknowledgements",
        "consumers",
        "fault",
        "held",
        "inboxes",
        "is_asked_for",
        "is_open",
        "last_tag",
        "manual",
        "number",
        "opening",
        "producer",
        "put_off",
        "queue_numbers",
        "sequence",
        "settler",
        "stale_tag",
        "tag_offset",
        "unacked",
        "unconfirmed",
        "undelivered",
        "unheard",
    )

    def __init__(self, number: int, settler: Settler, opening: Reply[None] | None) -> None:
        self.number = number
        self.settler = settler
        self.opening = opening
        self.is_asked_for = False
        self.is_open = False
        self.inboxes: dict[str, Inbox] = {}
        self.manual: set[str] = set()
        self.unheard: set[str] = set()
        self.consumers: dict[str, BasicConsume] = {}
        self.producer = FRAMED_PRODUCERS | secrets.randbits(62)
        self.sequence = 1
        self.queue_numbers = QueueNumbers()
        self.unconfirmed: dict[int, Published] = {}
        self.held: deque[PendingRequest[Any] | Published] = deque()
        self.put_off: list[Published] = []
        self.unacked = RangeSet()
        self.last_tag = 0
        self.stale_tag = 0
        self.tag_offset = 0
        self.acknowledgements = Acknowledgements()
        self.undelivered = 0
        self.fault: ShardmqError | None = None

    def unacked_up_to(self, delivery_tag: int) -> TagRanges:
        """The ranges that acking a tag with `multiple` means: all unacked up to it (0: all there is), else itself."""
        end = delivery_tag + 1 if delivery_tag else 2**63
        found = [(first, stop - 1) for first, stop in self.unacked.within(1, end)]
        return found or ([(delivery_tag, delivery_tag)] if delivery_tag else [])

    def forget_consumer(self, tag: str) -> Inbox | None:
        """Remove a consumer; returns its inbox."""
        self.manual.discard(tag)
        self.consumers.pop(tag, None)
        return self.inboxes.pop(tag, None)

    def break_off(self, again: list[tuple[int, PendingRequest[Any]]]) -> None:
        """Hold what was under way until the connection is back: publishes, and the requests `again` by number."""
        self.is_asked_for = self.is_open = False
        self.stale_tag = self.tag_offset = self.last_tag
        self.unacked.clear()
        self.acknowledgements = Acknowledgements()
        for inbox in self.inboxes.values():
            if isinstance(inbox, Membership):
                inbox.broken()
            elif isinstance(inbox, PlainInbox) and inbox.member is not None:
                inbox.member.broken()
        sent: list[tuple[int, PendingRequest[Any] | Published]] = [*self.unconfirmed.items(), *again]
        self.unconfirmed = {}
        sent.sort(key=lambda entry: entry[0])
        self.held.extendleft(entry for _, entry in reversed(sent))

    def withdraw(self, confirms: Confirms) -> bool:
        """Take back a publish that was never sent; returns whether there was one."""
        for place, entry in enumerate(self.held):
            if isinstance(entry, tuple) and entry[0] is confirms and not entry[1].request:
                del self.held[place]
                return True
        return False


class SettlerCore:
    """What the settlers of both fronts share: how many acks may wait for one another.

    Attributes:
        core: the channel's; consumers' loops look at its `stale_tag` after each message.
    """

    __slots__ = ("_ack_at", "_prefetches", "core")

    def __init__(self) -> None:
        self.core: ChannelCore
        self._ack_at = ACK_AT_MOST
        self._prefetches: dict[str, int] = {}

    def note_prefetch(self, tag: str, prefetch: int) -> None:
        """Let acks linger no longer than half a consumer's prefetch; 0 is no limit."""
        self._prefetches[tag] = prefetch
        self._set_ack_at()

    def forget_prefetch(self, tag: str) -> None:
        """Forget a consumer that has ended."""
        self._prefetches.pop(tag, None)
        self._set_ack_at()

    def _set_ack_at(self) -> None:
        limits = [limit // 2 for limit in list(self._prefetches.values()) if limit]
        self._ack_at = max(min([ACK_AT_MOST, *limits]), 1)


Publish = Callable[[ChannelCore, PublishBatch, Confirms], None]
"""Publishes a record batch: `ConnectionCore.publish`, or a transaction's `TransactionCore.publish`."""
