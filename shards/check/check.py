"""A whole look through a shard's closed store, in one call."""

from collections.abc import Callable, Iterator

from shardmq.shards.check.closed_store import ClosedStore
from shardmq.shards.check.queues import Look, Registry, look_at_marks, look_at_queues
from shardmq.shards.check.rows import (
    look_at_cursors,
    look_at_lost_notes,
    look_at_notes,
    look_at_producers,
    look_at_replica,
    look_at_reservations,
    look_at_timers,
)
from shardmq.shards.check.segments import look_at_segments
from shardmq.shards.check.shared import look_at_bodies, look_at_unreferred
from shardmq.shards.check.staged import look_at_staged
from shardmq.storage.repair.findings import Finding
from shardmq.topology.entities import Queue as Declared

_LOOKS = (
    look_at_queues,
    look_at_bodies,
    look_at_segments,
    look_at_marks,
    look_at_timers,
    look_at_producers,
    look_at_reservations,
    look_at_cursors,
    look_at_staged,
    look_at_unreferred,
    look_at_notes,
    look_at_lost_notes,
    look_at_replica,
)
"""In this order: each knows what those before have found."""


def check_shard(
    name: str,
    store: ClosedStore,
    registry: Registry | None,
    seen: Callable[[], None] = lambda: None,
    declared: Callable[[Declared], None] = lambda _: None,
) -> Iterator[Finding]:
    """Everything that is wrong with a shard's store.

    Args:
        name: of the shard.
        store: its store.
        registry: what the coordinator knows of it; None where that cannot be read.
        seen: called for every row.
        declared: called for every queue whose declaration can be read.
    """
    look = Look(name, store, registry, seen)
    for each in _LOOKS:
        yield from each(look)
    for queue in look.queues.values():
        if queue is not None:
            declared(queue)
