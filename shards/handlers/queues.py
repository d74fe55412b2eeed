"""Queues come and go, are counted, looked into, emptied."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.reads import Peek, SeenBatch
from shardmq.bus.messages.shard import AssignQueue, Cancelled, Counts, DropQueue, PrepareDelete, Purge
from shardmq.bus.messages.stores import Recorded
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.shards.handlers.dead_letters import DeadLetterSender
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.enrolment import Enrolment
from shardmq.shards.handlers.reservations import Reservations
from shardmq.shards.queues.weighing import unweighed_bytes, weigh
from shardmq.shards.segments.segment import Segment
from shardmq.shards.segments.steps import SEGMENT_COST_BYTES, Steps
from shardmq.shards.state.hosted_queue import HostedQueue, make_queue
from shardmq.shards.state.shard import COORDINATOR, ShardState
from shardmq.shards.state.sliced_work import SLICE_BYTES
from shardmq.shards.topics.partition import Partition
from shardmq.topology.arguments import OF_TOPIC
from shardmq.topology.entities import Queue

DROPPED_MAX: Final = 1024
"""Deleted queues whose number of messages is remembered for who asks next."""

DROPPED_TIMERS: Final = 2000
"""Timers of deleted queues removed in one commit."""


class Administration:
    """Assigns, deletes, counts, peeks into and purges queues.

    Args:
        state: them.
        delays: what waits for a time in them.
        dead_letters: what is on its way out of them.
        reservations: what is reserved in them.
        enrolment: remembers the ids of queues.
        dropped: queues that were being deleted when the process ended: (id, segments).
    """

    def __init__(
        self,
        state: ShardState,
        delays: DelayedMessages,
        dead_letters: DeadLetterSender,
        reservations: Reservations,
        enrolment: Enrolment,
        dropped: list[tuple[int, list[Segment]]],
    ) -> None:
        self._state = state
        self._delays = delays
        self._dead_letters = dead_letters
        self._reservations = reservations
        self._enrolment = enrolment
        self._weighing: dict[int, Queue] = {}  # what queues are to be when the bytes of their bodies are known
        self._dropped: dict[int, tuple[Peer, int]] = {}  # who dropped a queue, and how many messages went with it
        for number, segments in dropped:
            state.slices.add(self._clear(number, segments), partial(state.buffer.clear, number))
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            AssignQueue: self._assign,
            Recorded: self._recorded,
            PrepareDelete: self._condemn,
            DropQueue: self._drop,
            Purge: self._purge,
            Counts: self._counts,
            Peek: self._peek,
        }

    def table(self, hosted: HostedQueue) -> dict[str, Any]:
        """A queue's counts and consumers, as `shardmq status` shows them."""
        self._state.catch_up(hosted)
        return {
            **hosted.queue.table(len(hosted.consumers)),
            "delayed": hosted.delayed,
            "producers": len(hosted.producers) if hosted.producers is not None else 0,
            "consumer_list": [consumer.table() for consumer in hosted.consumers],
        }

    def tables(self) -> list[dict[str, Any]]:
        """Return all queues, those out of service among them, as `shardmq status` shows them."""
        found = []
        for hosted in list(self._state.queues.values()):
            try:
                found.append(self.table(hosted))
            except RowDamaged as damage:
                self._state.take_out(damage)
        return found + [out.table() for out in self._state.quarantine.queues.values()]

    def _assign(self, responder: Responder[None], message: AssignQueue) -> None:
        state = self._state
        here: list[Queue] = []
        heavy: list[tuple[HostedQueue, Queue]] = []
        for declared in message.queues:
            if declared.id in state.quarantine:
                state.quarantine.learn(declared)
                continue
            here.append(declared)
            hosted = state.queues.get(declared.id)
            if hosted is not None and not _is_same(hosted.queue.declared, declared):
                text = (
                    f"queue '{declared.name}' in vhost '{declared.vhost}' has the id {declared.id}, which is that of "
                    f"{hosted.title} here: the coordinator's store is not the one these queues were declared with"
                )
                responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
                return
        for declared in here:
            hosted = state.queues.get(declared.id)
            if hosted is not None:
                hosted.is_condemned = hosted.is_condemned and message.is_change
                state.unrecorded.told(declared.id)
                if hosted.is_leaving:
                    state.look_unused(hosted)
                self._weighing.pop(declared.id, None)  # what was said before holds no more
                if hosted.queue.declared.policy == declared.policy:
                    continue
                if unweighed_bytes(hosted.queue, declared) > SLICE_BYTES:
                    heavy.append((hosted, declared))
                else:
                    self._configure(hosted, declared)
                continue
            state.add(make_queue(declared, state.buffer, state.clock))
            state.unrecorded.add(declared)
        if not heavy:
            responder.answer(None)
        left = {declared.id for _, declared in heavy}
        for hosted, declared in heavy:
            self._weighing[declared.id] = declared
            done = partial(self._weighed, responder, hosted, declared, left)
            state.slices.add(self._weigh(hosted, declared), done)

    def record_used(self) -> None:
        """Have new queues written with what came for them in this pass: the coordinator must have them on disk."""
        self._record(self._state.unrecorded.take(self._state.buffer.named))

    def _recorded(self, peer: Peer, message: Recorded) -> None:
        if peer in self._enrolment.superseded:
            return
        state = self._state
        for number in state.unrecorded.take_lost():
            if number in state.queues:
                self._remove(peer, state.queues[number])
        self._record(state.unrecorded.take_recorded(message.queue))

    def _record(self, queues: Sequence[Queue]) -> None:
        for declared in queues:
            if declared.durable:
                self._state.buffer.declare(declared, self._enrolment.given(declared))

    def _weigh(self, hosted: HostedQueue, declared: Queue) -> Steps:
        """Read how large bodies are before a limit counts their bytes; until that is done, what held before holds."""
        try:
            for cost in weigh(hosted.queue, self._state.buffer):
                yield cost
                if hosted.is_gone or self._weighing.get(declared.id) is not declared:
                    return
        except RowDamaged as damage:
            self._state.take_out(damage)

    def _weighed(self, responder: Responder[None], hosted: HostedQueue, declared: Queue, left: set[int]) -> None:
        """Take in a policy whose queue is weighed, unless another one came; the request is answered with the last."""
        if self._weighing.get(declared.id) is declared:
            del self._weighing[declared.id]
            if not hosted.is_gone:
                self._configure(hosted, declared)
        left.discard(declared.id)
        if not left:
            responder.answer(None)

    def _configure(self, hosted: HostedQueue, declared: Queue) -> None:
        """Take in what policies give a queue now. Until it is on disk, the coordinator would tell it again."""
        try:
            self._state.configure(hosted, declared)
        except RowDamaged as damage:
            self._state.take_out(damage)
            return
        if declared.id in self._state.unrecorded:
            self._state.unrecorded.add(declared)
        elif declared.durable:
            self._state.buffer.declare(declared)

    def _condemn(self, responder: Responder[None], message: PrepareDelete) -> None:
        hosted = self._state.queues.get(message.queue)
        if hosted is None:
            self._state.refuse_missing(responder, message.queue)
            return
        self._state.catch_up(hosted)
        is_of_topic = OF_TOPIC in hosted.queue.declared.arguments
        is_stream = isinstance(hosted.queue, Partition) and not is_of_topic  # RabbitMQ deletes those in any case
        if message.if_unused and len(hosted.consumers) and not is_stream:
            count = len(hosted.consumers)
            text = f"{hosted.title} in use: it has {count} consumers; cancel them, or delete without if-unused"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
        elif message.if_empty and hosted.queue.ready and not is_stream:
            text = f"{hosted.title} not empty: {hosted.queue.ready} are ready; purge it, or delete without if-empty"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
        else:
            if not is_of_topic:  # another partition may be in use, and what came here meanwhile is not to be lost
                hosted.is_condemned = not hosted.is_leaving  # what comes there until all have heard goes with it
            responder.answer(None)

    def _drop(self, responder: Responder[int], message: DropQueue) -> None:
        """Delete a queue, for the coordinator and for the gateway that was asked for it; both hear the same count.

        The coordinator asks until it is answered, so its answer alone has to be true after a crash.
        """
        state = self._state
        out = state.quarantine.queues.get(message.queue)
        if out is not None and (out.declared is None or out.declared.durable):  # what cannot be read is not deleted
            state.refuse_missing(responder, message.queue)
            return
        state.quarantine.queues.pop(message.queue, None)  # nothing of it would survive a restart anyway
        hosted = state.queues.get(message.queue)
        if hosted is None:
            if responder.peer.role == COORDINATOR:
                state.buffer.hasten()
            who, count = self._dropped.pop(message.queue, (responder.peer, 0))
            responder.answer(0 if who is responder.peer else count)
            return
        count = self._remove(responder.peer, hosted)
        if responder.peer.role == COORDINATOR:
            state.buffer.hasten()
        responder.answer(count)

    def _remove(self, peer: Peer, hosted: HostedQueue) -> int:
        """Delete a queue because a peer has told so; returns how many messages went with it."""
        state = self._state
        state.catch_up(hosted)
        queue = hosted.queue
        del state.queues[queue.id]
        state.unrecorded.remove(queue.id)
        state.gone.add(queue.id)
        hosted.is_gone = True
        state.expect_nothing(hosted)
        state.rates.forget(hosted)
        state.active.pop(queue.id, None)
        state.unused.pop(queue.id, None)
        for other, client in state.peers.items():
            for consumer in [consumer for consumer in client.consumers.values() if consumer.queue is queue]:
                del client.consumers[consumer.number]
                if consumer.timeouts is not None:
                    consumer.timeouts.close()
                other.post(Cancelled(consumer.number))
        count = queue.ready  # what consumers hold is theirs: its acknowledgements may be on their way
        segments = queue.retire()
        for group in hosted.readers.groups.values() if hosted.readers is not None else ():
            group.lose()
        for out in state.quarantine.groups.pop(queue.id, {}).values():
            state.buffer.set_aside(out.damage.key)
        self._delays.retire(hosted)
        self._dead_letters.retire(queue.id)
        self._reservations.retire(queue)
        if queue.declared.durable:
            state.buffer.drop(queue.id)
            for producer in hosted.producers.seen if hosted.producers is not None else ():
                state.buffer.forget(queue.id, producer)
        state.slices.add(self._clear(queue.id, segments), partial(state.buffer.clear, queue.id))
        self._dropped[queue.id] = peer, count
        if len(self._dropped) > DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]
        return count

    def _clear(self, number: int, segments: list[Segment]) -> Steps:
        """Remove what a deleted queue left: in later passes, as what this one writes cannot be found in the store."""
        yield SLICE_BYTES
        for segment in segments:
            self._state.buffer.end(segment)
            yield max(segment.bytes, SEGMENT_COST_BYTES)
        while self._delays.clear(number, DROPPED_TIMERS) == DROPPED_TIMERS:
            yield SLICE_BYTES  # they are found in the store until the pass is over

    def _purge(self, responder: Responder[int], message: Purge) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is not None and not self._state.is_refused_of_stream(responder, hosted, "queue.purge"):
            self._state.catch_up(hosted)
            count, steps = hosted.queue.purge()
            self._state.active[message.queue] = hosted
            done = partial(self._purged, responder, message, count)
            self._state.slices.add(self._while_there(hosted, steps), done)

    def _purged(self, responder: Responder[int], message: Purge, count: int) -> None:
        if message.queue in self._state.quarantine:
            self._state.refuse_missing(responder, message.queue)
        else:
            responder.answer(count)

    def _while_there(self, hosted: HostedQueue, steps: Steps) -> Steps:
        """The steps of a purge, until its queue is deleted: then all of it goes anyhow."""
        for cost in steps:
            yield cost
            if hosted.is_gone:
                return

    def _counts(self, responder: Responder[tuple[int, int]], message: Counts) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is not None:
            if message.is_declared and not len(hosted.consumers):
                hosted.is_kept = True  # it had lost its consumers (auto-delete); who declares it is about to consume
            self._state.use(hosted)
            self._state.catch_up(hosted)
            consumers = 0 if isinstance(hosted.queue, Partition) else len(hosted.consumers)  # RabbitMQ's rule
            responder.answer((hosted.queue.ready, consumers))

    def _peek(self, responder: Responder[Sequence[SeenBatch]], message: Peek) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is not None:
            self._state.catch_up(hosted)
            responder.answer(hosted.queue.peek(message.offset, message.count))
            self._state.active[message.queue] = hosted


def _is_same(there: Queue, declared: Queue) -> bool:
    """Whether an id is one queue's, and not two queues'."""
    return (there.vhost, there.name) == (declared.vhost, declared.name)
