"""What consumers ask for: messages, one or as they come; acks, nacks and renewals; credit and prefetch."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.columns import Acks
from shardmq.bus.messages.groups import Declined
from shardmq.bus.messages.shard import (
    Ack,
    Cancel,
    Consume,
    Credit,
    Get,
    Got,
    Nack,
    Permit,
    Qos,
    Release,
    Renew,
    Spent,
)
from shardmq.errors import ReplyCode, RequestError, RowDamaged
from shardmq.shards.consumers.ack_timeouts import AckTimeouts
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.partitions.groups import Groups
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import PeerState, ShardState
from shardmq.shards.topics.cursor import NEXT, cursor_at
from shardmq.shards.topics.partition import Partition

LOST_MS: Final = 5000
"""How long an auto-delete queue is kept after its last consumers went with their gateway's session: a broken link is
back in a moment, and its consumers with it."""

Ranges = list[tuple[int, int]]


class Consuming:
    """Carries out what consumers ask.

    Args:
        state: the queues.
        delays: for what is returned with a delay.
        groups: for consumers that are members of groups.

    Attributes:
        permitted: consumers that were given a permit in this pass.
    """

    def __init__(self, state: ShardState, delays: DelayedMessages, groups: Groups) -> None:
        self._state = state
        self._delays = delays
        self._groups = groups
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            Consume: self._consume,
            Cancel: self._cancel,
            Release: self._release,
            Ack: self.settle,
            Acks: self._settle_all,
            Nack: self.requeue,
            Renew: self._renew,
            Credit: self._credit,
            Qos: self._qos,
            Get: self._get,
            Permit: self._permit,
            Declined: self._declined,
        }
        self.permitted: list[Consumer] = []

    def lost(self, client: PeerState) -> None:
        """Remove the consumers of a session that is over."""
        state = self._state
        for consumer in client.consumers.values():
            try:
                hosted = self._free(consumer)
            except RowDamaged as damage:
                state.take_out(damage)
                continue
            if hosted is not None and not len(hosted.consumers) and hosted.queue.declared.auto_delete:
                state.schedule.at(state.schedule.now_ms + LOST_MS, partial(state.look_unused, hosted))

    def _consume(self, responder: Responder[int | None], message: Consume) -> None:
        state = self._state
        hosted = state.found(responder, message.queue)
        if hosted is None:
            return
        known, consumers = state.peers[responder.peer].consumers, hosted.consumers
        if message.consumer in known:
            responder.refuse(ReplyCode.NOT_ALLOWED, f"consumer {message.consumer} exists")
            return
        if consumers.exclusive is not None or (message.exclusive and len(consumers)):
            text = (
                f"{hosted.title} in exclusive use" if consumers.exclusive else f"{hosted.title} has consumers already"
            )
            responder.refuse(ReplyCode.ACCESS_REFUSED, text)
            return
        if message.exclusive and hosted.queue.arguments.single_active_consumer:  # RabbitMQ's rule: one or the other
            text = f"{hosted.title} has x-single-active-consumer: consume without exclusive, one at a time is served"
            responder.refuse(ReplyCode.ACCESS_REFUSED, text)
            return
        consumer = Consumer(
            responder.peer,
            message.consumer,
            hosted.queue,
            message.prefetch,
            message.auto_ack,
            message.window,
            message.priority,
            message.exclusive,
        )
        consumer.overhead = message.overhead
        try:
            begin = self._begin(hosted, consumer, message)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        if not message.auto_ack:
            self._limit(consumer, message.timeout_ms)
        consumer.settles = not message.auto_ack or message.settled_late
        state.catch_up(hosted)
        known[message.consumer] = consumer
        consumers.join(consumer)
        hosted.is_kept = False
        state.use(hosted)
        state.unused.pop(message.queue, None)
        state.active[message.queue] = hosted
        responder.answer(begin)

    def _begin(self, hosted: HostedQueue, consumer: Consumer, message: Consume) -> int | None:
        """Return where a consumer begins to read a partition, or its group does; None of other queues.

        Raises:
            RequestError: it may not, or not there.
        """
        if message.group is not None:
            return self._groups.attach(hosted, consumer, message.group)
        if not isinstance(hosted.queue, Partition):
            return None
        consumer.cursor = cursor_at(hosted.queue, message.reading or NEXT)
        return consumer.cursor.offset

    def _limit(self, consumer: Consumer, timeout_ms: int) -> None:
        """Give a consumer deadlines, if it or its queue has a time for them."""
        timeout_ms = timeout_ms or consumer.queue.arguments.consumer_timeout_ms or 0
        if timeout_ms:
            overdue = partial(self._overdue, consumer)
            consumer.timeouts = AckTimeouts(timeout_ms, self._state.schedule, consumer.held, overdue)

    def _cancel(self, responder: Responder[None], message: Cancel) -> None:
        consumer = self._state.peers[responder.peer].consumers.get(message.consumer)
        if consumer is not None:
            self._leave(consumer)
        responder.answer(None)

    def _release(self, peer: Peer, message: Release) -> None:
        client = self._state.peers[peer]
        client.cut_off.pop(message.consumer, None)
        consumer = client.consumers.pop(message.consumer, None)
        if consumer is not None:
            hosted = self._free(consumer, message.is_unseen)
            if hosted is not None:
                self._state.look_unused(hosted)

    def _leave(self, consumer: Consumer) -> None:
        """Deliver no more to a consumer; it keeps what it holds."""
        state, number = self._state, consumer.queue.id
        hosted = state.queues[number]
        state.catch_up(hosted)
        hosted.consumers.leave(consumer)
        state.use(hosted)
        state.active[number] = hosted
        state.look_unused(hosted)

    def _free(self, consumer: Consumer, is_unseen: bool = False) -> HostedQueue | None:
        """Remove a consumer; requeue what it holds, or put it back as it was, where nobody has seen it."""
        state, number = self._state, consumer.queue.id
        hosted = state.queues.get(number)
        if hosted is None:
            return None
        hosted.consumers.leave(consumer)
        if consumer.timeouts is not None:
            consumer.timeouts.close()
        if consumer.held and is_unseen:
            consumer.settler.put_back(list(consumer.held), consumer.fresh_from)
        elif consumer.held:
            consumer.requeue_unhandled(list(consumer.held))
        if hosted.readers is not None:
            hosted.readers.detach(consumer)
        state.use(hosted)
        state.active[number] = hosted
        return hosted

    def _stir(self, consumer: Consumer) -> HostedQueue:
        """Give a consumer's queue its turn in this pass: the consumer may have credit again."""
        number = consumer.queue.id
        hosted = self._state.active[number] = self._state.queues[number]
        if consumer.is_waiting:
            hosted.consumers.wake(consumer)
        return hosted

    def settle(self, peer: Peer, message: Ack) -> None:
        """Settle messages that a consumer acknowledged."""
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is None:
            return
        for start, end in message.ranges:
            consumer.settler.settle(consumer.release(start, end))
        if consumer.is_tallied:
            consumer.tally_settled(sum([end - start for start, end in message.ranges]))
        self._stir(consumer)

    def _settle_all(self, peer: Peer, message: Acks) -> None:
        consumers = self._state.peers[peer].consumers
        for number, start, end in zip(message.consumers, message.starts, message.ends, strict=True):
            consumer = consumers.get(number)
            if consumer is None:
                continue
            try:
                consumer.settler.settle(consumer.release(start, end))
            except RowDamaged as damage:
                self._state.take_out(damage)
                continue
            if consumer.is_tallied:
                consumer.tally_settled(end - start)
            self._stir(consumer)

    def requeue(self, peer: Peer, message: Nack) -> None:
        """Requeue messages, now or later, or reject them, as a consumer says."""
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is None:
            return
        hosted = self._state.queues[consumer.queue.id]
        if hosted.drops_head:
            self._state.catch_up(hosted)  # before something returns that is older than what came in this pass
        self._stir(consumer)
        if message.is_unseen:
            self._put_back(consumer, message.ranges)
        else:
            self._return(hosted, consumer, message)
        if hosted.drops_head:
            hosted.queue.trim()  # before anybody is served, as on RabbitMQ

    def _put_back(self, consumer: Consumer, ranges: Ranges) -> None:
        """Take from a consumer what its client has not seen."""
        unseen = [part for start, end in ranges for part in consumer.release(start, end)]
        if unseen:
            if consumer.timeouts is not None:
                consumer.timeouts.forget(unseen)
            consumer.settler.put_back(unseen, consumer.fresh_from)

    def _return(self, hosted: HostedQueue, consumer: Consumer, message: Nack) -> None:
        """Take from a consumer what its client has seen and does not settle."""
        queue = hosted.queue
        for start, end in message.ranges:
            parts = consumer.release(start, end)
            if not message.requeue:
                queue.tally.rejected += sum([stop - begin for begin, stop in parts])
                consumer.settler.reject(self._delays.retry(hosted, parts))
            elif message.delay_ms and consumer.settler is not queue:
                self._groups.delay(consumer, parts, self._state.clock.now_ms() + message.delay_ms)
            elif message.delay_ms:
                self._delays.delay_return(
                    hosted, queue.delay_return(parts), self._state.clock.now_ms() + message.delay_ms
                )
            elif message.is_unhandled:
                consumer.requeue_unhandled(parts)
            else:
                consumer.settler.requeue(parts)

    def _renew(self, peer: Peer, message: Renew) -> None:
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is not None and consumer.timeouts is not None:
            consumer.timeouts.renew(message.ranges)

    def _overdue(self, consumer: Consumer, ranges: Ranges) -> None:
        """Take overdue messages from a consumer: what it settles of them later is ignored."""
        for start, end in ranges:
            consumer.held.remove(start, end)
        consumer.settler.time_out(self._delays.retry(self._state.queues[consumer.queue.id], ranges))
        self._stir(consumer)

    def _credit(self, peer: Peer, message: Credit) -> None:
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is not None:
            consumer.room = min(consumer.window, consumer.room + message.window)
            self._stir(consumer)

    def _permit(self, peer: Peer, message: Permit) -> None:
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is not None:
            consumer.permit = message.size
            consumer.is_asking = False
            self.permitted.append(consumer)
            self._stir(consumer)

    def _declined(self, peer: Peer, message: Declined) -> None:
        """Have another consumer of the group asked whether it takes what waits."""
        consumer = self._state.peers[peer].consumers.get(message.consumer)
        if consumer is not None:
            self._stir(consumer)

    def end_permits(self) -> None:
        """The pass ends, and all consumers had their turn: give permits back that were not used."""
        permitted, self.permitted = self.permitted, []
        for consumer in permitted:
            if consumer.permit:
                consumer.peer.post(Spent(consumer.number, consumer.permit, 0))
                consumer.permit = 0

    def _qos(self, responder: Responder[None], message: Qos) -> None:
        consumer = self._state.peers[responder.peer].consumers.get(message.consumer)
        if consumer is None:
            number = self._state.peers[responder.peer].cut_off.get(message.consumer)
            if number is not None:
                self._state.refuse_missing(responder, number)
                return
            text = f"no consumer {message.consumer}"
            responder.refuse(ReplyCode.NOT_FOUND, text)
            return
        hosted = self._state.queues[consumer.queue.id]
        self._state.catch_up(hosted)
        consumer.prefetch = message.prefetch
        if hosted.readers is not None:
            hosted.readers.retuned(consumer)
        consumer.settles = consumer.settles or message.settled_late
        self._stir(consumer)
        responder.answer(None)

    def _get(self, responder: Responder[Got | int | None], message: Get) -> None:
        state = self._state
        hosted = state.found(responder, message.queue)
        if hosted is None:
            return
        queue = hosted.queue
        if state.is_refused_of_stream(responder, hosted, "basic.get"):
            return
        consumers = state.peers[responder.peer].consumers
        consumer = consumers.get(message.consumer)
        if consumer is not None and consumer.queue is not queue:
            text = f"consumer {message.consumer} gets from queue {consumer.queue.id}"
            responder.refuse(ReplyCode.NOT_ALLOWED, text)
            return
        state.use(hosted)
        state.catch_up(hosted)
        state.active[queue.id] = hosted
        stored = queue.stored_bytes()
        deliveries = queue.take(1, message.room, alone=False) if stored <= message.room else []
        tally = queue.tally
        if not deliveries:
            tally.gets_empty += not queue.ready
            responder.answer(stored or queue.head_bytes() or None)
            return
        first, redelivered, delivery_count, batch = deliveries[0]
        if message.auto_ack:
            tally.gets_no_ack += 1
            tally.unasked += 1
            queue.settle([(first, first + 1)])
        else:
            tally.gets += 1
            if consumer is None:
                consumer = consumers[message.consumer] = Consumer(responder.peer, message.consumer, queue, 0, False, 0)
                self._limit(consumer, 0)
            consumer.hold(first, first + 1, redelivered)
        responder.peer.post(Got(responder.request, first, redelivered, batch, queue.ready, delivery_count))
