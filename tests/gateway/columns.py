"""What a gateway says column by column, message by message."""

from typing import Any

from shardmq.bus.messages.columns import Acks, Publishes
from shardmq.bus.messages.shard import Ack, Publish


def one_by_one(message: Any) -> list[Any]:
    """The messages that say what this one does, each for one queue or consumer."""
    if isinstance(message, Publishes):
        nobody = [0] * len(message.queues)
        alone = zip(message.queues, message.batches(), strict=True)
        forwarded = zip(message.forwarded or nobody, message.forwarded_as or nobody, strict=True)
        return [
            Publish((queue,), batch, unawaited=message.unawaited, forwarded=consumer, forwarded_as=first)
            for (queue, batch), (consumer, first) in zip(alone, forwarded, strict=True)
        ]
    if isinstance(message, Acks):
        told = zip(message.consumers, message.starts, message.ends, strict=True)
        return [Ack(consumer, [(start, end)]) for consumer, start, end in told]
    return [message]
