"""Moves messages from a source to a destination."""

from collections.abc import Callable

from shardmq.shovels.ends import Destination, Source
from shardmq.shovels.message import Labels
from shardmq.topology.parameters.shovel import ShovelSettings


async def move(
    source: Source, destination: Destination, settings: ShovelSettings, labels: Labels, count: Callable[[int], None]
) -> None:
    """Move messages, until there were as many as the settings say, or for ever.

    With ack-mode on-confirm, a message is acknowledged at the source when its copy is confirmed, and not before: what
    was under way when anything ended is moved again.

    Args:
        source: where messages come from.
        destination: where they go.
        settings: of the shovel.
        labels: writes into each message.
        count: called with how many were moved.

    Raises:
        ShardmqError: an end is lost, or does not take a message.
    """
    left = _limit(source, settings)
    if left == 0:
        return
    is_confirmed, is_acked = settings.ack_mode == "on-confirm", settings.ack_mode != "no-ack"
    async for batch in source.batches():
        messages = batch if left is None else batch[:left]
        for message in messages:
            labels.write(message)
            await destination.publish(message)
        if is_confirmed:
            await destination.flush()
        if is_acked and messages:
            source.ack(messages[-1].tag)
        count(len(messages))
        if left is not None:
            left -= len(messages)
            if not left:
                await destination.flush()
                return


def _limit(source: Source, settings: ShovelSettings) -> int | None:
    """How many messages are to be moved; None for no limit."""
    match settings.delete_after:
        case "never":
            return None
        case "queue-length":
            return source.ready
        case count:
            return int(count)
