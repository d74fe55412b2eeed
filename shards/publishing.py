"""Publishes: to queues at once or later, once each, and what is said when a queue does not take them."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.link import Peer
from shardmq.bus.messages import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.records import PERSISTENT, Run
from shardmq.shards.holdings import Client, Holdings, Hosted
from shardmq.shards.producers import Producers
from shardmq.shards.timers import Timers


class Publishing:
    """What a shard does with publishes.

    Args:
        holdings: the queues.
        timers: for what is published with a delay.
    """

    def __init__(self, holdings: Holdings, timers: Timers) -> None:
        self._holdings = holdings
        self._timers = timers
        self._confirming: dict[Peer, Client] = {}
        self.handlers: dict[type, Callable[[Peer, Any], None]] = {Publish: self._publish}

    def confirm(self) -> None:
        """Everything is on disk: say so."""
        for peer, client in self._confirming.items():
            peer.post(Confirmed(client.published))
        self._confirming.clear()

    def lost(self, peer: Peer) -> None:
        """A session is over: nobody waits for its confirms."""
        self._confirming.pop(peer, None)

    def _publish(self, peer: Peer, message: Publish) -> None:
        holdings = self._holdings
        client = holdings.clients[peer]
        client.published += 1
        self._confirming[peer] = client
        if message.producer or message.delay_ms:
            self._publish_once_or_later(peer, client, message)
            return
        run = message.run
        refused: tuple[int, int] | None = None
        for number in message.queues:
            hosted = holdings.queues.get(number)
            if hosted is None or hosted.is_condemned:
                refused = 0, number
            elif hosted.refuses:
                taken = hosted.queue.append(run, hosted.ring.credit())
                if taken < run.count and (refused is None or taken < refused[0]):
                    refused = taken, number
                holdings.active[number] = hosted
            else:
                hosted.queue.append(run)
                holdings.active[number] = hosted
        if refused is not None:
            self._refuse(peer, client, *refused)

    def _publish_once_or_later(self, peer: Peer, client: Client, message: Publish) -> None:
        holdings = self._holdings
        count = message.run.count
        refused: tuple[int, int] | None = None
        for number in message.queues:
            hosted = holdings.queues.get(number)
            if hosted is None or hosted.is_condemned:
                refused = 0, number
                continue
            taken = (
                self._publish_once(hosted, message) if message.producer else self._take(hosted, message.run, message)
            )
            if taken < count and (refused is None or taken < refused[0]):
                refused = taken, number
            holdings.active[number] = hosted
        if refused is not None:
            self._refuse(peer, client, *refused)

    def _publish_once(self, hosted: Hosted, message: Publish) -> int:
        """Take what the queue has not had from this producer; returns how many from the start it has now."""
        run, producer, sequence = message.run, message.producer, message.sequence
        producers = hosted.producers
        if producers is None:
            producers = hosted.producers = Producers()
        unseen = producers.unseen(producer, sequence, sequence + run.count)
        if unseen is None:
            taken = self._take(hosted, run, message)
            if taken:
                self._saw(hosted, producers, run, producer, sequence, sequence + taken)
            return taken
        for start, end in unseen:
            piece = self._holdings.cutter.cut(run, start - sequence, end - sequence)
            taken = self._take(hosted, piece, message)
            if taken:
                self._saw(hosted, producers, run, producer, start, start + taken)
            if taken < piece.count:
                return start - sequence + taken
        return run.count

    def _take(self, hosted: Hosted, run: Run, message: Publish) -> int:
        if message.delay_ms:
            # From now on and not from when the pass began: it may have been sent since.
            self._timers.delay(hosted, run, self._holdings.clock.now_ms() + message.delay_ms)
            return run.count
        return hosted.queue.append(run, hosted.ring.credit()) if hosted.refuses else hosted.queue.append(run)

    def _saw(self, hosted: Hosted, producers: Producers, run: Run, producer: int, start: int, end: int) -> None:
        """Remember numbers; those of transient messages only for as long as this process lives, as they do."""
        seen = producers.saw(producer, start, end)
        declared = hosted.queue.declared
        if declared.durable and run.flags & PERSISTENT:
            self._holdings.journal.saw(declared.id, producer, seen)
        forgotten = producers.surplus()
        if forgotten is not None and declared.durable:
            self._holdings.journal.forget(declared.id, forgotten)

    def _refuse(self, peer: Peer, client: Client, taken: int, number: int) -> None:
        hosted = self._holdings.queues.get(number)
        if hosted is None or hosted.is_condemned:
            code, text = ReplyCode.NOT_FOUND, self._holdings.missing(number)
        else:
            code = ReplyCode.RESOURCE_ERROR
            text = f"{hosted.title} is full ({_bounds(hosted)}); consume from it, or publish again later"
        peer.post(PublishRefusal(client.published, code, text, taken))


def _bounds(hosted: Hosted) -> str:
    terms = hosted.queue.terms
    bounds = (("x-max-length", terms.max_length), ("x-max-length-bytes", terms.max_bytes))
    return ", ".join([f"{name} {value}" for name, value in bounds if value is not None])
