"""One pass of a shard: what has come is applied, deliveries are decided, all of it is committed, then answered.

Answers, confirms and deliveries are posted as they are decided and flushed after the commit: nothing leaves this
process before what it rests on is on disk.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from shardmq.bus.link import Listener, Lost, Opened, Peer
from shardmq.bus.messages import (
    Answer,
    Assign,
    Cancel,
    Cancelled,
    Confirmed,
    Consume,
    Counts,
    Credit,
    Drop,
    Get,
    Got,
    Inspect,
    Publish,
    PublishRefusal,
    Purge,
    Qos,
    Refusal,
    Release,
    Return,
    Settle,
    ToShard,
)
from shardmq.clock import SteadyClock
from shardmq.errors import ReplyCode
from shardmq.shards.collector import Collector
from shardmq.shards.consumers import UNLIMITED, Consumer, Ring
from shardmq.shards.journal import Journal
from shardmq.shards.queue import Queue
from shardmq.shards.queues import make_queue
from shardmq.shards.segments import Segment
from shardmq.shards.store import Store
from shardmq.shards.stored import stored_queues
from shardmq.vitals import vitals

TICK_SECONDS: Final = 0.1
TICK_AT_REST_SECONDS: Final = 0.5
"""Between ticks with nothing to look after but the links, which ping once a second."""

PASS_BYTES: Final = 8 << 20
"""Bytes of records after which a pass takes no more: who came first waits for the commit of all."""

DROPPED_SEGMENTS_PER_PASS: Final = 256
"""Segments of deleted queues removed in one commit; every page they free is work for LMDB."""

CONVERSATION_EVENTS: Final = 4
CONVERSATION_BYTES: Final = 4096
"""A pass no larger than this may be one of a client that waits for each answer before it goes on."""

Event = tuple[Peer, Any]


class _Client:
    """A peer's session: how many publishes it sent, its consumers by number."""

    __slots__ = ("consumers", "published")

    def __init__(self) -> None:
        self.published = 0
        self.consumers: dict[int, Consumer] = {}


class Worker:
    """The state of a shard, and what it does with each message.

    Args:
        name: of the process, as `shard-0`.
        store: what is on disk.
        listener: where messages come from.
        memory_bytes: what bodies in memory may take.
    """

    def __init__(self, name: str, store: Store, listener: Listener[ToShard], memory_bytes: int) -> None:
        self._name = name
        self._store = store
        self._listener = listener
        self._journal = Journal(store, memory_bytes)
        self._clock = SteadyClock()
        self._collector = Collector(self._journal)
        self._queues: dict[int, Queue] = {}
        self._rings: dict[int, Ring] = {}
        self._clients: dict[Peer, _Client] = {}
        self._active: dict[int, None] = {}
        self._confirming: dict[Peer, _Client] = {}
        self._dropping: list[tuple[int, list[Segment]]] = []
        self._more = False
        self.is_conversing = False
        self._is_stirred = True
        self._tick_at = time.monotonic()
        self._handlers: dict[type, Callable[[Peer, Any], None]] = {
            Publish: self._publish, Settle: self._settle, Credit: self._credit, Return: self._return,
            Consume: self._consume, Cancel: self._cancel, Release: self._release, Qos: self._qos, Get: self._get,
            Purge: self._purge, Counts: self._counts, Inspect: self._inspect, Assign: self._assign, Drop: self._drop,
            Opened: self._opened, Lost: self._lost,
        }  # fmt: skip
        self._load()

    def _load(self) -> None:
        contents = self._store.load()
        stored = stored_queues(contents)
        for declared in contents.queues:
            self._add(make_queue(declared, self._journal, self._clock, stored[declared.id]))
        self._dropping = [(number, stored[number].segments) for number in contents.dropped]

    def _add(self, queue: Queue) -> None:
        self._queues[queue.id] = queue
        self._rings[queue.id] = Ring(queue)

    # --- the pass ---------------------------------------------------------------------------------------------------

    def wait_seconds(self) -> float:
        """How long a pass may be put off if nothing comes."""
        if self._more or self._dropping or self._listener.more:
            return 0.0
        now = time.monotonic()
        wait = max(0.0, self._tick_at - now)
        settled = self._journal.wait_seconds(now)
        return wait if settled is None else min(wait, settled)

    def turn(self) -> None:
        """One pass."""
        journal = self._journal
        now = journal.now = time.monotonic()
        events: list[Event] = self._listener.receive()
        self.is_conversing = 0 < len(events) <= CONVERSATION_EVENTS and _bytes(events) <= CONVERSATION_BYTES
        while self._listener.more and _bytes(events) < PASS_BYTES:
            events += self._listener.receive()
        if events:
            self._is_stirred = True
        handlers = self._handlers
        for peer, message in events:
            handlers[type(message)](peer, message)
        due = now >= self._tick_at
        self._finish(due)
        self._store.rest(now)
        if due:
            self._tick_at = now + (TICK_SECONDS if self._is_stirred else TICK_AT_REST_SECONDS)
            self._is_stirred = self._store.is_pending
            for peer, lost in self._listener.tick(time.monotonic()):
                self._lost(peer, lost)

    def _finish(self, collect: bool) -> None:
        """Deliver, commit, answer."""
        queues, rings = self._queues, self._rings
        for number in self._active:
            if number in queues:
                rings[number].deliver()
                queues[number].seal()
        self._active.clear()
        if collect or self._more:
            self._more = self._collector.work()
        if self._dropping:
            self._clear_dropped()
        self._journal.commit()
        for peer, client in self._confirming.items():
            peer.post(Confirmed(client.published))
        self._confirming.clear()
        self._listener.flush()

    def stop(self) -> None:
        """The last pass: everything that is known goes to disk exactly."""
        self._active.clear()  # nothing is handed out any more: the marks below are exact
        for client in self._clients.values():
            for consumer in client.consumers.values():
                consumer.queue.give_back(list(consumer.held))
        for queue in self._queues.values():
            queue.mark_exactly()
        self._journal.demand()
        self._finish(collect=False)

    def _clear_dropped(self) -> None:
        left = DROPPED_SEGMENTS_PER_PASS
        while self._dropping and left > 0:
            number, segments = self._dropping[0]
            part, segments[:] = segments[:left], segments[left:]
            for segment in part:
                self._journal.end(segment)
            left -= len(part) or 1
            if not segments:
                self._dropping.pop(0)
                self._journal.clear(number)
        self._journal.demand()

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _opened(self, peer: Peer, _: Opened) -> None:
        self._clients.setdefault(peer, _Client())  # a caller that calls twice is told of twice

    def _lost(self, peer: Peer, _: Lost) -> None:
        client = self._clients.pop(peer, None)
        self._confirming.pop(peer, None)
        if client is not None:
            for consumer in client.consumers.values():
                self._free(consumer)

    def _free(self, consumer: Consumer) -> None:
        """A consumer is gone; what it holds goes back to its place."""
        queue = consumer.queue
        if queue.id in self._queues:
            self._rings[queue.id].leave(consumer)
            queue.give_back(list(consumer.held))
            self._active[queue.id] = None

    # --- publishing -------------------------------------------------------------------------------------------------

    def _publish(self, peer: Peer, message: Publish) -> None:
        client = self._clients[peer]
        client.published += 1
        self._confirming[peer] = client
        for number in message.queues:
            queue = self._queues.get(number)
            if queue is None:
                text = f"queue {number} is not on {self._name}; it was deleted"
                peer.post(PublishRefusal(client.published, ReplyCode.NOT_FOUND, text))
            else:
                queue.append(message.run)
                self._active[number] = None

    # --- consuming --------------------------------------------------------------------------------------------------

    def _consume(self, peer: Peer, message: Consume) -> None:
        queue = self._found(peer, message.request, message.queue)
        if queue is None:
            return
        consumers = self._clients[peer].consumers
        if message.consumer in consumers:
            self._refuse(peer, message.request, ReplyCode.NOT_ALLOWED, f"consumer {message.consumer} exists")
            return
        consumer = Consumer(peer, message.consumer, queue, message.prefetch, message.auto_ack, message.window)
        consumers[message.consumer] = consumer
        self._rings[queue.id].join(consumer)
        self._active[queue.id] = None
        peer.post(Answer(message.request))

    def _cancel(self, peer: Peer, message: Cancel) -> None:
        consumer = self._clients[peer].consumers.get(message.consumer)
        if consumer is not None:
            self._rings[consumer.queue.id].leave(consumer)
            self._active[consumer.queue.id] = None
        peer.post(Answer(message.request))

    def _release(self, peer: Peer, message: Release) -> None:
        consumer = self._clients[peer].consumers.pop(message.consumer, None)
        if consumer is not None:
            self._free(consumer)

    def _settle(self, peer: Peer, message: Settle) -> None:
        consumer = self._clients[peer].consumers.get(message.consumer)
        if consumer is None:
            return
        for start, end in message.ranges:
            consumer.queue.settle(consumer.release(start, end))
        self._active[consumer.queue.id] = None

    def _return(self, peer: Peer, message: Return) -> None:
        consumer = self._clients[peer].consumers.get(message.consumer)
        if consumer is None:
            return
        queue = consumer.queue
        for start, end in message.ranges:
            parts = consumer.release(start, end)
            if message.requeue:
                queue.give_back(parts)
            else:
                queue.reject(parts)
        self._active[queue.id] = None

    def _credit(self, peer: Peer, message: Credit) -> None:
        consumer = self._clients[peer].consumers.get(message.consumer)
        if consumer is not None:
            consumer.room = min(consumer.window, consumer.room + message.window)
            self._active[consumer.queue.id] = None

    def _qos(self, peer: Peer, message: Qos) -> None:
        consumer = self._clients[peer].consumers.get(message.consumer)
        if consumer is None:
            self._refuse(peer, message.request, ReplyCode.NOT_FOUND, f"no consumer {message.consumer}")
            return
        consumer.prefetch = message.prefetch
        self._active[consumer.queue.id] = None
        peer.post(Answer(message.request))

    def _get(self, peer: Peer, message: Get) -> None:
        queue = self._found(peer, message.request, message.queue)
        if queue is None:
            return
        consumers = self._clients[peer].consumers
        consumer = consumers.get(message.consumer)
        if consumer is not None and consumer.queue is not queue:
            text = f"consumer {message.consumer} gets from queue {consumer.queue.id}"
            self._refuse(peer, message.request, ReplyCode.NOT_ALLOWED, text)
            return
        parcels = queue.take(1, UNLIMITED, alone=True)
        if not parcels:
            peer.post(Answer(message.request))
            return
        first, redelivered, deliveries, run = parcels[0]
        if message.auto_ack:
            queue.settle([(first, first + 1)])
        else:
            if consumer is None:
                consumer = consumers[message.consumer] = Consumer(peer, message.consumer, queue, 0, False, 0)
            consumer.held.add(first, first + 1)
        peer.post(Got(message.request, first, redelivered, run, queue.ready, deliveries))

    # --- queues -----------------------------------------------------------------------------------------------------

    def _assign(self, peer: Peer, message: Assign) -> None:
        for declared in message.queues:
            if declared.id not in self._queues:
                self._add(make_queue(declared, self._journal, self._clock))
                if declared.durable:
                    self._journal.declare(declared)
        peer.post(Answer(message.request))

    def _drop(self, peer: Peer, message: Drop) -> None:
        queue = self._queues.pop(message.queue, None)
        if queue is None:
            peer.post(Answer(message.request, 0))
            return
        del self._rings[queue.id]
        for other, client in self._clients.items():
            for consumer in [consumer for consumer in client.consumers.values() if consumer.queue is queue]:
                del client.consumers[consumer.number]
                other.post(Cancelled(consumer.number))
        if queue.declared.durable:
            self._journal.drop(queue.id)
        self._dropping.append((queue.id, queue.retire()))
        peer.post(Answer(message.request, queue.valid))

    def _purge(self, peer: Peer, message: Purge) -> None:
        queue = self._found(peer, message.request, message.queue)
        if queue is not None:
            peer.post(Answer(message.request, queue.purge()))
            self._journal.demand()

    def _counts(self, peer: Peer, message: Counts) -> None:
        queue = self._found(peer, message.request, message.queue)
        if queue is not None:
            peer.post(Answer(message.request, (queue.ready, len(self._rings[queue.id]))))

    def _inspect(self, peer: Peer, message: Inspect) -> None:
        peer.post(Answer(message.request, self.table()))

    def table(self) -> dict[str, Any]:
        """How this process is, as `shardmq status` shows it."""
        return {
            **vitals(self._name, "shard"),
            "store": self._store.sizes(),
            "queues": [queue.table(len(self._rings[queue.id])) for queue in self._queues.values()],
        }

    def _found(self, peer: Peer, request: int, number: int) -> Queue | None:
        queue = self._queues.get(number)
        if queue is None:
            self._refuse(peer, request, ReplyCode.NOT_FOUND, f"queue {number} is not on {self._name}; it was deleted")
        return queue

    def _refuse(self, peer: Peer, request: int, code: ReplyCode, text: str) -> None:
        peer.post(Refusal(request, code, text))


def _bytes(events: list[Event]) -> int:
    return sum([len(message.run.records) for _, message in events if type(message) is Publish])
