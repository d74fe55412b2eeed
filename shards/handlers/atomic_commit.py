"""What clients commit on one shard: publishes and settlements that are carried out together or not at all.

All of a commit is checked before any of it is carried out, and all of it is carried out within one pass, which is
written by one commit of the store: a crash leaves both its publishes and its settlements, or neither. Only what is
rejected into a dead-letter exchange leaves its queue later, when it has arrived; after a crash in between it comes
again.
"""

from collections.abc import Callable
from typing import Any

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.shard import Ack, AtomicCommit, Nack
from shardmq.errors import PreconditionFailed, RequestError, RowDamaged, Unavailable
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.consumers.consumer import UNLIMITED
from shardmq.shards.handlers.consume import Consuming
from shardmq.shards.segments.shared_batch import stored_bytes
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState


class AtomicCommits:
    """Carries out atomic commits.

    Args:
        state: the queues.
        consuming: settles and returns messages.
    """

    def __init__(self, state: ShardState, consuming: Consuming) -> None:
        self._state = state
        self._consuming = consuming
        self.handlers: dict[type, Callable[[Any, Any], None]] = {AtomicCommit: self._transact}

    def _transact(self, responder: Responder[None], message: AtomicCommit) -> None:
        try:
            self._check_room(message)
            self._check_queues(message)
            self._check_held(responder.peer, message)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        for publish in message.publishes:
            self._publish(publish.queues, publish.batch)
        for settled in message.settled:
            self._consuming.settle(responder.peer, settled)
        for returned in message.returned:
            try:
                self._consuming.requeue(responder.peer, returned)
            except RowDamaged as damage:  # it has returned, as far as the disk knows; the rest of this is done as well
                self._state.take_out(damage)
        self._state.buffer.demand()
        responder.answer(None)

    def _check_room(self, message: AtomicCommit) -> None:
        """Make sure that the disk has room for what is published."""
        space = self._state.store.space
        if message.publishes:
            space.left -= sum([stored_bytes(publish.batch, publish.queues) for publish in message.publishes])
            if space.left < 0:
                raise Unavailable(self._state.no_room())

    def _check_queues(self, message: AtomicCommit) -> None:
        """Make sure that every queue takes what is published to it."""
        state = self._state
        bounded: dict[HostedQueue, list[RecordBatch]] = {}
        for publish in message.publishes:
            for number in publish.queues:
                hosted = state.queues.get(number)
                if hosted is None or hosted.is_condemned:
                    raise state.missing(number)
                if hosted.refuses:
                    bounded.setdefault(hosted, []).append(publish.batch)
        for hosted, batches in bounded.items():
            if not hosted.queue.has_room(batches, hosted.consumers.credit()):
                raise PreconditionFailed(f"{hosted.title} is full; consume from it, or commit again later")

    def _check_held(self, peer: Peer, message: AtomicCommit) -> None:
        """Make sure that consumers still hold what is to be settled: it may have returned by itself."""
        client = self._state.peers[peer]
        consumers = client.consumers
        settlements: list[Ack | Nack] = [*message.settled, *message.returned]
        for settlement in settlements:
            consumer = consumers.get(settlement.consumer)
            if consumer is not None and isinstance(settlement, Nack):
                hosted = self._state.queues[consumer.queue.id]
                if hosted.drops_head:  # what is damaged there is met before anything is done
                    self._state.catch_up(hosted)
            if consumer is None:
                if settlement.consumer in client.cut_off:
                    raise self._state.missing(client.cut_off[settlement.consumer])
                continue
            for start, end in settlement.ranges:
                if not consumer.holds(start, end):
                    name = consumer.queue.declared.name
                    raise PreconditionFailed(
                        f"a delivery from queue '{name}' was not settled in time and has returned "
                        "there; what was made of it is not to be committed"
                    )

    def _publish(self, queues: tuple[int, ...], batch: RecordBatch) -> None:
        if len(queues) > 1:
            batch = self._state.store.bodies.share(batch)
        for number in queues:
            hosted = self._state.queues[number]
            # Where there is a length limit, all batches together were found to be within them.
            hosted.queue.append(batch, UNLIMITED)
            self._state.active[number] = hosted
