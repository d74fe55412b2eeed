"""Publishes: to queues at once or later, once each, and what is said when a queue does not take them."""

from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

from msgspec.structs import replace

from shardmq.bus.listener import Peer
from shardmq.bus.messages.columns import Publishes
from shardmq.bus.messages.dead_letters import Gone
from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.transactions import Transactions
from shardmq.shards.segments.shared_batch import SHARED_BYTES_MIN, stored_bytes
from shardmq.shards.state.deduplication import ProducerSequences
from shardmq.shards.state.forwarding import Forwarding
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import PeerState, ShardState
from shardmq.shards.storage.entries import SequenceSet

_NOT_FORWARDED: Final = repeat((0, 0))


class Publishing:
    """Carries out publishes.

    Args:
        state: the queues.
        delays: for what is published with a delay.
        transactions: for what is published in one.

    Attributes:
        forwarding: what gateways gave consumers before it came here.
    """

    def __init__(self, state: ShardState, delays: DelayedMessages, transactions: Transactions) -> None:
        self._state = state
        self._queues, self._active, self._peers = state.queues, state.active, state.peers
        self._buffer, self._space = state.buffer, state.store.space
        self._bodies = state.store.bodies
        self._delays = delays
        self._transactions = transactions
        self.forwarding = Forwarding(state.peers)
        self._confirming: dict[Peer, PeerState] = {}
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            Publish: self._publish,
            Publishes: self._publish_all,
            Gone: self._gone,
        }

    def confirm(self) -> bool:
        """Confirm what was published: everything is on disk. Returns whether there was anything."""
        if not self._confirming:
            return False
        for peer, client in self._confirming.items():
            peer.post(Confirmed(client.published))
        self._confirming.clear()
        return True

    def tell_gateways(self) -> None:
        """Tell gateways what they may forward, when consumers have got what they may have."""
        self.forwarding.tell(self._transactions.is_any_open)

    def lost(self, peer: Peer) -> None:
        """A session is over: nobody waits for its confirms."""
        self._confirming.pop(peer, None)

    def _publish(self, peer: Peer, message: Publish) -> None:
        client = self._peers[peer]
        client.published += 1
        self._confirming[peer] = client
        self._space.left -= stored_bytes(message.batch, message.queues, message.delay_ms)
        if self._space.left < 0:
            peer.post(PublishRefusal(client.published, ReplyCode.RESOURCE_ERROR, self._state.no_room()))
            return
        if message.transaction:
            self._stage(peer, client, message)
            return
        if message.delay_ms:
            self._publish_later(peer, client, message)
            return
        if len(message.queues) > 1 and len(message.batch.records) >= SHARED_BYTES_MIN:
            message = replace(message, batch=self._bodies.share(message.batch))
        batch = message.batch
        refused: tuple[int, int] | None = None
        for number in message.queues:
            hosted = self._queues.get(number)
            if hosted is None or hosted.is_condemned:
                refused = 0, number
            elif message.forwarded > 0:
                taken = self._take_forwarded(hosted, client, batch, message.forwarded, message.forwarded_as)
                refused = (taken, number) if taken < batch.count else refused
                self._active[number] = hosted
            elif message.producer or hosted.refuses:
                taken = self._publish_once(hosted, message) if message.producer else self._take(hosted, batch, 0)
                if taken < batch.count and (refused is None or taken < refused[0]):
                    refused = taken, number
                self._active[number] = hosted
            else:
                hosted.queue.append(batch)
                self._active[number] = hosted
                if message.forwarded:
                    self.forwarding.look_later(peer, hosted)
        if refused is not None:
            self._refuse(peer, client, message, *refused)

    def _publish_all(self, peer: Peer, message: Publishes) -> None:
        size = message.size
        alone = zip(message.queues, message.batches(), strict=True)
        forwarded = zip(message.forwarded, message.forwarded_as, strict=True) if message.forwarded else _NOT_FORWARDED
        if self._space.left < size:
            for (number, batch), (consumer, first) in zip(alone, forwarded, strict=False):
                try:
                    self._publish(peer, Publish((number,), batch, forwarded=consumer, forwarded_as=first))
                except RowDamaged as damage:
                    self._refuse_damaged(peer, number, damage)
            return
        client = self._peers[peer]
        self._confirming[peer] = client
        self._space.left -= size
        queues, active = self._queues, self._active
        for (number, batch), (consumer, first) in zip(alone, forwarded, strict=False):
            client.published += 1
            hosted = queues.get(number)
            if hosted is None or hosted.is_condemned:
                self._refuse(peer, client, Publish((number,), batch), 0, number)
                continue
            try:
                if consumer > 0:
                    taken = self._take_forwarded(hosted, client, batch, consumer, first)
                else:
                    taken = self._take(hosted, batch, 0) if hosted.refuses else hosted.queue.append(batch)
                    if consumer:
                        self.forwarding.look_later(peer, hosted)
            except RowDamaged as damage:
                self._refuse_damaged(peer, number, damage)
                continue
            active[number] = hosted
            if taken < batch.count:
                self._refuse(peer, client, Publish((number,), batch), taken, number)

    def _take_forwarded(
        self, hosted: HostedQueue, client: PeerState, batch: RecordBatch, consumer: int, first: int
    ) -> int:
        return self.forwarding.append(hosted, batch, client.consumers.get(consumer), first)

    def _refuse_damaged(self, peer: Peer, number: int, damage: RowDamaged) -> None:
        """Take a queue out of service of which something is damaged, and refuse the publish to it that met that."""
        self._state.take_out(damage)
        published, text = self._peers[peer].published, self._state.quarantine.text(number)
        peer.post(PublishRefusal(published, ReplyCode.RESOURCE_ERROR, text))

    def _publish_later(self, peer: Peer, client: PeerState, message: Publish) -> None:
        state = self._state
        refused: int | None = None
        for number in message.queues:
            hosted = state.queues.get(number)
            if hosted is None or hosted.is_condemned:
                refused = number
            elif not message.producer:
                self._take(hosted, message.batch, message.delay_ms)
            elif self._publish_once(hosted, message) < message.batch.count:
                refused = number
        if refused is not None:
            self._refuse(peer, client, message, 0, refused)

    def _stage(self, peer: Peer, client: PeerState, message: Publish) -> None:
        """Keep a batch for its transaction: for all of its queues or none, as what is sent again is staged once."""
        for number in message.queues:
            hosted = self._queues.get(number)
            if hosted is None or hosted.is_condemned:
                self._refuse(peer, client, message, 0, number)
                return
        refusal = self._transactions.stage(client.published, message)
        if refusal is not None:
            peer.post(refusal)

    def _publish_once(self, hosted: HostedQueue, message: Publish) -> int:
        """Take what the queue has not had from this producer; returns how many from the start it has now."""
        batch, producer, sequence = message.batch, message.producer, message.sequence
        count = batch.count
        producers = hosted.producers
        if producers is None:
            producers = hosted.producers = ProducerSequences()
        elif not hosted.refuses and not message.delay_ms:
            # Nearly everything comes in order, to a queue that takes all. The long way takes four times as long.
            seen = producers.seen.get(producer)
            if seen is not None and seen.extend(sequence, sequence + count):
                hosted.queue.append(batch)
                if not seen.is_due:
                    self._remember(hosted, producers, seen, batch)
                return count
        if producers.has_forgotten(producer, sequence):
            return 0
        for start, end in producers.unseen(producer, sequence, sequence + count):
            piece = self._state.slicer.cut(batch, start - sequence, end - sequence)
            taken = self._take(hosted, piece, message.delay_ms)
            if producer >= LETTER_PRODUCERS and hosted.queue.arguments.dead_letters_refused:
                taken = piece.count  # what there is no place for is a dead letter of this queue from then on
            if taken:
                self._remember(hosted, producers, producers.saw(producer, start, start + taken), batch)
            if taken < piece.count:
                return start - sequence + taken
        return count

    def _gone(self, _peer: Peer, message: Gone) -> None:
        """Written with the next letter of that producer: until then, more is remembered than need be."""
        for number in message.queues:
            hosted = self._queues.get(number)
            if hosted is not None and hosted.producers is not None:
                hosted.producers.gone(message.producer, message.ranges)

    def _take(self, hosted: HostedQueue, batch: RecordBatch, delay_ms: int) -> int:
        if delay_ms:
            # From now, not from the beginning of the pass: the publish may have been sent since.
            self._delays.delay(hosted, batch, self._state.clock.now_ms() + delay_ms)
            return batch.count
        return hosted.queue.append(batch, hosted.consumers.credit()) if hosted.refuses else hosted.queue.append(batch)

    def _remember(
        self, hosted: HostedQueue, producers: ProducerSequences, seen: SequenceSet, batch: RecordBatch
    ) -> None:
        """Write down what a queue has of a producer; of transient messages only for as long as they live themselves."""
        producers.seen.move_to_end(seen.producer)
        if hosted.is_durable and batch.flags & PERSISTENT:
            self._buffer.saw(hosted.queue.id, seen)
        forgotten = producers.surplus()
        if forgotten is not None and hosted.is_durable:
            self._buffer.forget(hosted.queue.id, forgotten)

    def _refuse(self, peer: Peer, client: PeerState, message: Publish, taken: int, number: int) -> None:
        hosted = self._state.queues.get(number)
        if hosted is None:
            missing = self._state.missing(number)
            code, text = missing.code, missing.text
        elif hosted.is_condemned:
            code, text = ReplyCode.RESOURCE_ERROR, f"{hosted.title} is being deleted just now; publish again"
        elif hosted.producers is not None and hosted.producers.has_forgotten(message.producer, message.sequence):
            code = ReplyCode.PRECONDITION_FAILED
            text = (
                f"{hosted.title} does not know any more whether it has number {message.sequence} of this producer; "
                "give the message a new number if it may come twice"
            )
        else:
            code = ReplyCode.RESOURCE_ERROR
            text = f"{hosted.title} is full ({_limits_of(hosted)}); consume from it, or publish again later"
        peer.post(PublishRefusal(client.published, code, text, taken))


def _limits_of(hosted: HostedQueue) -> str:
    arguments = hosted.queue.arguments
    limits = (("x-max-length", arguments.max_length), ("x-max-length-bytes", arguments.max_length_bytes))
    return ", ".join([f"{name} {value}" for name, value in limits if value is not None])
