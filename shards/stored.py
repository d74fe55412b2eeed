"""What a start finds of each queue."""

from dataclasses import dataclass, field
from typing import Final

from shardmq.shards.segments import Segment
from shardmq.shards.store import Contents


@dataclass(slots=True)
class StoredQueue:
    """What a start finds of one queue.

    Attributes:
        marks: of its lanes, by number.
        segments: of all its lanes, in order.
        parked: numbers of messages that are neither ready nor unacked, but wait for a time to come.
    """

    marks: dict[int, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    parked: list[tuple[int, int]] = field(default_factory=list)


NOTHING_STORED: Final = StoredQueue()
"""Of a queue that is new."""


def stored_queues(contents: Contents) -> dict[int, StoredQueue]:
    """What a start found, by queue; deleted queues of which something is left are among them."""
    found = {number: StoredQueue() for number in [*(queue.id for queue in contents.queues), *contents.dropped]}
    for (queue, lane), mark in contents.marks.items():
        if queue in found:
            found[queue].marks[lane] = mark
    for segment in contents.segments:
        found[segment.queue].segments.append(segment)
    return found
