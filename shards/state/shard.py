"""What all handlers of a shard share: its queues, its peers, and what is active in this pass."""

import logging
import time
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Cancelled, Gateways, OutOfService, Publish, PublishRefusal, Unused
from shardmq.errors import HalfDone, NotFound, ReplyCode, RequestError, RowDamaged, ShardmqError, Unavailable
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.state.common_deliveries import CommonDeliveries
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.measures import Measures
from shardmq.shards.state.quarantine import Quarantine
from shardmq.shards.state.queue_rates import QueueRates
from shardmq.shards.state.schedule import Schedule
from shardmq.shards.state.sliced_work import SlicedWork
from shardmq.shards.state.unrecorded_queues import UnrecordedQueues
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.partition import Partition
from shardmq.topology.entities import Queue as Declared

_log = logging.getLogger(__name__)

COORDINATOR: Final = "coordinator"
GATEWAY: Final = "gateway"


class PeerState:
    """A peer's session.

    Attributes:
        published: how many publishes it sent.
        consumers: its consumers, by number.
        cut_off: consumers whose queue went out of service, with that queue's id.
        common: what it has of the records that several deliveries share.

    Args:
        kept_bytes_max: of such records that it may keep.
    """

    __slots__ = ("common", "consumers", "cut_off", "published")

    def __init__(self, kept_bytes_max: int) -> None:
        self.published = 0
        self.consumers: dict[int, Consumer] = {}
        self.cut_off: dict[int, int] = {}
        self.common = CommonDeliveries(kept_bytes_max)


class ShardState:
    """The queues and peers of a shard.

    Args:
        name: of the process.
        store: what is on disk.
        buffer: what is to be written there.
        clock: the time.

    Attributes:
        schedule: what is to be done when.
        queues: by id; those in service.
        quarantine: those out of service.
        peers: sessions that are open.
        active: queues that something happened to in this pass, by id.
        unused: ids of queues the coordinator was told of.
        behind: ids of partitions whose readers have more to look through than one pass does.
        unrecorded: new queues, of which nothing may be written yet.
        gone: ids of queues that were deleted or went out of service in this pass.
        slicer: to cut a batch with, once.
        slices: work that is too much for one pass.
        rates: counters of queues, and how fast they rise.
        measures: of the process.
        shut: why nothing new is taken in though the disk has room; "" where it is.
    """

    def __init__(self, name: str, store: Store, buffer: WriteBuffer, clock: SteadyClock) -> None:
        self.name = name
        self.store = store
        self.buffer = buffer
        self.clock = clock
        self.schedule = Schedule(clock)
        self.queues: dict[int, HostedQueue] = {}
        self.quarantine = Quarantine(name)
        self.peers: dict[Peer, PeerState] = {}
        self.active: dict[int, HostedQueue] = {}
        self.unused: dict[int, None] = {}
        self.behind: dict[int, None] = {}
        self.unrecorded = UnrecordedQueues()
        self.gone: set[int] = set()
        self.slicer = BatchSlicer()
        self.slices = SlicedWork(buffer)
        self.rates = QueueRates(time.monotonic())
        self.measures = Measures()
        self.shut = ""

    def add(self, queue: Queue) -> HostedQueue:
        """Take in a queue."""
        hosted = self.queues[queue.id] = HostedQueue(queue, self.schedule.now_ms, self.behind)
        self.use(hosted)
        return hosted

    def configure(self, hosted: HostedQueue, declared: Declared) -> None:
        """Take in the arguments that policies give a queue now: what came before was under the ones before.

        Raises:
            RowDamaged: a segment that had to be read is not what was written.
        """
        self.catch_up(hosted)
        before, expires_ms = hosted.queue, hosted.queue.arguments.expires_ms
        hosted.configure(declared, self.buffer, self.clock)
        if hosted.queue is not before:
            for client in self.peers.values():
                for consumer in client.consumers.values():
                    if consumer.queue is before:
                        consumer.move_to(hosted.queue)
        if hosted.queue.arguments.expires_ms != expires_ms:
            self.schedule.cancel(hosted.use_look)
            hosted.use_look = None
            self.use(hosted)
        self.active[declared.id] = hosted

    def go_on(self) -> None:
        """Begin a pass: readers that have more to look through go on."""
        for number in self.behind:
            hosted = self.queues.get(number)
            if hosted is not None:
                self.active[number] = hosted
        self.behind.clear()

    def found(self, responder: Responder[Any], number: int) -> HostedQueue | None:
        """Return the queue of a request; post a refusal and return None if it is not here or is about to go."""
        hosted = self.queues.get(number)
        if hosted is None or hosted.is_condemned or hosted.is_leaving:
            self.refuse_missing(responder, number)
            return None
        return hosted

    def is_refused_of_stream(self, responder: Responder[Any], hosted: HostedQueue, what: str) -> bool:
        """Refuse what would take messages out of a stream; returns whether the queue is one."""
        if not isinstance(hosted.queue, Partition):
            return False
        name, vhost = hosted.queue.declared.name, hosted.queue.declared.vhost
        text = f"{what} not supported by stream queues queue '{name}' in vhost '{vhost}': messages stay; consume it"
        responder.refuse(ReplyCode.NOT_IMPLEMENTED, text)
        return True

    def missing(self, number: int) -> RequestError:
        """Return the error for a queue that is not here, or is out of service.

        The latter is `Unavailable`: over AMQP it ends the channel alone, and clients in Python try again later. A code
        that ends connections would hit other queues' users, and 404 would have programs declare what is there.
        """
        if number in self.quarantine:
            return Unavailable(self.quarantine.text(number))
        return NotFound(f"queue {number} is not on {self.name}; it was deleted")

    def refuse_missing(self, responder: Responder[Any], number: int) -> None:
        """Refuse a request for a queue that is not here, or is out of service."""
        error = self.missing(number)
        responder.refuse(error.code, error.text)

    def refuse_damaged(self, peer: Peer, message: Any, damage: RowDamaged) -> None:
        """Refuse a message that met something damaged of a queue, which is out of service from then on."""
        self.take_out(damage)
        assert damage.queue is not None
        text = self.quarantine.text(damage.queue)
        if isinstance(message, Publish):
            peer.post(PublishRefusal(self.peers[peer].published, ReplyCode.RESOURCE_ERROR, text))
        elif isinstance(message, Call):
            Responder[Any](peer, message.request).refuse(ReplyCode.RESOURCE_ERROR, text)

    def no_room(self) -> str:
        """Return the text of refusals when there is no room for anything new."""
        return self.shut or (
            f"the disk of {self.name} is full: what is left of it is kept for acknowledgements; consume what is "
            "queued, or make room, and publish again"
        )

    def shut_for(self, reason: str) -> None:
        """Have publishes of this pass refused, for a reason; "" takes them in again."""
        if reason:
            self.store.space.left = -1
        elif self.shut:
            self.store.space.look()
        self.shut = reason

    def take_out(self, damage: RowDamaged, declared: Declared | None = None) -> None:
        """Put a queue out of service because something stored of it is damaged. Everything else goes on.

        What was decided before stands and is written with this pass: messages that came, acknowledgements, deliveries.

        Args:
            damage: it.
            declared: what the queue is, where it is not known here yet.

        Raises:
            RowDamaged: it belongs to no queue.
        """
        number = damage.queue
        if number is None:
            raise damage
        if number in self.quarantine:
            return
        hosted = self.queues.pop(number, None)
        self.gone.add(number)
        if hosted is None:
            self.quarantine.add(number, declared, damage, {})
            return
        hosted.is_gone = True
        self.expect_nothing(hosted)
        self.rates.forget(hosted)
        self.active.pop(number, None)
        self.unused.pop(number, None)
        for subqueue in [subqueue for subqueue in self.buffer.compactable if subqueue.id == number]:
            del self.buffer.compactable[subqueue]
        self.quarantine.add(number, hosted.queue.declared, damage, hosted.queue.table(0))
        if hosted.is_durable and not damage.database.startswith("spilled"):
            self.buffer.note_damage(damage)
        self._cut_off(hosted)
        for peer in self.peers:
            self.say_out_of_service(peer)

    def _cut_off(self, hosted: HostedQueue) -> None:
        """The consumers of a queue hear that there is nothing more for them."""
        for peer, client in self.peers.items():
            for consumer in [consumer for consumer in client.consumers.values() if consumer.queue is hosted.queue]:
                del client.consumers[consumer.number]
                client.cut_off[consumer.number] = hosted.queue.id
                if consumer.timeouts is not None:
                    consumer.timeouts.close()
                peer.post(Cancelled(consumer.number, self.quarantine.text(hosted.queue.id)))

    def catch_up(self, hosted: HostedQueue) -> None:
        """Bring a queue up to date: called before a request looks at it or changes who gets what.

        Deliveries, expiry and length limits are decided once, at the end of a pass. A request in the middle of one has
        to find what RabbitMQ would show, which decides with every publish: consumers with credit have what came before
        the request, and what has expired since or is too much is gone. A queue that nothing happened to in this pass is
        up to date, but for what has expired.

        Raises:
            RowDamaged: something stored of the queue is.
            HalfDone: it failed in the middle of that.
        """
        queue = hosted.queue
        try:
            if queue.id in self.active:
                hosted.consumers.deliver()
                queue.catch_up()
            elif hosted.expiry_look is not None and hosted.expiry_look.due_ms <= self.schedule.now_ms:
                queue.catch_up()
                self.active[queue.id] = hosted
        except ShardmqError:
            raise
        except Exception as fault:
            _log.exception(
                "%s could not be brought up to date", hosted.title
            )  # who ends by it tells the sentence alone
            raise HalfDone(f"{hosted.title} could not be brought up to date") from fault

    def look_unused(self, hosted: HostedQueue) -> None:
        """Have a queue deleted if nobody uses it any more.

        It is leaving from now on: whoever declares it next gets a new one.
        """
        if not hosted.is_gone and hosted.is_unused(self.schedule.now_ms):
            hosted.is_leaving = True
            self.unused[hosted.queue.id] = None
            for peer in self.peers:
                if peer.role == COORDINATOR:
                    peer.post(Unused(hosted.queue.id))

    def say_out_of_service(self, peer: Peer) -> None:
        """Tell a coordinator which queues it cannot delete, and a gateway of which it must ask before they are used."""
        for out in self.quarantine.queues.values():
            if peer.role == GATEWAY or out.declared is None or out.declared.durable:
                peer.post(OutOfService(out.number, out.text))

    def say_gateways(self) -> None:
        """Tell gateways how many they are: one that is alone knows of all consumers."""
        gateways = [peer for peer in self.peers if peer.role == GATEWAY]
        for peer in gateways:
            peer.post(Gateways(len(gateways)))

    def say_unused(self, coordinator: Peer) -> None:
        """Tell a coordinator that has just called what the one before may have not heard."""
        for number in list(self.unused):
            hosted = self.queues.get(number)
            if hosted is not None and hosted.is_unused(self.schedule.now_ms):
                coordinator.post(Unused(number))
            else:
                del self.unused[number]

    def use(self, hosted: HostedQueue) -> None:
        """Begin the time of a queue with x-expires anew: it is used."""
        expires_ms = hosted.queue.arguments.expires_ms
        if expires_ms is not None:
            hosted.used_ms = self.schedule.now_ms
            if hosted.use_look is None:
                self._watch(hosted, expires_ms)

    def _watch(self, hosted: HostedQueue, expires_ms: int) -> None:
        look = partial(self._look_used, hosted.queue.id, expires_ms)
        hosted.use_look = self.schedule.at(hosted.used_ms + expires_ms, look)

    def _look_used(self, number: int, expires_ms: int) -> None:
        """The time of a queue with `x-expires` may have run out."""
        hosted = self.queues.get(number)
        if hosted is None:
            return
        hosted.use_look = None
        if len(hosted.consumers) or hosted.queue.reserved:
            self.use(hosted)
        elif hosted.used_ms + expires_ms > self.schedule.now_ms:
            self._watch(hosted, expires_ms)
        else:
            self.look_unused(hosted)

    def expect_nothing(self, hosted: HostedQueue) -> None:
        """Cancel all looks at a queue that is gone."""
        for look in (hosted.timers_look, hosted.expiry_look, hosted.use_look):
            self.schedule.cancel(look)
