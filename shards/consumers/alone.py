"""A consumer that is alone with a plain queue, as most of many are: what has just come goes to it by a short way."""

from shardmq.limits import NAME_BYTES_MAX
from shardmq.message.record_batch import cost
from shardmq.shards.consumers.ack_latency import ARMED
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.serving import post_fresh
from shardmq.shards.queues.plain_queue import PlainQueue


def plain(source: object) -> PlainQueue | None:
    """Return a queue that consumers may be alone with; None where it is of another kind."""
    return source if isinstance(source, PlainQueue) else None


def serve_alone(source: PlainQueue, consumer: Consumer) -> bool:
    """Hand the only consumer all that is ready, where nothing is special about both: in a third of the time.

    Returns:
        Whether that was so; where not, nothing was done.
    """
    if consumer.permit or consumer.timeouts is not None or consumer.is_tallied:
        return False
    limit, room, overhead = consumer.credit(), consumer.room, consumer.overhead
    if overhead and limit > 1:
        limit = min(limit, max(1, room // (overhead + 2 * NAME_BYTES_MAX)))
    if limit <= 0 or (only := source.take_alone(limit, room)) is None:
        return False
    first, batch = only
    consumer.room = room - cost(batch, overhead)
    consumer.held.add(first, first + batch.count)
    if consumer.latency.timed == ARMED:
        consumer.latency.begin(first)
    post_fresh(consumer.peer, consumer.number, first, batch)
    return True
