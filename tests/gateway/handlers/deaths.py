"""Dead letters as shards hand them over."""

from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.message.record_batch import RecordBatch


def death(reason: str, exchange: str = "e", key: str = "k") -> DeadLetter:
    return DeadLetter(1, 0, reason, RecordBatch(exchange, key, 0, 0, 0, 0, 1, b""))
