"""Moves messages from a source to a destination."""

from shardmq.shovels.ends import Destination, Source
from shardmq.shovels.message import Labels
from shardmq.topology.parameters.shovel import ShovelSettings


class Progress:
    """How far a shovel is, over all its connections.

    Attributes:
        moved: messages so far.
        left: messages until it has moved all that it was to move; None for no end.
    """

    def __init__(self) -> None:
        self.moved = 0
        self.left: int | None = None
        self._has_begun = False

    def begin(self, ready: int, settings: ShovelSettings) -> None:
        """Note how many there are to move: the first time, so that a lost connection does not begin the count anew."""
        if self._has_begun:
            return
        self._has_begun = True
        match settings.delete_after:
            case "never":
                self.left = None
            case "queue-length":
                self.left = ready
            case count:
                self.left = int(count)

    def count(self, messages: int) -> None:
        """Note messages that are moved."""
        self.moved += messages
        if self.left is not None:
            self.left -= messages


async def move(
    source: Source, destination: Destination, settings: ShovelSettings, labels: Labels, progress: Progress
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
        if is_acked and messages:
            source.ack(messages[-1].tag)
        progress.count(len(messages))
        if progress.left == 0:
            await destination.flush()
            return
