"""Collects single publishes until they are sent as batches."""

from collections.abc import Callable
from typing import Final

from msgspec import Raw

from shardmq.client.api.results import ServerProperties
from shardmq.client.core.batching import (
    BATCH_BYTES,
    BATCH_RECORDS,
    BY_QUEUE,
    NO_EXTRAS,
    PublishBatch,
    PublishOptions,
    check_properties,
    window_of,
)
from shardmq.client.core.publishing.builder import BatchBuilder
from shardmq.client.core.publishing.keyed import KeyedBuilder
from shardmq.client.core.publishing.mixed import MixedBuilder
from shardmq.client.core.validation import check_delay, check_names
from shardmq.message.properties import Properties

QUEUE_RECORDS: Final = 16
"""Of messages to many queues, about so many are collected for each before they are sent: a batch of one costs the
broker 15 µs, one of eight 20. (100 queues, all processes together: 11 µs of processor a message with 8, 7 with 16.)"""

MIXED_BATCHES: Final = 2
"""Where properties or keys alternate, so many times as much is collected: the broker takes a batch apart, by priority
or by partition, and each part of it costs as much as a small batch. (11 priorities: the broker takes 2.2 µs
of processor a message with 500 messages, 1.9 with 1,000, on two busy cores.)"""

SENT_BATCHES_MAX: Final = 20
"""What is collected for many queues is sent when it has as many messages, or bytes, as so many batches may have: half
the default window of 1,000 queues, so that one half is collected while the other is stored."""

UNMIXED_RECORDS: Final = 8
"""As many neighbours with the same properties are packed together."""

BUILDERS_MAX: Final = 4096
"""Routing keys whose builders a publisher remembers; past it, all of them are forgotten."""

_NOBODYS: Final = PublishOptions(producer=-1)
"""What nobody publishes with."""


class BatchCollector:
    """Collects single publishes until they are sent as batches.

    What goes to queues by their names is collected side by side, a batch for each queue; all else closes what is there,
    as two keys may lead to one queue, which is to have its messages in order.

        publishes   a1 b1 a2 x1 x2 b2 a3      a, b: routing keys of the default exchange; x: of another exchange
        closed      [a1 a2] [b1] [x1 x2]
        growing                         [b2] [a3]

    Any thread may append to `filling.bodies` without a lock, if it looks afterwards whether `filling` is still the one:
    where another thread has turned to a new one meanwhile, what was appended may have been left behind, and `sweep`
    gets it. Everything else here wants the publisher's lock. (With the lock here, a publish took twice as long.)

    Neighbours whose properties differ still share a batch: what is there is packed when the properties change.

    So do neighbours whose keys differ, each with its key, if they go to another exchange and the broker takes that.

    Args:
        producer: whose messages are numbered by the program, 0 for none.
        server: says what the broker takes; after a loss another one may be there.
        window: how many messages may be unconfirmed; None for as many as go well with the queues in use.

    Attributes:
        window: how many messages may be unconfirmed at most.
        filling: gets what is published next.
        aside: messages collected beside the bodies of `filling`; aside_bytes: their bytes, about.
        records_max: with so many messages, what is collected is to be sent; bytes_max: with so many bytes.
    """

    __slots__ = (
        "_builders",
        "_closed",
        "_growing",
        "_is_window_given",
        "_server",
        "aside",
        "aside_bytes",
        "bytes_max",
        "filling",
        "records_max",
        "window",
    )

    def __init__(
        self,
        producer: int = 0,
        server: Callable[[], ServerProperties] = ServerProperties,
        window: int | None = None,
    ) -> None:
        self._server = server
        extras = PublishOptions(producer=producer) if producer else NO_EXTRAS
        self.filling = BatchBuilder("", "", None, extras, server().message_max)
        self._builders: dict[str, BatchBuilder] = {}  # of the default exchange, by routing key
        self._growing: dict[BatchBuilder, None] = {self.filling: None}  # in the order in which they were turned to
        self._closed: list[PublishBatch] = []
        self.aside = self.aside_bytes = 0
        self._is_window_given = window is not None
        self.window = window_of(0) if window is None else window
        self._set_limits()

    @property
    def count(self) -> int:
        """How many messages are collected."""
        return self.aside + len(self.filling.bodies)

    @property
    def is_full(self) -> bool:
        """Whether so much is collected that it is to be sent."""
        return self.count >= self.records_max or self.aside_bytes + self.filling.size >= self.bytes_max

    def joined(
        self, exchange: str, routing_key: str, properties: Properties | None
    ) -> tuple[BatchBuilder, Raw | None] | None:
        """What is being filled, where a message published like that joins it as it is; else None. Needs no lock.

        Returns:
            The builder, and the message's properties encoded, if bodies wait so there.

        Raises:
            TypeError, InvalidRequest: the routing key cannot be.
        """
        filling = self.filling
        if filling.exchange != exchange or not (filling.is_keyed or filling.routing_key == routing_key):
            return None
        if isinstance(filling, MixedBuilder):
            head = filling.head_for(properties)
            if head is not None and isinstance(filling, KeyedBuilder):
                filling.check_key(routing_key)
            return None if head is None else (filling, head)
        return (filling, None) if filling.extras is NO_EXTRAS and filling.has(properties) else None

    def turn_to(
        self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions = NO_EXTRAS
    ) -> Raw | None:
        """Collect messages published like that from now on; returns their properties encoded, if bodies wait so.

        Raises:
            TypeError, InvalidRequest: a name or the properties cannot be; nothing has changed then.
            ContentTooLarge: the properties are too large; the same.
        """
        old = self.filling
        known = None if exchange else self._builders.get(routing_key)
        head = None
        if (
            known is not None
            and known.properties is properties
            and (known.encoded is None or known.has(properties))
            and known.extras == extras
        ):
            new = known
            new.body_max = self._server().message_max
        else:
            check_properties(properties)
            before = old if known is None else known
            if isinstance(before, MixedBuilder) and before.takes(routing_key, exchange, properties, extras):
                new = known = before
                new.body_max = self._server().message_max
            else:
                new = self._new(before, exchange, routing_key, properties, extras)
            if isinstance(new, KeyedBuilder):
                new.check_key(routing_key)
            if isinstance(new, MixedBuilder):
                head = new.head_of(properties)
        self.filling = new  # before the old one is emptied: who adds to that one afterwards sees that it is left behind
        self._set_aside(old)
        if new is not known:
            self._replace(old, known, new)
        self.aside -= new.counted
        new.counted = 0
        if new not in self._growing:
            self._growing[new] = None
            self._set_limits()
        return head

    def _new(
        self,
        before: BatchBuilder,
        exchange: str,
        routing_key: str,
        properties: Properties | None,
        extras: PublishOptions,
    ) -> BatchBuilder:
        """A builder for messages published like that: a mixed or keyed one where they change after a few messages."""
        new = BatchBuilder(exchange, routing_key, properties, extras, self._server().message_max)
        if not new.continues(before):
            if not new.continues(self.filling):
                check_names(exchange=exchange, routing_key=routing_key)
                check_delay(extras.delay_ms)
            if exchange and extras == NO_EXTRAS and len(before.bodies) < UNMIXED_RECORDS and self._server().record_keys:
                keyed = KeyedBuilder(new)
                return keyed if keyed.continues(before) else new
        elif extras == NO_EXTRAS and len(before.bodies) < UNMIXED_RECORDS:
            return MixedBuilder(new)
        return new

    def _replace(self, old: BatchBuilder, known: BatchBuilder | None, new: BatchBuilder) -> None:
        """Begin to collect with a new builder after the old one; `known` is the one of its queue, if there is one."""
        before = old if known is None else known
        if new.continues(before):
            new.follow(before)
            self._growing.pop(before, None)
        elif known is not None and new.numbering == BY_QUEUE == old.numbering:
            self._closed += known.batches()
            self._growing.pop(known, None)
        elif new.numbering != BY_QUEUE or old.numbering != BY_QUEUE or len(self._builders) >= BUILDERS_MAX:
            self._close()
        if new.numbering == BY_QUEUE:
            self._builders[new.routing_key] = new

    def _close(self) -> None:
        """Close all batches: what is published next comes behind them."""
        for builder in self._growing:
            self._closed += builder.batches()
        self._growing.clear()
        self._builders.clear()

    def _set_aside(self, builder: BatchBuilder) -> None:
        """Count what a builder has that is not the one to be filled."""
        count = len(builder.bodies)
        self.aside += count - builder.counted
        self.aside_bytes += builder.size
        builder.counted = count
        builder.size = 0

    def take(self) -> list[PublishBatch]:
        """Take everything collected, as batches."""
        batches, self._closed = self._closed, []
        for builder in self._growing:
            batches += builder.batches()
        self._growing = {self.filling: None}
        self.aside = self.aside_bytes = 0
        self._set_limits()
        if not self._is_window_given:
            self.window = window_of(len(self._builders))
        return batches

    def leave(self) -> None:
        """Have no message join what is being filled; who still adds finds itself left behind."""
        self.filling = BatchBuilder("", "", None, _NOBODYS)

    def close(self) -> list[PublishBatch]:
        """Take everything, and have no message join what is being filled."""
        self.leave()
        return self.take()

    def _set_limits(self) -> None:
        """Let batches of many queues grow together: of as many as one may have."""
        least = MIXED_BATCHES if isinstance(self.filling, MixedBuilder) else 1
        batches = min(max(len(self._growing) * QUEUE_RECORDS // BATCH_RECORDS, least), SENT_BATCHES_MAX)
        self.records_max, self.bytes_max = batches * BATCH_RECORDS, batches * BATCH_BYTES

    def sweep(self, old: BatchBuilder) -> list[PublishBatch]:
        """Collect what another thread added to a builder that is no longer filled; returns what is to be sent."""
        if self._builders.get(old.routing_key) is old:
            self._growing[old] = None
            self._set_aside(old)
            return []
        return [*self.take(), *old.batches()]

    def next_sequence(self) -> int:
        """The number that the next numbered message needs to share a batch with those before it."""
        return self.filling.extras.sequence + len(self.filling.bodies)
