"""A coordinator's store that is rebuilt from what shards have recorded."""

from pathlib import Path

import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage.adoption import Recorded, adopt
from shardmq.coordinator.storage.schema import DATABASES, FORMAT
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.errors import StoreDamaged
from shardmq.storage.lmdb_environment import open_environment
from shardmq.topology.changes import QueueAdded
from shardmq.topology.entities import Queue

SHARD = Recorded(0, "store-0", "", 0, 0, [], frozenset(), 0)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many shards a store was loaded, each time."""
    loads: list[int] = []
    load = Store.load

    def counted(store: Store, shards: int) -> StoredState:
        loads.append(shards)
        return load(store, shards)

    monkeypatch.setattr(Store, "load", counted)
    return loads


def filled(folder: Path, *queues: Queue) -> None:
    store = Store.open(folder, "first")
    store.write([*new_vhost("/"), *map(QueueAdded, queues)])
    store.close()


def test_queues_of_shards_that_are_gone_are_declared_anew(tmp_path: Path, loads: list[int]) -> None:
    filled(tmp_path, Queue("/", "q", 1, 2))
    done = adopt(tmp_path, [SHARD])
    assert (done.kept, done.empty) == (True, [("/", "q", 2)])
    assert loads == [1, 2, 3]


def test_a_damaged_store_is_read_once(tmp_path: Path, loads: list[int]) -> None:
    filled(tmp_path, Queue("/", "q", 1, 0))
    environment = open_environment(tmp_path, FORMAT, DATABASES)
    with environment.env.begin(write=True, db=environment.dbs[b"queues"]) as transaction:
        transaction.put(b"/\0bad", b"not what was written")
    environment.close()
    with pytest.raises(StoreDamaged, match="the row is not what was written"):
        adopt(tmp_path, [SHARD])
    assert loads == [1]
