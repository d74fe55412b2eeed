"""The disk under a store: what can still be written, the reserve, and a file without its free pages."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from shardmq.errors import StoreUnwritable
from shardmq.storage import lmdb_environment
from shardmq.storage.compaction import SLACK_SECONDS, Slack, clear, copy, swap
from shardmq.storage.disk_space import RESERVE_BYTES, DiskSpace, writing
from shardmq.storage.engine import Layout, Room
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.lmdb_environment import LmdbEnvironment, open_environment

MB = 1 << 20
MUCH = 1 << 40


class Store:
    """A store of one database, which a test fills."""

    def __init__(self, folder: Path) -> None:
        self.environment: LmdbEnvironment = open_environment(folder, b"test", (b"things",))
        self.kept: dict[bytes, bytes] = {}

    @property
    def disk_bytes(self) -> int:
        return self.environment.file.stat().st_blocks * 512

    def put(self, *keys: int) -> None:
        with self.environment.env.begin(write=True, db=self.environment.dbs[b"things"]) as transaction:
            for key in keys:
                self.kept[key.to_bytes(8)] = os.urandom(1_000_000)
                transaction.put(key.to_bytes(8), self.kept[key.to_bytes(8)])

    def delete(self, *keys: int) -> None:
        with self.environment.env.begin(write=True, db=self.environment.dbs[b"things"]) as transaction:
            for key in keys:
                transaction.delete(key.to_bytes(8))
                del self.kept[key.to_bytes(8)]

    def content(self) -> dict[bytes, bytes]:
        with self.environment.env.begin(db=self.environment.dbs[b"things"]) as transaction:
            return dict(transaction.cursor())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "store")
    yield store
    store.environment.close()


def test_pages_that_are_free_in_the_file_are_room(store: Store) -> None:
    space = DiskSpace(store.environment)
    store.put(*range(20))
    full = space.room()
    assert full.inside < MB
    assert full.used > 19 * MB
    store.delete(*range(18))
    assert space.room().inside > 16 * MB
    assert space.room().used < 3 * MB


def test_the_reserve_is_nobody_elses_and_no_room(store: Store) -> None:
    before = store.disk_bytes
    space = DiskSpace(store.environment)
    assert store.disk_bytes >= before + RESERVE_BYTES
    assert space.room().inside < MB
    for number in range(12):
        space.left -= 1_000_000
        store.put(number)
        space.committed()
        taken = (number + 1) * 1_000_000
        assert store.disk_bytes >= before + taken + RESERVE_BYTES // 2, "it is made again as the file grows"


def test_a_limit_on_the_files_size_is_a_full_disk(store: Store) -> None:
    space = DiskSpace(store.environment)
    assert space.left > 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE_BYTES // 4, hard))
        assert space.look().free < RESERVE_BYTES
        assert space.left < 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    space.look()
    assert space.left > 0


@pytest.fixture
def small_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose file may have 96 MB."""
    monkeypatch.setattr(lmdb_environment, "MAP_BYTES", 96 * MB)
    store = Store(tmp_path / "small")
    yield store
    store.environment.close()


def test_a_store_that_is_as_large_as_it_may_be_is_on_a_full_disk(small_store: Store) -> None:
    space = DiskSpace(small_store.environment)
    assert not space.look().free > 96 * MB
    count = 0
    while space.left > MB:
        space.left -= MB
        small_store.put(count)
        space.committed()
        count += 1
    assert 60 < count < 80, "the rest is for acknowledgements"
    assert space.look().is_capped
    for number in range(count):
        small_store.put(1000)  # an acknowledgement writes before it makes room
        small_store.delete(number, 1000)
        space.committed()
    assert space.left > 16 * MB
    assert small_store.content() == {}


def test_a_store_without_any_room_says_that_it_is_as_large_as_it_may_be(small_store: Store) -> None:
    with pytest.raises(StoreUnwritable, match="as large as a store may be"), writing(small_store.environment) as write:
        write.put(b"large", bytes(100 * MB), db=small_store.environment.dbs[b"things"])


def key_of(number: int) -> bytes:
    return number.to_bytes(8, "big")


@pytest.fixture
def small_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbEngine]:
    """An engine whose file may have 128 MB, and has 50 rows of 1 MB; 20 more were deleted."""
    monkeypatch.setattr(lmdb_environment, "MAP_BYTES", 128 * MB)
    engine = LmdbEngine(tmp_path / "small", Layout(b"test", (b"things",), lambda _number, _key, value: value))
    for number in range(70):
        engine.apply([(0, key_of(number), os.urandom(MB))])
    engine.apply([(0, key_of(number), None) for number in range(20)])
    engine.apply([(0, key_of(70), bytes(9))])  # and their pages may be written again
    yield engine
    engine.close()


def test_what_is_freed_while_a_store_is_copied_is_no_room(small_engine: LmdbEngine, tmp_path: Path) -> None:
    space = small_engine.space
    copying = small_engine.copy(tmp_path / "copy", bytes_per_second=1)
    assert space.look().inside > 18 * MB, "what was free before is written again"
    first, last = 20, 71
    while space.left > MB:
        space.left -= MB
        small_engine.apply([(0, key_of(last), os.urandom(MB)), (0, key_of(first), None)])
        first, last = first + 1, last + 1
    assert space.look().inside == 0
    assert not copying.fault
    while not copying.fault:
        small_engine.apply([(0, key_of(last), bytes(MB)), (0, key_of(first), None)])  # acknowledgements write, too
        first, last = first + 1, last + 1
    assert "no room for what is written meanwhile" in copying.fault
    copying.close()
    small_engine.apply([(0, key_of(first), None)])
    assert space.look().inside > 40 * MB
    assert space.left > 8 * MB


def test_free_pages_count_for_nothing_once_a_transaction_failed_until_the_disk_has_room(store: Store) -> None:
    store.put(*range(60))
    store.delete(*range(59))
    space = DiskSpace(store.environment)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (store.environment.file.stat().st_size, hard))
        space.look()
        assert space.left > 0, "there are free pages"
        with pytest.raises(StoreUnwritable, match="could not be written"), writing(store.environment) as transaction:
            transaction.put(b"large", bytes(80 * MB), db=store.environment.dbs[b"things"])
        again = DiskSpace(store.environment)
        assert again.left < 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again.look()
    assert again.left > 0
    assert DiskSpace(store.environment).left > 0
    assert store.content() == store.kept


def test_a_compacted_store_says_the_same_and_takes_what_it_needs(store: Store) -> None:
    store.put(*range(30))
    store.delete(*range(28))
    space = DiskSpace(store.environment)
    copy(store.environment)
    store.environment = swap(store.environment)
    space.use(store.environment)
    assert store.content() == store.kept
    assert store.environment.file.stat().st_size < 3 * MB
    assert store.disk_bytes < 3 * MB + RESERVE_BYTES
    assert sorted(path.name for path in store.environment.folder.iterdir()) == ["data.mdb", "lock", "lock.mdb"]
    store.put(100, 101)
    assert store.content() == store.kept
    with pytest.raises(lmdb.Error), store.environment.env.begin(write=True) as transaction:
        transaction.put(b"", b"")  # the file is in order, and so are its refusals


def test_a_copy_that_was_not_finished_changes_nothing_and_is_removed(store: Store) -> None:
    store.put(1)
    copy(store.environment)
    assert (store.environment.folder / "compact" / "data.mdb").exists()
    clear(store.environment.folder)
    assert not (store.environment.folder / "compact").exists()
    clear(store.environment.folder)
    assert store.content() == store.kept


def test_a_store_that_is_filled_and_emptied_by_turns_keeps_its_pages() -> None:
    slack = Slack()
    empty, full = Room(MUCH, 400 * MB, MB), Room(MUCH, 10 * MB, 391 * MB)
    assert not any(slack.is_due(turn * SLACK_SECONDS / 4, (empty, full)[turn % 2], False) for turn in range(40))
    due = [slack.is_due(1000 + second, empty, False) for second in range(30)]
    assert not any(due[: int(SLACK_SECONDS) - 1])
    assert due[-1], "what was free all the time is given back"
    slack.rest(1030)
    assert not slack.is_due(1031, empty, False)


@pytest.mark.parametrize(
    ("room", "is_due"),
    [
        (Room(MUCH, 400 * MB, MB), True),
        (Room(MUCH, 20 * MB, MB), True),
        (Room(MUCH, 10 * MB, MB), False),
        (Room(MUCH, 400 * MB, 20 * MB), False),
        (Room(1000, 400 * MB, MB), False),
    ],
    ids=["most is free", "some is free", "little is free", "much would be copied", "the copy has no room"],
)
def test_while_the_disk_is_short_pages_are_given_back_at_once(room: Room, is_due: bool) -> None:
    assert Slack().is_due(0, room, is_pressed=True) is is_due
