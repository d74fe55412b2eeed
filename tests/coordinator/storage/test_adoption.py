"""A coordinator's store that is rebuilt from what shards have recorded."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage.adoption import Recorded, adopt
from shardmq.coordinator.storage.schema import DATABASES, FORMAT
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.errors import StoreDamaged
from shardmq.storage.lmdb_environment import open_environment
from shardmq.topology.changes import PolicyPut, QueueAdded, TopicPut
from shardmq.topology.entities import Policy, Queue, Topic

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


def test_topics_name_the_queues_that_are_declared_anew(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "first")
    queues = [Queue("/", f"t-{number}", 1 + number, number % 2, True, {"x-topic": "t"}) for number in range(4)]
    topic = Topic("/", "t", (1, 2, 3, 4), {"x-max-age": "1h"})
    store.write([*new_vhost("/"), *map(QueueAdded, queues), TopicPut(topic)])
    store.close()
    adopt(tmp_path, [Recorded(0, "store-0", "", 0, 4, queues[::2], frozenset(), 0), replace(SHARD, shard=1)])
    store = Store.open(tmp_path, "second")
    stored = store.load(2).topology
    store.close()
    ids = {queue.name: queue.id for queue in stored.queues}
    assert (ids["t-0"], ids["t-2"]) == (1, 3)
    assert {ids["t-1"], ids["t-3"]}.isdisjoint({1, 2, 3, 4})
    assert stored.topics == [msgspec.structs.replace(topic, partitions=tuple(ids[f"t-{n}"] for n in range(4)))]


def test_policies_are_kept_and_what_they_gave_queues_is_not_taken_for_arguments(tmp_path: Path) -> None:
    policy = Policy("/", "short", "^q", {"max-length": 3})
    filled(tmp_path, Queue("/", "old", 1, 0))
    store = Store.open(tmp_path, "first")
    store.write([PolicyPut(policy)])
    store.close()
    here = [Queue("/", name, number, 0, policy={"x-max-length": 3}) for number, name in ((1, "old"), (2, "q"))]
    adopt(tmp_path, [Recorded(0, "store-0", "", 0, 2, here, frozenset(), 0)])
    store = Store.open(tmp_path, "second")
    stored = store.load(1).topology
    store.close()
    assert (stored.policies, [queue.name for queue in stored.queues]) == ([policy], ["old", "q"])
    assert not any(queue.policy or queue.arguments for queue in stored.queues)
