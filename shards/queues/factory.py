"""Which class of queue a declaration asks for."""

from typing import Final

from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.queues.queue import Queue
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared

_MESSAGE_ARGUMENTS: Final = (
    "x-message-ttl",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-delivery-limit",
    "x-dead-letter-exchange",
    "x-consumer-timeout-action",
)
"""Arguments that change what becomes of messages. The others are about consumers and the queue itself."""


def make_queue(
    declared: Declared, buffer: WriteBuffer, clock: SteadyClock, stored: RecoveredQueue = NOTHING_STORED
) -> Queue:
    """Make the queue of a declaration.

    Args:
        declared: what it is; its arguments were checked.
        buffer: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.
    """
    kind = ConfiguredQueue if any(name in declared.arguments for name in _MESSAGE_ARGUMENTS) else PlainQueue
    return kind(declared, buffer, clock, stored)
