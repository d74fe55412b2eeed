"""One bit of the coordinator's store is flipped: it is refused, or starts with all that it had."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.storage.schema import DATABASES
from shardmq.coordinator.storage.store import Store
from shardmq.errors import RowDamaged, StoreDamaged
from shardmq.runtime.clock import ClockNote
from shardmq.storage.pages.page_check import check_pages
from shardmq.storage.redo.log import REDO
from shardmq.topology.changes import (
    BindingAdded,
    Change,
    ExchangeAdded,
    ParameterPut,
    PermissionPut,
    PolicyPut,
    QueueAdded,
    QueueRemoved,
    TopicPermissionPut,
    TopicPut,
    TransactionBegun,
    TransactionEnded,
    UserPut,
)
from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
)
from tests.storage.flips import flipped, refusals

LOG_BYTES = 256 << 10
"""More than anything here writes of a log."""

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def fill(folder: Path) -> None:
    """Rows in every database, trees of several pages, and pages that were freed."""
    store = Store.open(folder, "first")
    store.load(4)

    def write(changes: list[Change], **more: Any) -> None:
        store.write(changes, **more)
        store.rest(time.monotonic() + 1)  # a commit of LMDB each

    changes: list[Change] = [*new_vhost("/"), *new_vhost("other"), UserPut(User("anna", "scrypt$", ("monitoring",)))]
    changes += [PermissionPut(Permission("anna", "/", ".*", ".*", ".*"))]
    changes += [ExchangeAdded(Exchange("/", f"exchange {number}", "topic")) for number in range(40)]
    changes += [QueueAdded(Queue("/", f"queue {number}", number + 1, number % 4)) for number in range(60)]
    changes += [BindingAdded(Binding("/", "exchange 1", f"queue {number}", "key")) for number in range(40)]
    write(changes, note=ClockNote("boot", 1, 2))
    write([TopicPut(Topic("/", f"topic {number}", (number + 1,), {"x-max-age": "1h"})) for number in range(9)])
    write([QueueRemoved("/", f"queue {number}") for number in range(50, 55)])
    transactions = [OpenTransaction("/", f"x{number}", number, "anna", 1000, 50_000) for number in range(1, 30)]
    write([TransactionBegun(each) for each in transactions])
    write([TransactionEnded("/", f"x{number}", number, True, [8, 9], 60_000) for number in range(1, 20)])
    write([*new_vhost("late")])
    write([PolicyPut(Policy("/", "p", "^queue", {"max-length": 5}))])
    write([TopicPermissionPut(TopicPermission("anna", "/", "exchange 1", "a", "b"))])
    write([ParameterPut(Parameter("/", "shovel", "s", {"src-uri": "amqp://"}))])
    write([], followed=[(number, shard) for number in range(1, 10) for shard in range(4)])
    store.close()


def found(folder: Path) -> Any:
    """All that a start finds; and that it can go on writing. The redo log is none of an earlier start."""
    log = folder / REDO
    aside = folder.parent / REDO
    if not aside.exists():
        aside.write_bytes(log.read_bytes()[:LOG_BYTES])
    with log.open("r+b") as stream:
        stream.write(aside.read_bytes())
    store = Store.open(folder, "first")
    try:
        stored = store.load(4)
        identity = replace(stored.identity, generation=0)  # raised at each start, by the clock
        names = [store.committed("/", f"x{number}", 70_000) for number in range(1, 30)]
        store.write([ExchangeAdded(Exchange("/", "exchange 1", "topic"))])
        return replace(stored, identity=identity), names
    finally:
        store.close()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name) / "coordinator"
        fill(folder)
        yield folder


@pytest.fixture(scope="module")
def content(folder: Path) -> bytes:
    return (folder / "data.mdb").read_bytes()


def test_a_flipped_bit_is_refused_or_changes_nothing(folder: Path, content: bytes) -> None:
    entries = check_pages(folder / "data.mdb").entries
    assert [name for name in DATABASES if not entries[name.decode()]] == [b"replica"]
    counts = refusals(folder / "data.mdb", content, lambda: found(folder))
    assert counts["refused"] > counts["same"]


@pytest.mark.parametrize(
    ("needle", "database"),
    [(b"queue 31", "queues"), (b"monitoring", "users"), (b"next_queue", "state"), (b"redo", "state")],
)
def test_a_flipped_bit_in_a_row_names_the_database_and_the_key(
    folder: Path, content: bytes, needle: bytes, database: str
) -> None:
    damages = []
    place = content.find(needle)
    while place >= 0:  # there may be older ones in free pages, and others of that name
        (folder / "data.mdb").write_bytes(flipped(content, (place + len(needle)) * 8 - 8))
        try:
            found(folder)
        except StoreDamaged as damage:
            if isinstance(damage, RowDamaged):
                damages.append((damage.database, damage.key.hex() in damage.text))
        place = content.find(needle, place + 1)
    assert (database, True) in damages
