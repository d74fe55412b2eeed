"""Messages that gateways forward to consumers before they are here, and the queues for which they may.

What it is good for, and when it ends, is in gateway/links/publishes/forwarding.py.
"""

from typing import Final

from shardmq.bus.listener import Peer
from shardmq.bus.messages.columns import MayForward
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import PeerState

ANY_BYTES: Final = 1 << 62


class Forwarding:
    """Tells gateways when they may forward, and takes in what they forwarded.

    Args:
        peers: what is known of each.

    Attributes:
        published: the queues that were published to in this pass, and by whom, of those that may be forwarded.
    """

    def __init__(self, peers: dict[Peer, PeerState]) -> None:
        self._peers = peers
        self.published: dict[HostedQueue, Peer] = {}

    def look_later(self, peer: Peer, hosted: HostedQueue) -> None:
        """Look at the end of the pass whether a gateway may forward what it publishes next to a queue."""
        self.published[hosted] = peer

    def tell(self, is_staging: bool) -> None:
        """Tell gateways for which queues they may forward, when consumers have got what they may have.

        Args:
            is_staging: transactions may put messages into any queue, without their gateway.
        """
        if is_staging:
            self.published.clear()
        if not self.published:
            return
        told: dict[Peer, MayForward] = {}
        for hosted, peer in self.published.items():
            queue, consumer = hosted.queue, _alone(hosted)
            if consumer is None or consumer.peer is not peer or peer not in self._peers:
                continue
            assert isinstance(queue, PlainQueue)
            if peer not in told:
                told[peer] = MayForward([], [], self._peers[peer].published)
            told[peer].consumers.append(consumer.number)
            told[peer].firsts.append(queue.next)
        self.published.clear()
        for peer, message in told.items():
            peer.post(message)

    def append(self, hosted: HostedQueue, batch: RecordBatch, consumer: Consumer | None, first: int) -> int:
        """Take in messages that a consumer has.

        Args:
            hosted: their queue.
            batch: they.
            consumer: whose they are; None where it is not there any more.
            first: the number by which it knows the first one, beside FORWARDED.

        Returns:
            How many were taken.
        """
        queue, count = hosted.queue, batch.count
        if consumer is None or consumer.queue is not queue or not isinstance(queue, PlainQueue):
            self._take_back(consumer)
            return _append_seen(hosted, batch)
        older = self._older(hosted, consumer) if queue.ready else []
        number = queue.next
        queue.append(batch)
        queue.hand_out_newest(number, batch)
        if older:
            queue.release(older)
        if consumer.settles:
            consumer.hold(number, number + count, again=False)
            consumer.forwarded.add(first, count, number, consumer.held)
        else:
            queue.settle([(number, number + count)])
        if consumer.is_tallied:
            consumer.tally_delivered(count)
        return count

    def _older(self, hosted: HostedQueue, consumer: Consumer) -> list[tuple[int, int]]:
        """Hand out what is ready before something that was forwarded; returns what waits on, set aside.

        That is called redelivered later: what lies before something that was handed out is not told apart.
        """
        queue = hosted.queue
        hosted.consumers.deliver()
        if not queue.ready:
            return []
        self._take_back(consumer)
        return queue.reserve(queue.ready)

    def _take_back(self, consumer: Consumer | None) -> None:
        """Have nothing more forwarded to a consumer."""
        if consumer is not None:
            consumer.peer.post(MayForward([consumer.number], [0], self._peers[consumer.peer].published))


def _alone(hosted: HostedQueue) -> Consumer | None:
    """The consumer that will get whatever comes next to a queue; None where that is not known."""
    queue = hosted.queue
    if not isinstance(queue, PlainQueue) or queue.ready or hosted.is_gone or len(hosted.consumers) != 1:
        return None
    if hosted.delayed or queue.delayed or queue.reserved:  # some of that may be ready at any time
        return None
    (consumer,) = hosted.consumers
    return consumer if consumer.timeouts is None else None


def _append_seen(hosted: HostedQueue, batch: RecordBatch) -> int:
    """Take in messages that somebody has seen who does not hold them: they are delivered again, and say so."""
    queue = hosted.queue
    older = queue.reserve(queue.ready)
    taken = queue.append(batch, hosted.consumers.credit()) if hosted.refuses else queue.append(batch)
    seen = queue.take(batch.count, ANY_BYTES, alone=True)
    queue.requeue([(first, first + piece.count) for first, _, _, piece in seen])
    queue.release(older)
    return taken
