"""Transactions in the coordinator's store, across restarts."""

from pathlib import Path

import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage import transactions
from shardmq.coordinator.storage.schema import DATABASES, FORMAT, TRANSACTION_DATABASES, stored_value
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.coordinator.storage.transactions import Decision
from shardmq.errors import StoreRefused
from shardmq.limits import COMMITTED_KEPT_MS, RESERVED_KEPT_MS, SHOVEL_KEPT_MS
from shardmq.runtime.clock import SteadyClock
from shardmq.storage.lmdb_environment import open_environment
from shardmq.topology.changes import (
    Change,
    TransactionBegun,
    TransactionEnded,
    UserPut,
    VhostRemoved,
)
from shardmq.topology.entities import RESERVED_TRANSACTIONS, SHOVEL_TRANSACTIONS, OpenTransaction, User, Vhost
from tests.coordinator.stores import StoreRoom

SHARDS = 3


def begun(number: int, name: str = "x", vhost: str = "/") -> TransactionBegun:
    return TransactionBegun(OpenTransaction(vhost, name, number, "anna", 1000, 50_000))


def committed(number: int, name: str = "x", vhost: str = "/", ended_ms: int = 60_000) -> TransactionEnded:
    return TransactionEnded(vhost, name, number, True, [8, 2**63 - 1], ended_ms)


def aborted(number: int, name: str = "x") -> TransactionEnded:
    return TransactionEnded("/", name, number, False, [], 60_000)


def opened(stores: StoreRoom) -> tuple[Store, StoredState]:
    store = stores.open()
    try:
        return store, store.load(SHARDS)
    except BaseException:
        store.close()
        raise


def written(stores: StoreRoom, changes: list[Change], followed: tuple[tuple[int, int], ...] = ()) -> StoredState:
    """What a start finds after these were written."""
    store, _ = opened(stores)
    store.write(changes, (), followed)
    store.close()
    store, stored = opened(stores)
    store.close()
    return stored


def test_what_is_undecided_is_read_back(stores: StoreRoom) -> None:
    stored = written(stores, [begun(1, "a"), begun(2, "b"), begun(1, "a")])
    assert stored.topology.transactions == [begun(1, "a").transaction, begun(2, "b").transaction]
    assert (stored.transactions.next_number, stored.transactions.decisions) == (3, {})


def test_numbers_are_not_given_again(stores: StoreRoom) -> None:
    stored = written(stores, [begun(7), aborted(7)], tuple((7, shard) for shard in range(SHARDS)))
    assert (stored.transactions.next_number, stored.transactions.undecided) == (8, [])


def test_decisions_are_kept_until_every_shard_has_followed(stores: StoreRoom) -> None:
    stored = written(stores, [begun(1, "a"), begun(2, "b"), committed(1, "a"), aborted(2, "b")])
    decided = {1: Decision([8, 2**63 - 1], [0, 1, 2]), 2: Decision([], [0, 1, 2])}
    assert stored.transactions.decisions == decided
    stored = written(stores, [], ((1, 0), (1, 2), (2, 1)))
    assert stored.transactions.decisions == {1: Decision([8, 2**63 - 1], [1]), 2: Decision([], [0, 2])}
    stored = written(stores, [], ((1, 1), (2, 2), (2, 0)))
    assert stored.transactions.decisions == {}


def test_committed_names_are_remembered_for_their_time(stores: StoreRoom) -> None:
    store, _ = opened(stores)
    store.write([begun(1, "a"), begun(2, "b"), committed(1, "a"), aborted(2, "b")])
    over_ms = 60_000 + COMMITTED_KEPT_MS
    assert store.committed("/", "a", over_ms - 1) == 1
    assert store.committed("/", "a", over_ms) is None
    assert store.committed("/", "b", 60_000) is None
    assert store.committed("other", "a", 60_000) is None
    store.close()
    store, _ = opened(stores)
    assert store.committed("/", "a", over_ms - 1) == 1
    store.close()


@pytest.mark.parametrize(
    ("prefix", "kept_ms"), [(RESERVED_TRANSACTIONS, RESERVED_KEPT_MS), (SHOVEL_TRANSACTIONS, SHOVEL_KEPT_MS)]
)
def test_names_that_gateways_and_shovels_make_are_soon_forgotten(stores: StoreRoom, prefix: str, kept_ms: int) -> None:
    store, _ = opened(stores)
    name, ended_ms = f"{prefix}1234", 10 * COMMITTED_KEPT_MS
    store.write([begun(1, name), begun(2), committed(1, name, ended_ms=ended_ms), committed(2, ended_ms=ended_ms)])
    over_ms = ended_ms + kept_ms
    assert store.committed("/", name, over_ms - 1) == 1
    assert store.committed("/", name, over_ms) is None
    store.forget_committed(over_ms)
    assert store.committed("/", name, ended_ms) is None
    assert store.committed("/", "x", over_ms) == 2
    store.close()


def test_committed_names_are_forgotten_in_portions(stores: StoreRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "SWEEP_MAX", 2)
    store, _ = opened(stores)
    for number in range(1, 6):
        store.write([begun(number, f"t{number}"), committed(number, f"t{number}", ended_ms=60_000 + number)])
    over_ms = 60_004 + COMMITTED_KEPT_MS

    def entries() -> tuple[int, int]:
        return len(list(store._rows.scan(b"committed"))), len(list(store._rows.scan(b"committed_times")))

    for left in (3, 1, 1):
        store.forget_committed(over_ms)
        assert entries() == (left, left)
    assert store.committed("/", "t5", over_ms) == 5
    store.forget_committed(over_ms + 1)
    store.forget_committed(over_ms + 1)
    assert entries() == (0, 0)
    store.close()


def test_a_name_committed_again_is_remembered_from_then_on(stores: StoreRoom) -> None:
    store, _ = opened(stores)
    again_ms = 60_000 + COMMITTED_KEPT_MS
    store.write([begun(1), committed(1), begun(2), committed(2, ended_ms=again_ms)])
    store.forget_committed(again_ms)
    assert store.committed("/", "x", again_ms) == 2
    store.forget_committed(again_ms + COMMITTED_KEPT_MS)
    assert store.committed("/", "x", again_ms) is None
    store.close()


def test_committed_names_go_with_their_virtual_host(stores: StoreRoom) -> None:
    store, _ = opened(stores)
    store.write([*new_vhost("v"), begun(1, vhost="v"), committed(1, vhost="v"), begun(2), committed(2)])
    store.write([VhostRemoved("v"), *new_vhost("v")])
    assert store.committed("v", "x", 60_000) is None
    assert store.committed("/", "x", 60_000) == 2
    store.write([begun(3, vhost="v"), committed(3, vhost="v")])
    assert store.committed("v", "x", 60_000) == 3
    store.write([VhostRemoved("v")])
    store.close()


def test_the_longest_names_have_room(stores: StoreRoom) -> None:
    vhost, name = "v" * 255, "n" * 255
    store, _ = opened(stores)
    store.write([*new_vhost(vhost), begun(1, name, vhost), committed(1, name, vhost)])
    assert store.committed(vhost, name, 60_000) == 1
    store.close()


def test_the_time_is_noted(stores: StoreRoom) -> None:
    store, stored = opened(stores)
    assert stored.transactions.clock is None
    note = SteadyClock(5_000_000).note()
    store.write([], note=note)
    store.close()
    store, stored = opened(stores)
    assert stored.transactions.clock == note
    store.close()


LATER = (b"topics", b"policies", b"topic_permissions", b"parameters", b"replica")


def test_a_store_older_than_transactions_opens_and_has_none(tmp_path: Path) -> None:
    older = tuple(name for name in DATABASES if name not in (*TRANSACTION_DATABASES, *LATER))
    assert len(older) == 8
    open_environment(tmp_path, FORMAT, older).close()
    store = Store.open(tmp_path, "first")
    store.write([*new_vhost("/"), UserPut(User("anna", ""))])
    store.close()
    environment = open_environment(tmp_path, FORMAT, DATABASES)
    with environment.env.begin(write=True) as write:
        for name in (*TRANSACTION_DATABASES, *LATER):
            write.drop(environment.env.open_db(name, txn=write), delete=True)
    environment.close()
    stored = written(StoreRoom(tmp_path), [begun(1), committed(1)], ((1, 0), (1, 1), (1, 2)))
    assert stored.topology.vhosts == [Vhost("/")]
    assert (stored.transactions.undecided, stored.transactions.next_number) == ([], 2)


def test_an_entry_that_cannot_be_read_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    written(StoreRoom(tmp_path), [begun(1)])
    environment = open_environment(tmp_path, FORMAT, DATABASES)
    with environment.env.begin(write=True) as write:
        value = stored_value(DATABASES.index(b"transactions"), bytes(8), b"\xc1")
        write.put(bytes(8), value, db=environment.dbs[b"transactions"])
    environment.close()
    before = (tmp_path / "data.mdb").read_bytes()
    with pytest.raises(StoreRefused, match="an entry that cannot be read"):
        opened(StoreRoom(tmp_path))
    assert (tmp_path / "data.mdb").read_bytes() == before
