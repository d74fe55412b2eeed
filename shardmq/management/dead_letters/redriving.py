"""Dead letters redriven to the queues that they died in.

    reserve what was found ─► read ─► copies in a transaction, committed ─► acknowledged … ─► the rest is released

Where this process or the broker ends before the commit, no copy appears. Nothing is lost, wherever it ends: what is not
acknowledged is back when the lease of the reservation is over. A transaction is named after the messages in it, and a
name is committed once: the portion between a commit and its acknowledgement is met again, and goes no second time.
Where the redrive had an `id`, which names the reservation, it is sent again with it; where it had none, the next
one of that user from that queue first settles what it has left.
"""

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shardmq.client.api.message import Message, properties_of_copy
from shardmq.client.api.results import Reserved
from shardmq.errors import NotFound, PreconditionFailed
from shardmq.management.dead_letters.finding import deaths
from shardmq.management.dead_letters.walking import PORTION, portions
from shardmq.search.deaths import last_death

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

LEASE_MS: Final = 30_000
"""After which what a redrive with an id has reserved is back, where this process ends; begun anew with each portion."""

TRANSACTION_MS: Final = 120_000
"""After which a transaction that was left open is aborted."""

BATCH_BYTES: Final = 8 << 20
"""Of bodies in one transaction."""


class Batch:
    """Dead letters that go together.

    Attributes:
        going: the queue that each goes to, and itself, by rising position.
        bytes: of their bodies.
    """

    def __init__(self) -> None:
        self.going: list[tuple[str, Message]] = []
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.going) >= PORTION or self.bytes >= BATCH_BYTES

    def add(self, target: str, message: Message) -> None:
        """Take one more."""
        self.going.append((target, message))
        self.bytes += len(message.body)

    def name(self, queue: str, user: str) -> str:
        """The name of its transaction: another one for every other batch, the same for the same."""
        digest = hashlib.blake2b(digest_size=20)
        words: list[Any] = [queue, user]
        for target, message in self.going:
            words += [target, message.position, message.message_id, message.timestamp_ms, len(message.body)]
            words += [str(entry) for entry in deaths(message)[:1]]
            digest.update(message.body)
        digest.update(msgspec.json.encode(words))
        return f"redrive-{digest.hexdigest()}"

    def ranges(self) -> list[tuple[int, int]]:
        """Their positions, as acknowledgements name them."""
        found: list[tuple[int, int]] = []
        for _, message in self.going:
            position = message.position
            assert position is not None  # what queue_read shows has one
            if found and found[-1][1] == position:
                found[-1] = (found[-1][0], position + 1)
            else:
                found.append((position, position + 1))
        return found


class Redriving:
    """Carries out a redrive, under a reservation.

    Args:
        channel: of the caller.
        queue: with the dead letters.
        user: the caller.
        name: of the reservation; None for the user's own, which the user's next redrive finds after a crash.
        queues: there are, but for that one.

    Attributes:
        moved: messages that went.
        targets: these, by the queue that they went to.
        homeless: messages whose queue is gone, or is the one that they are in; they stay.
        on_move: called when `moved` has grown.
    """

    def __init__(self, channel: "Channel", queue: str, user: str, name: str | None, queues: set[str]) -> None:
        self.moved = self.homeless = 0
        self.targets: dict[str, int] = {}
        self.on_move: Callable[[], None] = lambda: None
        self._channel = channel
        self._queue = queue
        self._user = user
        own = hashlib.blake2b(user.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        self._reservation = f"redrive of {own}" if name is None else name
        self._is_own = name is None
        self._queues = queues
        self._renew_at = 0.0

    async def carry_out(self, ranges: list[tuple[int, int]]) -> bool:
        """Redrive what is ready of some messages, or what is reserved already. Where it fails, the rest stays reserved.

        Returns:
            Whether there was something to do: not where all was redriven under this name before.
        """
        reserved = await self._reserve(ranges)
        if reserved.is_acknowledged:
            return False
        async for batch in self._batches():
            await self._move(batch)
        if self.moved < reserved.messages or not reserved.messages:
            await self.release()
        return True

    async def settle(self) -> None:
        """Have the batch be gone that an earlier redrive had committed when it was killed; put back all others."""
        try:
            async for batch in self._batches(renews=False):
                name = batch.name(self._queue, self._user)
                transaction = await self._channel.transaction(name, timeout_ms=TRANSACTION_MS)
                if not transaction.is_committed:
                    await transaction.abort()
                    break
                await self._acknowledge(batch)
        except (NotFound, PreconditionFailed):
            return  # there is none, or it was committed just now
        await self.release()

    async def _batches(self, renews: bool = True) -> AsyncIterator[Batch]:
        """What is reserved and has a queue to go to, as batches: the same ones each time, from the first left."""
        batch = Batch()
        async for messages in portions(self._channel, self._queue, self._reservation):
            if renews and time.monotonic() >= self._renew_at:  # where none of many messages goes, no batch renews it
                await self._reserve()
            for message in messages:
                death = last_death(message.properties.headers)
                if death is None or death.queue not in self._queues:
                    self.homeless += death is not None and renews
                    continue
                batch.add(death.queue, message)
                if batch.is_full:
                    yield batch
                    batch = Batch()
        if batch.going:
            yield batch

    async def release(self) -> None:
        """Have what is left return to its place."""
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=False)

    async def _reserve(self, ranges: Iterable[tuple[int, int]] = ()) -> Reserved:
        """Reserve, or begin the lease anew."""
        self._renew_at = time.monotonic() + LEASE_MS / 3000
        lease = 0 if self._is_own else LEASE_MS
        return await self._channel.queue_reserve(self._queue, self._reservation, 0, lease, ranges, again=self._is_own)

    async def _move(self, batch: Batch) -> None:
        """Have all copies appear in their queues, or none; then have the messages be gone."""
        await self._reserve()
        name = batch.name(self._queue, self._user)
        async with self._channel.transaction(name, timeout_ms=TRANSACTION_MS) as transaction:
            for target, message in batch.going:
                properties = properties_of_copy(message)
                headers = {name: value for name, value in (properties.headers or {}).items() if name != "CC"}
                properties = msgspec.structs.replace(properties, headers=headers)
                await transaction.publish("", target, message.body, properties, mandatory=True)
        await self._acknowledge(batch)
        for target, _ in batch.going:
            self.targets[target] = self.targets.get(target, 0) + 1
        self.moved += len(batch.going)
        self.on_move()

    async def _acknowledge(self, batch: Batch) -> None:
        ranges = batch.ranges()
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=True, ranges=ranges)
