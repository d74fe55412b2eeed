"""Messages moved inside the broker, each exactly once; for the HTTP API and the command line.

    reserve ─► read ─► copies in a transaction named after the messages, committed ─► acknowledged ─► the next ones

Where this process or the broker ends before the commit, no copy appears. Where it ends between the commit and the
acknowledgement, the messages stay reserved, out of everybody's sight, and whoever moves messages of that queue next, as
the same user, first finds them and asks for their transaction by its name: committed, they are acknowledged, else they
are put back. Shovels do the same (`shardmq.shovels.local`).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from shardmq.client.api.message import properties_of_copy
from shardmq.errors import NotFound, PreconditionFailed, ShardmqError, Unroutable
from shardmq.ranges import RangeSet

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.api.message import Message
    from shardmq.message.properties import Properties

BATCH: Final = 1000
"""Messages in one transaction: as many as a shard acknowledges in one commit, all or none of them. Most time goes
to waiting for transactions to be on disk: in batches of 500, a move takes half as long again."""

BATCH_BYTES: Final = 4 << 20
"""Of bodies in one transaction, unless it has one message."""

TRANSACTION_MS: Final = 120_000
"""After which a transaction that was left open is aborted."""

LAST: Final = 2**63 - 1


class Copy(NamedTuple):
    """What is published in a message's place.

    Attributes:
        exchange: to publish it to.
        routing_key: likewise.
        body: its body.
        properties: its properties.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: "Properties"


def copy_to(exchange: str, routing_key: str, message: "Message") -> Copy:
    """A message as it is, for another place."""
    return Copy(exchange, routing_key, message.body, properties_of_copy(message))


class Mover:
    """Moves messages of one queue.

    Args:
        channel: of the caller.
        queue: with the messages.
        user: the caller; others find nothing of what this one's crash has left.

    Attributes:
        moved: messages that went.
        finished: of an earlier mover, which had been killed after they went; they are acknowledged, and counted here.
    """

    def __init__(self, channel: "Channel", queue: str, user: str) -> None:
        self.moved = self.finished = 0
        self._channel = channel
        self._queue = queue
        self._name = f"move {hashlib.blake2b(user.encode(errors='surrogateescape'), digest_size=16).hexdigest()}"
        self._size = BATCH

    async def begin(self) -> None:
        """Finish what an earlier one has left: messages whose copies are there go, others are put back."""
        try:
            held = await self._read()
        except (NotFound, PreconditionFailed):
            return  # there is none
        if held and await self._put_back(held):
            self.finished += len(held)

    async def take(self, most: int, at: int | None = None) -> "list[Message]":
        """Reserve messages and read them: as many as go into one transaction; none where nothing is ready.

        Args:
            most: messages at most.
            at: only the message at this position.
        """
        ranges = None if at is None else [(at, at + 1)]
        while True:
            count = 0 if at is not None else min(most, self._size)
            answer = await self._channel.queue_reserve(self._queue, self._name, count, 0, ranges, again=True)
            held = await self._read() if answer.messages else []
            if held:
                return held
            if held is None:
                self._size = max(1, self._size // 4)
            if held is None or at is not None:
                await self.release()
            if held is not None:
                return []

    async def move(self, batch: "Sequence[Message]", copy: "Callable[[Message], Copy]") -> None:
        """Have the copies of what was taken appear, all or none, and the originals be gone.

        Args:
            batch: what `take` has returned, all of it.
            copy: makes the copy of a message.

        Raises:
            ShardmqError: a copy was not taken; the originals are back, or will be acknowledged by who moves next.
        """
        transaction = await self._channel.transaction(self._transaction(batch), timeout_ms=TRANSACTION_MS)
        try:
            for message in batch if not transaction.is_committed else ():
                exchange, key, body, properties = copy(message)
                await transaction.publish(exchange, key, body, properties, mandatory=True)
            is_there = await transaction.commit()
        except ShardmqError:
            if self._channel.is_open and await self._put_back(batch):
                self.moved += len(batch)
                return
            raise
        await self.acknowledge(batch)
        self.moved += len(batch)
        if not is_there:
            raise PreconditionFailed("a queue that they went to is full or away; the last ones follow when it has room")

    async def acknowledge(self, batch: "Sequence[Message]") -> None:
        """Have the originals be gone."""
        ranges = ranges_of(batch)
        await self._channel.reservation_end(self._queue, self._name, acknowledge=True, ranges=ranges)

    async def move_all(
        self, limit: int, copy: "Callable[[Message], Copy]", on_move: Callable[[int], None] = lambda _: None
    ) -> int:
        """Move messages from the head, in order, until there are no more or as many as the limit says; `begin` before.

        Returns:
            How many went.

        Raises:
            ShardmqError: a message was not taken; it is back with those behind it. The text says how many went before.
        """
        most = BATCH
        try:
            while self.moved < limit and (batch := await self.take(min(most, limit - self.moved))):
                most = await self._move_most(batch, copy)
                on_move(self.moved)
        except ShardmqError as fault:
            noun = "message" if self.moved == 1 else "messages"
            raise fault.with_text(f"{fault.text}; {self.moved:,} {noun} moved before") from fault
        return self.moved

    async def _move_most(self, batch: "Sequence[Message]", copy: "Callable[[Message], Copy]") -> int:
        """Move a batch; where a message in it has nowhere to go, none; returns how many to take next."""
        try:
            await self.move(batch, copy)
        except Unroutable:
            if len(batch) == 1:
                raise
            return max(1, len(batch) // 4)  # those before it go
        return BATCH

    async def _read(self) -> "list[Message] | None":
        """What is reserved; None where it is too much for one transaction."""
        found: list[Message] = []
        size = 0
        following: int | None = 0
        while following is not None:
            messages, following = await self._channel.queue_read(self._queue, following, LAST, BATCH, self._name)
            found += messages
            size += sum([len(message.body) for message in messages])
            if size > BATCH_BYTES and len(found) > 1:
                return None
        return found

    async def _put_back(self, held: "Sequence[Message]") -> bool:
        """Put reserved messages back, or have them be gone where their copies are there; returns whether they are."""
        transaction = await self._channel.transaction(self._transaction(held), timeout_ms=TRANSACTION_MS)
        if not transaction.is_committed:
            try:
                await transaction.abort()
            except PreconditionFailed:  # committed meanwhile, by a request that nobody waits for any more
                await self.acknowledge(held)
                return True
            await self.release()
            return False
        await self.acknowledge(held)
        return True

    async def release(self) -> None:
        """Put back what is reserved."""
        await self._channel.reservation_end(self._queue, self._name, acknowledge=False)

    def _transaction(self, batch: "Sequence[Message]") -> str:
        """The name of the transaction of a batch: another one for every other batch, the same for the same."""
        digest = hashlib.blake2b(digest_size=20)
        words = [(message.position, message.message_id, message.timestamp_ms, len(message.body)) for message in batch]
        digest.update(msgspec.json.encode([self._queue, self._name, words]))
        for message in batch:
            digest.update(message.body)
        return f"move-{digest.hexdigest()}"


def ranges_of(batch: "Sequence[Message]") -> list[tuple[int, int]]:
    """Positions of messages, as reservations and acknowledgements name them."""
    found = RangeSet()
    for message in batch:
        assert message.position is not None  # what queue_read shows has one
        found.add(message.position, message.position + 1)
    return list(found)
