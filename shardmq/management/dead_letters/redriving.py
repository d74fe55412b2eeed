"""Dead letters redriven to the queues that they died in.

    reserve ─► read ─► copies in a transaction, committed ─► acknowledged … ─► the rest is released to its place

Where this process or the broker ends before the commit, no copy appears. Nothing is lost, wherever it ends: what is not
acknowledged is back when the lease of the reservation is over. A transaction is named after the messages in it, and a
name is committed once: where the request is sent again with its `id`, which names the reservation, the portion between
a commit and its acknowledgement is met again, and goes no second time.
"""

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shardmq.client.api.message import Message, properties_of_copy
from shardmq.client.api.results import Reserved
from shardmq.management.dead_letters.chosen import Chosen, last_death
from shardmq.management.dead_letters.walking import LOOKED_AT_MAX, PORTION, portions

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

LEASE_MS: Final = 30_000
"""After which what is reserved is back, where this process ends; begun anew with each portion."""

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
            death = last_death(message) or {}
            words += [target, message.position, message.message_id, message.timestamp_ms, death.get("count")]
            words += [str(death.get("time")), len(message.body)]
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


class Redrive:
    """One redrive.

    Args:
        chosen: which messages.
        queues: there are, but for the one that is redriven.
        limit: messages at most.

    Attributes:
        targets: messages by the queue that they go to.
        homeless: messages whose queue is gone, or is the one that they are in; they stay.
        count: of messages that go.
    """

    def __init__(self, chosen: Chosen, queues: set[str], limit: int) -> None:
        self._chosen = chosen
        self._queues = queues
        self._limit = limit
        self.targets: dict[str, int] = {}
        self.homeless = self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self.count >= self._limit

    def choose(self, messages: list[Message]) -> list[tuple[str, Message]]:
        """Those that go, each with its queue; they are counted."""
        going: list[tuple[str, Message]] = []
        for message in messages:
            if self.is_full:
                break
            if not self._chosen.has(message):
                continue
            death = last_death(message)
            target = "" if death is None else death["queue"]
            if target not in self._queues:
                self.homeless += 1
                continue
            self.targets[target] = self.targets.get(target, 0) + 1
            self.count += 1
            going.append((target, message))
        return going


class Redriving:
    """Carries out a redrive, under a reservation.

    Args:
        channel: of the caller.
        queue: with the dead letters.
        user: the caller.
        reservation: its name.
        looked_at_max: messages looked at, from the head of the queue; 0 for all there are.

    Attributes:
        moved: messages that went.
        on_move: called when `moved` has grown.
    """

    def __init__(
        self, channel: "Channel", queue: str, user: str, reservation: str, looked_at_max: int = LOOKED_AT_MAX
    ) -> None:
        self.moved = 0
        self.on_move: Callable[[], None] = lambda: None
        self._channel = channel
        self._queue = queue
        self._user = user
        self._reservation = reservation
        self._looked_at_max = looked_at_max
        self._renew_at = 0.0

    async def carry_out(self, work: Redrive) -> bool:
        """Redrive what is ready now, or what is reserved already. Where that fails, the rest stays reserved.

        Returns:
            Whether there was something to do: not where all was redriven under this name before.
        """
        if (await self._reserve()).is_acknowledged:
            return False
        batch = Batch()
        async for messages in portions(self._channel, self._queue, self._reservation, self._looked_at_max):
            if time.monotonic() >= self._renew_at:  # where none of many messages is chosen, no batch renews it
                await self._reserve()
            for target, message in work.choose(messages):
                batch.add(target, message)
                if batch.is_full:
                    await self._move(batch)
                    batch = Batch()
            if work.is_full:
                break
        if batch.going:
            await self._move(batch)
        await self.release()
        return True

    async def release(self) -> None:
        """Have what is left return to its place."""
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=False)

    async def _reserve(self) -> Reserved:
        """Reserve, or begin the lease anew."""
        self._renew_at = time.monotonic() + LEASE_MS / 3000
        return await self._channel.queue_reserve(self._queue, self._reservation, self._looked_at_max, LEASE_MS)

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
        ranges = batch.ranges()
        await self._channel.reservation_end(self._queue, self._reservation, acknowledge=True, ranges=ranges)
        self.moved += len(batch.going)
        self.on_move()
