"""The coordinator's store across restarts, and stores that are refused."""

from pathlib import Path

import lmdb
import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage.schema import DATABASES, FORMAT, stored_value
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.errors import StartupRefused, StoreRefused
from shardmq.storage.lmdb_environment import open_environment
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ExchangeAdded,
    QueueAdded,
    QueueRemoved,
    UserPut,
)
from shardmq.topology.entities import Binding, Exchange, Queue, User, Vhost, predeclared
from tests.coordinator.stores import StoreRoom


def write(stores: StoreRoom, boot_id: str, changes: list[Change], dropped: tuple[int, ...] = ()) -> None:
    store = stores.open(boot_id)
    store.write(changes, dropped)
    store.close()


def load(stores: StoreRoom, boot_id: str = "first", shards: int = 4) -> StoredState:
    store = stores.open(boot_id)
    try:
        return store.load(shards)
    finally:
        store.close()


def content(folder: Path) -> bytes:
    return (folder / "data.mdb").read_bytes()


def test_everything_written_is_read_back(stores: StoreRoom) -> None:
    exchange, queue = Exchange("/", "e", "topic", True, {}), Queue("/", "q", 5, 3)
    binding, user = Binding("/", "e", "q", "k", {"x": [1, "y"]}), User("guest", "scrypt$...", ("administrator",))
    write(stores, "first", [*new_vhost("/"), ExchangeAdded(exchange), QueueAdded(queue), BindingAdded(binding)])
    write(stores, "first", [UserPut(user)])
    stored = load(stores)
    assert stored.topology.vhosts == [Vhost("/")]
    assert exchange in stored.topology.exchanges
    assert stored.topology.queues == [queue]
    assert stored.topology.bindings == [binding]
    assert stored.topology.users == [user]
    assert (stored.tombstones, stored.next_queue) == ({}, 6)


def test_the_longest_names_have_room(stores: StoreRoom) -> None:
    vhost, name = "v" * 255, "n" * 255
    exchange, queue, binding = (
        Exchange(vhost, name, "topic"),
        Queue(vhost, name, 1, 0),
        Binding(vhost, name, name, name),
    )
    write(stores, "first", [*new_vhost(vhost), ExchangeAdded(exchange), QueueAdded(queue), BindingAdded(binding)])
    topology = load(stores).topology
    assert (topology.queues, topology.bindings) == ([queue], [binding])
    write(stores, "first", [BindingRemoved(binding), QueueRemoved(vhost, name)])
    topology = load(stores).topology
    assert (topology.queues, topology.bindings) == ([], [])


@pytest.mark.parametrize(("exchange_durable", "queue_durable"), [(True, True), (True, False), (False, True)])
def test_a_binding_is_durable_when_both_ends_are(
    stores: StoreRoom, exchange_durable: bool, queue_durable: bool
) -> None:
    exchange, queue = Exchange("/", "e", "fanout", exchange_durable), Queue("/", "q", 1, 2, queue_durable)
    binding = BindingAdded(Binding("/", "e", "q", ""))
    write(stores, "first", [*new_vhost("/"), ExchangeAdded(exchange), QueueAdded(queue), binding])
    assert len(load(stores, "first").topology.bindings) == 1
    stored = load(stores, "second")
    assert len(stored.topology.exchanges) == len(predeclared("/")) + exchange_durable
    assert len(stored.topology.queues) == queue_durable
    assert len(stored.topology.bindings) == (exchange_durable and queue_durable)
    assert stored.tombstones == ({} if queue_durable else {1: 2})


def test_ids_of_deleted_queues_are_not_given_again(stores: StoreRoom) -> None:
    write(stores, "first", [QueueAdded(Queue("/", "q", 7, 1)), QueueRemoved("/", "q")])
    stored = load(stores)
    assert (stored.tombstones, stored.next_queue) == ({7: 1}, 8)
    write(stores, "first", [], (7,))
    stored = load(stores)
    assert (stored.tombstones, stored.next_queue) == ({}, 8)


def test_a_restart_in_the_same_life_of_the_broker_is_told_from_a_first_start(stores: StoreRoom) -> None:
    assert not load(stores, "first").is_restart
    assert load(stores, "first").is_restart
    assert not load(stores, "second").is_restart


def test_fewer_shards_than_hold_queues_are_refused(stores: StoreRoom) -> None:
    queues = [Queue("/", "a", 1, 5), Queue("/", "b", 2, 5), Queue("/", "c", 3, 4), Queue("/", "d", 4, 6, False)]
    write(stores, "first", [*new_vhost("/"), *map(QueueAdded, queues)])
    with pytest.raises(StartupRefused) as refusal:
        load(stores, "second", shards=4)
    assert refusal.value.text == (
        "the data directory has 2 queues on shard 5, but only 4 shards were asked for; start with --shards 6 or more"
    )
    assert len(load(stores, "first", shards=7).topology.queues) == 4
    assert len(load(stores, "second", shards=6).topology.queues) == 3


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "first")
    with pytest.raises(StoreRefused, match="in use by another process"):
        Store.open(tmp_path, "first")
    store.close()


def test_a_file_that_is_no_store_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"precious" * 5000)
    with pytest.raises(StoreRefused, match=r"data\.mdb is no LMDB file"):
        Store.open(tmp_path, "first")
    assert content(tmp_path) == b"precious" * 5000


def test_a_shards_store_is_left_as_it_was(tmp_path: Path) -> None:
    open_environment(tmp_path, b"shardmq-shard", (b"segments",)).close()
    before = content(tmp_path)
    with pytest.raises(StoreRefused, match="shardmq-shard"):
        Store.open(tmp_path, "first")
    assert content(tmp_path) == before


def test_a_newer_store_is_left_as_it_was(tmp_path: Path) -> None:
    write(StoreRoom(tmp_path), "first", new_vhost("/"))
    env = lmdb.open(str(tmp_path), max_dbs=9)
    with env.begin(write=True, db=env.open_db(b"meta")) as transaction:
        transaction.put(b"version", b"3")
    env.close()
    before = content(tmp_path)
    with pytest.raises(StoreRefused, match="version 3"):
        Store.open(tmp_path, "first")
    assert content(tmp_path) == before


def test_an_entry_that_cannot_be_read_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    write(StoreRoom(tmp_path), "first", [QueueAdded(Queue("/", "transient", 1, 0, False))])
    environment = open_environment(tmp_path, FORMAT, DATABASES)
    with environment.env.begin(write=True, db=environment.dbs[b"queues"]) as transaction:
        transaction.put(b"/\0bad", stored_value(DATABASES.index(b"queues"), b"/\0bad", b"\xc1"))
    environment.close()
    before = content(tmp_path)
    with pytest.raises(StoreRefused, match="an entry that cannot be read"):
        load(StoreRoom(tmp_path), "second")
    assert content(tmp_path) == before
