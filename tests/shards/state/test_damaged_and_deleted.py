"""Queues of which something is damaged when they are deleted: no start fails for that, and nothing is told for ever."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.groups import CommitOffset
from shardmq.bus.messages.shard import DropQueue
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore, mend
from shardmq.shards.check.queues import Registry
from shardmq.shards.storage.schema import DATABASES, DROPPED, REPLACED, STATE, cursor_key
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip, rows
from tests.shards.driver import run_of

QUEUES = (
    Queue("/", "going", 1, 0),
    Queue("/", "log", 2, 0, arguments={"x-queue-type": "stream"}),
    Queue("/", "staying", 3, 0),
)
LEFT = Registry({3: QUEUES[2]}, deleted=frozenset({1, 2}))


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    for queue in (1, 2, 3):
        shard.take_in(run_of(0, 10), queue=queue)
    yield shard
    shard.close()


def is_well(shard: Clocked, *queues: int) -> None:
    """Nothing is damaged, these queues are there and no others, and one takes messages."""
    assert shard.loop.table()["damaged"] == []
    assert [table["id"] for table in shard.loop.table()["queues"]] == list(queues)
    shard.take_in(run_of(10, 5), queue=3)
    assert shard.bodies(queue=3)[-5:] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("is_cleared", [False, True])
def test_a_stream_with_a_group_that_is_out_of_service_is_deleted_for_good(shard: Clocked, is_cleared: bool) -> None:
    for group in ("hurt", "well"):
        shard.do(CommitOffset, 2, group, 5, 0)
    key = cursor_key(2, "hurt")
    flip(shard.store, "cursors", key)
    value = rows(shard.store, "cursors", 2)[key]
    shard.restart()
    assert [alarm["group"] for alarm in shard.loop.table()["damaged"]] == ["hurt"]
    assert shard.do(DropQueue, 2) == 10
    assert shard.loop.table()["damaged"] == []
    if is_cleared:
        while list(shard.store.engine.keys(DROPPED)):
            shard.tell()
    shard.restart()
    is_well(shard, 1, 3)
    assert not rows(shard.store, "cursors", 2)
    assert bytes(shard.store.engine.get(STATE, REPLACED + key) or b"").endswith(value), "what cannot be read is kept"


@pytest.mark.parametrize("database", ["index", "cursors", "segments"])
def test_a_damaged_row_of_a_queue_that_was_being_deleted_holds_up_no_start(shard: Clocked, database: str) -> None:
    shard.do(CommitOffset, 2, "hurt", 5, 0)
    with_it = {} if database == "cursors" else {(2, "hurt"): None}
    shard.store.write(WriteBatch(dropped=[1, 2], cursors=dict(with_it)))  # as far as it was when the process ended
    flip(shard.store, database, min(rows(shard.store, database, 2)))
    shard.restart()
    shard.take_in(run_of(10, 5), queue=3)
    assert [alarm["queue"] for alarm in shard.loop.table()["damaged"]] == [2] * (database != "segments")
    shard.dialer.close()
    shard.loop.stop()
    shard.listener.close()
    shard.store.close()
    folder = shard.folder / "store"
    store = ClosedStore(folder)
    found = list(check_shard("shard-0", store, LEFT))
    store.close()
    assert [each.database for each in found] == [database] * (database != "segments")
    mend(folder, [edit for each in found for edit in each.edits])
    shard.inbox.clear()
    shard.open()
    while list(shard.store.engine.keys(DROPPED)):
        shard.tell()
    is_well(shard, 3)
    assert not [name for name in DATABASES if name != b"state" and rows(shard.store, name.decode(), 2)]
