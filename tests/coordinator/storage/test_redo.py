"""The coordinator's redo log: what was written is there after any end of the process."""

import shutil
import time
from pathlib import Path

import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage.check import ClosedCoordinatorStore, mend
from shardmq.coordinator.storage.schema import DATABASES, name_key
from shardmq.coordinator.storage.store import Store
from shardmq.errors import StoreRefused
from shardmq.storage.redo.log import REDO
from shardmq.topology.changes import BindingAdded, QueueAdded, QueueRemoved
from shardmq.topology.entities import Binding, Queue

FIRST, SECOND = Queue("/", "first", 7, 1), Queue("/", "second", 8, 0)


def crashed(folder: Path, copy: Path) -> Path:
    """The files as a crash would leave them: SECOND and what follows is in the redo log alone."""
    store = Store.open(folder, "life")
    store.load(2)
    store.write([*new_vhost("/"), QueueAdded(FIRST)])
    store.rest(time.monotonic() + 1)
    assert not store.is_pending
    store.write([QueueAdded(SECOND)])
    store.write([BindingAdded(Binding("/", "amq.direct", "second", "key")), QueueRemoved("/", "first")])
    assert store.is_pending
    shutil.copytree(folder, copy)
    store.close()
    return copy


def found(folder: Path) -> tuple[list[Queue], list[Binding], dict[int, int], int]:
    store = Store.open(folder, "life")
    try:
        stored = store.load(2)
        return list(stored.topology.queues), list(stored.topology.bindings), stored.tombstones, stored.next_queue
    finally:
        store.close()


def test_what_was_written_is_there_after_a_crash(tmp_path: Path) -> None:
    copy = crashed(tmp_path / "store", tmp_path / "copy")
    expected = found(tmp_path / "store")
    assert expected == ([SECOND], [Binding("/", "amq.direct", "second", "key")], {7: 1}, 9)
    assert found(copy) == expected
    assert found(copy) == expected


def test_rows_read_before_they_are_in_the_databases_are_the_new_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", "life")
    store.load(2)
    store.write([*new_vhost("/"), QueueAdded(FIRST)])
    store.write([QueueRemoved("/", "first"), QueueAdded(SECOND)])  # which reads the row of the first
    store.close()
    assert found(tmp_path / "store")[0] == [SECOND]


def test_a_check_reads_the_redo_log_and_changes_nothing(tmp_path: Path) -> None:
    copy = crashed(tmp_path / "store", tmp_path / "copy")
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    store = ClosedCoordinatorStore(copy)
    assert not list(store.check())
    assert store.known.queues == [SECOND]
    assert store.known.deleted == {7}
    store.close()
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_a_repair_takes_the_redo_log_with_it(tmp_path: Path) -> None:
    copy = crashed(tmp_path / "store", tmp_path / "copy")
    mend(copy, [(DATABASES.index(b"queues"), name_key("/", "second"), None)])
    store = ClosedCoordinatorStore(copy)
    assert not list(store.check())
    assert (store.known.queues, store.known.deleted) == ([], {7})
    store.close()


def test_a_store_without_its_redo_log_is_refused(tmp_path: Path) -> None:
    copy = crashed(tmp_path / "store", tmp_path / "copy")
    (copy / REDO).unlink()
    for _ in range(2):
        with pytest.raises(StoreRefused, match="redo is missing"):
            Store.open(copy, "life")
    assert not (copy / REDO).exists()
