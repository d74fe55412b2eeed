"""How much has come in a pass."""

from collections.abc import Sequence
from typing import Any

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.columns import Publishes, entries_of
from shardmq.bus.messages.shard import AtomicCommit, Publish
from shardmq.bus.spinning import CONVERSATION_BYTES, CONVERSATION_EVENTS


def is_small(events: Sequence[tuple[Any, Any]]) -> bool:
    """Whether what came may be said by a client that waits for each answer."""
    if not 0 < len(events) <= CONVERSATION_EVENTS or bytes_of(events) > CONVERSATION_BYTES:
        return False
    return sum([entries_of(message) for _, message in events]) <= CONVERSATION_EVENTS


def bytes_of(events: Sequence[tuple[Any, Any]]) -> int:
    """Bytes of the records that were published."""
    total = 0
    for _, message in events:
        if type(message) is Publish:
            total += len(message.batch.records)
        elif type(message) is Publishes:
            total += message.size
        elif type(message) is Call and type(message.message) is AtomicCommit:
            total += sum([len(publish.batch.records) for publish in message.message.publishes])
    return total
