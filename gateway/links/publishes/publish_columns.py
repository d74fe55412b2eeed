"""Publishes to many queues, which are posted as one message."""

from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Final

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.columns import COLUMN_ENTRIES_MAX, Publishes
from shardmq.gateway.links.publishes.forwarding import Forwarding
from shardmq.gateway.links.publishes.publish_plan import PlannedBatch, PlannedRun, SentBatch
from shardmq.message.record_batch import RecordBatch

COLUMN_BYTES_MAX: Final = 4096
"""Batches up to this size go together; what a message of its own costs is little beside larger ones."""

_HEADER: Final = attrgetter("plan.exchange", "plan.tally", "plan.flags", "plan.priority")


def post_columns(
    batches: list[PlannedBatch],
    numbers: int,
    stamp: Callable[[RecordBatch], None],
    post: Callable[[BusMessage], None],
    posted: deque[SentBatch | PlannedRun],
    forwarding: Forwarding | None,
) -> int:
    """Post batches for different queues, as many as possible with one message.

    Args:
        batches: them.
        numbers: the number of the publish that was posted last.
        stamp: writes time, origin and serial into a record batch.
        post: posts a message.
        posted: what waits for its confirm; they are added to it.
        forwarding: what goes to consumers on its way; None where nothing does.

    Returns:
        The number of the last of them.
    """
    for (exchange, tally, flags, priority), found in groupby(batches, _HEADER):
        alike = list(found)
        for start in range(0, len(alike), COLUMN_ENTRIES_MAX):
            run = alike[start : start + COLUMN_ENTRIES_MAX]
            counts = [len(batch.records) for batch in run]
            head = RecordBatch(exchange, "", flags, 0, 0, 0, sum(counts), b"")
            stamp(head)
            tally.count(head.count, 1)
            records = [b"".join(batch.records) for batch in run]
            forwarded = _forward(run, head, records, forwarding) if forwarding is not None else ([], [])
            post(
                Publishes(
                    exchange,
                    flags,
                    priority,
                    head.timestamp_ms,
                    head.origin,
                    head.serial,
                    [batch.plan.queues[0] for batch in run],
                    [batch.plan.routing_key for batch in run],
                    counts,
                    records,
                    not any(batch.target.is_confirming for batch in run),
                    *forwarded,
                )
            )
            numbers += len(run)
            posted.append(PlannedRun(run, numbers, sum([batch.size for batch in run]), head.count))
    return numbers


def _forward(
    run: list[PlannedBatch], head: RecordBatch, records: list[bytes], forwarding: Forwarding
) -> tuple[list[int], list[int]]:
    """Forward what may be of batches that are posted as one message.

    Args:
        run: them.
        head: what they have in common, and the serial of the first message.
        records: of each.
        forwarding: what may be forwarded.

    Returns:
        `forwarded` and `forwarded_as` of the message.
    """
    serial = head.serial
    consumers: list[int] = []
    firsts: list[int] = []
    for batch, joined in zip(run, records, strict=True):
        plan, count = batch.plan, len(batch.records)
        consumer = first = 0
        if plan.queues[0] in forwarding.alone:
            alone = RecordBatch(
                head.exchange,
                plan.routing_key,
                head.flags,
                head.timestamp_ms,
                head.origin,
                serial,
                count,
                joined,
                plan.priority,
            )
            consumer, first = forwarding.offer(plan.queues[0], alone)
        else:
            forwarding.passed_over += 1
        forwarding.published += 1
        serial += count
        consumers.append(consumer)
        firsts.append(first)
    return (consumers, firsts) if any(consumers) else ([], [])
