"""How many bytes the bodies of a queue have that never counted them, found segment by segment."""

from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.segment import Segment, body_sizes
from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import Queue as Declared


def unweighed_bytes(queue: Queue, declared: Declared) -> int:
    """Return how many bytes must be read for a queue to become what it is to be, because a limit counts them then."""
    arguments = declared.effective
    if arguments.get("x-max-length-bytes") is None or is_stream(arguments):
        return 0
    return sum([segment.bytes for segment in _unweighed(queue)])


def weigh(queue: Queue, buffer: WriteBuffer) -> Steps:
    """Read and note how many bytes the bodies of segments have, one segment in a step.

    Raises:
        RowDamaged: a segment is not what was written.
    """
    for segment in _unweighed(queue):
        if segment.live and segment.batches is None and segment.body_bytes is None:
            batches = buffer.read_once(segment)
            segment.body_bytes = sum([size for _, batch in batches for size in body_sizes(batch)])
            if segment.durable:
                buffer.change(segment)
            yield segment.bytes


def _unweighed(queue: Queue) -> list[Segment]:
    """Segments that are on disk, and of which that is not known."""
    return [
        segment
        for subqueue in queue.subqueues
        for segment in subqueue.index.segments
        if segment.batches is None and segment.body_bytes is None
    ]
