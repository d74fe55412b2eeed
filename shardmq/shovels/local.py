"""Moves messages inside this broker, each exactly once.

    reserve ─► read ─► copies in a transaction, committed ─► acknowledged ─► the next ones

A shovel reserves under its own name. What it holds is the same until all of it is acknowledged, in one commit of its
shard, and a transaction is named after the messages in it. Whatever is killed, the next run finds the same messages
under that name; where their transaction was committed, it finds that as well, and publishes nothing.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final, Self

import msgspec

from shardmq.client.aio.channel import Channel
from shardmq.client.aio.connection import Connection
from shardmq.client.aio.transaction import Transaction
from shardmq.client.api.message import Message, properties_of_copy
from shardmq.errors import ConnectionLost, NotFound, PreconditionFailed
from shardmq.limits import NAME_BYTES_MAX, RESERVATION_MS
from shardmq.ranges import RangeSet
from shardmq.shovels.message import Labels, ShovelMessage
from shardmq.shovels.native import declare_queue, open_channel
from shardmq.shovels.transfer import Progress, Store
from shardmq.topology.entities import SHOVEL_TRANSACTIONS
from shardmq.topology.parameters.shovel import ShovelSettings, local_vhost

BATCH_MESSAGES: Final = 1000
"""Messages in one transaction: no more are acknowledged by one commit of a shard."""

BATCH_BYTES: Final = 4 << 20
"""Of bodies in one transaction, unless it has one message."""

TRANSACTION_MS: Final = 120_000
"""After which a transaction that was left open is aborted."""

PAUSE_SECONDS: Final = 0.05
"""Until the next look, where there were fewer messages than a transaction takes: a shovel that few messages pass makes
twenty transactions a second at most."""

PAUSE_SECONDS_MAX: Final = 0.4
"""The pause grows to this while nothing comes."""

LAST: Final = 2**63 - 1


def is_local(settings: ShovelSettings) -> bool:
    """Whether a shovel can move so: from a queue of this broker to this broker, where each message is to be confirmed.

    A consumer at the source that has arguments is one that other consumers notice, and stays one.
    """
    uris = (*settings.source.uris, *settings.destination.uris)
    is_here = all(local_vhost(uri) is not None for uri in uris)
    is_plain = settings.source.queue is not None and not settings.consumer_arguments
    return is_here and is_plain and settings.ack_mode == "on-confirm"


def reservation_of(vhost: str, name: str) -> str:
    """The name under which a shovel reserves, the same in all its lives."""
    text = f"shovel {vhost} {name}"
    return text if len(text.encode()) <= NAME_BYTES_MAX else f"shovel {hashlib.sha256(text.encode()).hexdigest()}"


class LocalTransfer:
    """Both ends of a shovel inside this broker.

    Args:
        source: a connection and a channel.
        destination: likewise.
        settings: of the shovel.
        reservation: its name at the source.

    Attributes:
        ready: how many messages were ready at the source when it was opened, or reserved by an earlier life.
    """

    def __init__(
        self,
        source: tuple[Connection, Channel],
        destination: tuple[Connection, Channel],
        settings: ShovelSettings,
        reservation: str,
    ) -> None:
        self.ready = 0
        self._connections = source[0], destination[0]
        self._source, self._destination = source[1], destination[1]
        self._settings = settings
        self._reservation = reservation
        self._size = min(settings.prefetch or BATCH_MESSAGES, BATCH_MESSAGES)
        self._most = self._size
        self._queue = settings.source.queue or ""
        self._is_holding = False

    @classmethod
    async def open(
        cls, here: Callable[[str], str], settings: ShovelSettings, reservation: str, progress: Progress
    ) -> Self:
        """Connect, and declare what is missing.

        Args:
            here: returns the URL of this broker for a virtual host.
            settings: of the shovel.
            reservation: its name at the source.
            progress: of the shovel; what was under way is counted where it was moved.

        Raises:
            ShardmqError: the broker cannot be reached, or there is no such thing.
        """
        urls = [here(local_vhost(end.uris[0]) or "/") for end in (settings.source, settings.destination)]
        source = await open_channel(urls[0])
        try:
            destination = await open_channel(urls[1])
        except BaseException:
            await source[0].close()
            raise
        transfer = cls(source, destination, settings, reservation)
        try:
            await transfer._declare(progress)
        except BaseException:
            await transfer.close()
            raise
        return transfer

    async def _declare(self, progress: Progress) -> None:
        end = self._settings.destination
        if end.queue is not None:
            await declare_queue(self._destination, end)
        elif end.exchange:
            await self._destination.exchange_declare(end.exchange, passive=True)
        await declare_queue(self._source, self._settings.source)
        held = await self._held()
        if held and not progress.has_begun and self._settings.delete_after != "never":
            await self._let_go()  # an earlier shovel of this name has begun to move it, and this one counts anew
            held = []
        elif held is None:
            await self._release()
        await self._look_up_batch(progress, held or [])
        self.ready = await declare_queue(self._source, self._settings.source) + len(held or [])

    async def _look_up_batch(self, progress: Progress, held: list[Message]) -> None:
        """Count the batch that was under way when something was lost, if it was moved."""
        if not progress.batch or (held and _name(self._queue, held) == progress.batch):
            return  # it is what is held, and counts when it is moved
        transaction = await self._destination.transaction(progress.batch, timeout_ms=TRANSACTION_MS)
        if transaction.is_committed:
            progress.count_batch()
        else:
            await transaction.abort()
            progress.drop_batch()

    async def move(self, labels: Labels, progress: Progress, store: Store) -> None:
        """Move messages, until there were as many as the settings say, or for ever.

        Args:
            labels: writes into each message.
            progress: of the shovel, which has begun.
            store: has it be stored: before each commit, so that whoever goes on knows whether it is counted already.

        Raises:
            ShardmqError: the broker does not answer, or does not take a message; or (540) the source is a stream, of
                which nothing is reserved.
        """
        pause = PAUSE_SECONDS
        while progress.left is None or progress.left > 0:
            most = self._most if progress.left is None else min(self._most, progress.left)
            moved = await self._move_some(labels, most, progress, store)
            progress.count(moved)
            if moved >= most:
                pause = PAUSE_SECONDS
                self._most = min(self._size, 2 * self._most)
                continue
            pause = PAUSE_SECONDS if moved else min(1.5 * pause, PAUSE_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def _move_some(self, labels: Labels, most: int, progress: Progress, store: Store) -> int:
        """Move what is reserved, or is ready and can be; returns how many messages."""
        queue = self._queue
        self._is_holding = True  # also where nobody waits for the answer any more
        if not (await self._source.queue_reserve(queue, self._reservation, most, RESERVATION_MS, again=True)).messages:
            self._is_holding = False
            return 0
        batch = await self._read()
        if batch is None:
            await self._release()
            self._most = max(1, most // 4)
            return 0
        name = _name(queue, batch)
        transaction = await self._destination.transaction(name, timeout_ms=TRANSACTION_MS)
        for message in batch if not transaction.is_committed else ():
            await self._publish(transaction, labels, message)
        if progress.left is not None and progress.batch != name:
            progress.plan_batch(name, len(batch))
            await store()
        is_there = await transaction.commit()
        await self._acknowledge(batch)
        while not is_there:  # a disk that is full takes its part when it has room
            is_there = await transaction.commit()
        return len(batch)

    async def _read(self) -> list[Message] | None:
        """What is reserved; None where that is too much for one transaction, of which none was ever begun then."""
        batch: list[Message] = []
        size = 0
        following: int | None = 0
        while following is not None:
            queue, name = self._queue, self._reservation
            messages, following = await self._source.queue_read(queue, following, LAST, BATCH_MESSAGES, name)
            batch += messages
            size += sum([len(message.body) for message in messages])
            if size > BATCH_BYTES and len(batch) > 1:
                return None
        return batch

    async def _held(self) -> list[Message] | None:
        """What is reserved, which may be nothing; None where it is too much for one transaction."""
        try:
            return await self._read()
        except (NotFound, PreconditionFailed):
            return []

    async def _publish(self, transaction: Transaction, labels: Labels, message: Message) -> None:
        end = self._settings.destination
        copy = ShovelMessage(message.body, 0, message.exchange, message.routing_key, properties_of_copy(message))
        labels.write(copy)
        if end.queue is not None:  # a queue that was deleted since must not swallow messages
            await transaction.publish("", end.queue, copy.body, copy.native, mandatory=True)
            return
        exchange = copy.exchange if end.exchange is None else end.exchange
        await transaction.publish(exchange, copy.routing_key if end.key is None else end.key, copy.body, copy.native)

    async def _acknowledge(self, batch: list[Message]) -> None:
        """Have a batch be gone, by its numbers: who comes late with an old one has none of the next one."""
        await self._source.reservation_end(self._queue, self._reservation, acknowledge=True, ranges=_ranges(batch))
        self._is_holding = False

    async def _release(self) -> None:
        """Have what is reserved be back at its place."""
        await self._source.reservation_end(self._queue, self._reservation, acknowledge=False)
        self._is_holding = False

    async def _let_go(self) -> None:
        """Have what is reserved be gone where its transaction was committed, else have it back at its place."""
        batch = await self._held()
        if batch:
            transaction = await self._destination.transaction(_name(self._queue, batch), timeout_ms=TRANSACTION_MS)
            try:
                await transaction.abort()
            except PreconditionFailed:  # it is committed, maybe by a request that nobody waits for any more
                await self._acknowledge(batch)
                return
        await self._release()

    def check(self) -> None:
        """Make sure that the broker is there.

        Raises:
            ConnectionLost: it is not.
        """
        if not all(connection.is_open for connection in self._connections):
            raise ConnectionLost("the connection to this broker is lost")

    async def close(self) -> None:
        """Let go of what is reserved, and close. Where the broker is away, the next run finds it."""
        try:
            if self._is_holding:
                await self._let_go()
        finally:
            for connection in self._connections:
                await connection.close()


def _name(queue: str, batch: list[Message]) -> str:
    """The name of the transaction of a batch: another one for every other batch, the same for the same."""
    digest = hashlib.blake2b(digest_size=20)
    words = [(message.position, message.message_id, message.timestamp_ms, len(message.body)) for message in batch]
    digest.update(msgspec.json.encode([queue, words]))
    for message in batch:
        digest.update(message.body)
    return f"{SHOVEL_TRANSACTIONS}{digest.hexdigest()}"


def _ranges(batch: list[Message]) -> list[tuple[int, int]]:
    """The numbers of a batch's messages, as acknowledgements name them."""
    found = RangeSet()
    for message in batch:
        assert message.position is not None  # what queue_read shows has one
        found.add(message.position, message.position + 1)
    return list(found)
