"""Moves messages from a source to a destination."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from shardmq.errors import ShardmqError
from shardmq.shovels.ends import Destination, Source
from shardmq.shovels.message import Labels
from shardmq.topology.parameters.shovel import ShovelProgress, ShovelSettings


class Progress:
    """How far a shovel is, over all its connections, and where it ends after some messages, over all its processes.

    Args:
        stored: what an earlier process of it has stored; nothing for none.

    Attributes:
        moved: messages so far.
        left: messages until it has moved all that it was to move; None for no end.
        batch: the transaction that moves the next ones, which may be committed already; "" for none.
        has_begun: whether it is known how many there are to move.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        known = msgspec.convert(stored, ShovelProgress) if stored else ShovelProgress(0, 0)
        self.moved = known.moved
        self.left: int | None = known.left if stored else None
        self.batch = known.batch
        self._batch_messages = known.batch_messages
        self.has_begun = bool(stored)

    @property
    def stored(self) -> dict[str, Any]:
        """What is to be stored of it, so that another process goes on with it; nothing where it has no end."""
        if self.left is None:
            return {}
        return structs.asdict(ShovelProgress(self.left, self.moved, self.batch, self._batch_messages))

    def begin(self, ready: int, settings: ShovelSettings) -> None:
        """Note how many there are to move: the first time, so that a lost connection does not begin the count anew."""
        if self.has_begun:
            return
        self.has_begun = True
        match settings.delete_after:
            case "never":
                self.left = None
            case "queue-length":
                self.left = ready
            case count:
                self.left = int(count)

    def count(self, messages: int) -> None:
        """Note messages that are moved: the batch, where there is one."""
        self.moved += messages
        if self.left is not None:
            self.left -= messages
        self.drop_batch()

    def plan_batch(self, transaction: str, messages: int) -> None:
        """Note which transaction moves the next messages."""
        self.batch, self._batch_messages = transaction, messages

    def drop_batch(self) -> None:
        """Note that no transaction is under way."""
        self.batch, self._batch_messages = "", 0

    def count_batch(self) -> None:
        """Note that the transaction under way was committed."""
        self.count(self._batch_messages)


Store = Callable[[], Awaitable[None]]
"""Has the broker store how far a shovel is. Raises ShardmqError where that is not done."""


async def move(
    source: Source,
    destination: Destination,
    settings: ShovelSettings,
    labels: Labels,
    progress: Progress,
    store: Store,
) -> None:
    """Move messages, until there were as many as the settings say, or for ever.

    With ack-mode on-confirm, a message is acknowledged at the source when its copy is confirmed, and not before: what
    was under way when anything ended is moved again.

    Args:
        source: where messages come from.
        destination: where they go.
        settings: of the shovel.
        labels: writes into each message.
        progress: of the shovel, which has begun.
        store: has it be stored. That is done when copies are confirmed, just before they are acknowledged: what is
            under way when a process is killed is moved again, and counted once or twice.

    Raises:
        ShardmqError: an end is lost, or does not take a message.
    """
    if progress.left == 0:
        return
    is_confirmed, is_acked = settings.ack_mode == "on-confirm", settings.ack_mode != "no-ack"
    async for batch in source.batches():
        messages = batch if progress.left is None else batch[: progress.left]
        for message in messages:
            labels.write(message)
            await destination.publish(message)
        if is_confirmed:
            await destination.flush()
        await _count(len(messages), progress, store)
        if is_acked and messages:
            source.ack(messages[-1].tag)
        if progress.left == 0:
            await destination.flush()
            return


async def _count(messages: int, progress: Progress, store: Store) -> None:
    """Note messages that are moved, and have that be stored where their number counts.

    Raises:
        ShardmqError: the broker does not answer; nothing is noted.
    """
    progress.count(messages)
    if progress.left is None or not messages:
        return
    try:
        await store()
    except ShardmqError:
        progress.count(-messages)
        raise
