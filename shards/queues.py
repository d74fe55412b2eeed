"""Which kind of queue a declaration asks for."""

from shardmq.clock import SteadyClock
from shardmq.model import Queue as Declared
from shardmq.shards.journal import Journal
from shardmq.shards.plain import PlainQueue
from shardmq.shards.queue import Queue
from shardmq.shards.stored import NOTHING_STORED, StoredQueue


def make_queue(declared: Declared, journal: Journal, clock: SteadyClock, stored: StoredQueue = NOTHING_STORED) -> Queue:
    """The queue for a declaration.

    Args:
        declared: what it is; its arguments were checked.
        journal: where its changes are written down.
        clock: what times to live are measured by.
        stored: what a start found of it.
    """
    return PlainQueue(declared, journal, clock, stored)
