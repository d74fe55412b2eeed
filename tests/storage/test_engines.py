"""The engines: whoever applies the same edits has the same rows, after reopening, too, and after a crash."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardmq.errors import StoreUnwritable
from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import KEY_BYTES_MAX, Edit, Engine, Layout, behind
from shardmq.storage.lmdb_engine import LOGGED_BYTES_MAX, LmdbEngine
from shardmq.storage.memory_engine import MemoryEngine

DATABASES = 3
NOTES = 2
LAYOUT = Layout(b"test", (b"first", b"second", b"notes"), sealed_row, log_note=(NOTES, b"log"))
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

keys = st.binary(min_size=1, max_size=3) | st.sampled_from([b"\xff" * n for n in (1, 2, 8)])
numbers = st.integers(0, 1)
values = st.none() | st.binary(max_size=9) | st.just(bytes(5000))
FEW = [b"a", b"b", b"c"]
edits = st.lists(st.tuples(numbers, keys, values), max_size=12)


def opened(folder: Path, layout: Layout = LAYOUT) -> LmdbEngine:
    engine = LmdbEngine(folder, layout, reserve_bytes=1 << 16, margin_bytes=0)
    note = engine.get(NOTES, b"log")
    engine.start(None if note is None else int.from_bytes(note[8:], "big"), lambda: None)
    if note is None:
        engine.apply([])  # from here on, the log must be there
    return engine


def rows(engine: Engine, database: int, start: bytes = b"", end: bytes | None = None) -> list[tuple[bytes, bytes]]:
    return [(key, bytes(value)) for key, value in engine.scan(database, start, end)]


class EnginesAgree(RuleBasedStateMachine):
    layout = LAYOUT

    def __init__(self) -> None:
        super().__init__()
        self.room = Path(tempfile.mkdtemp(dir=MEMORY))
        self.folders = (self.room / str(number) for number in count())
        self.folder = next(self.folders)
        self.disk = opened(self.folder, self.layout)
        self.memory = MemoryEngine(self.layout)

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.room)

    @rule(edits=edits, size=st.sampled_from([None, 0, LOGGED_BYTES_MAX + 1]))
    def apply(self, edits: list[Edit], size: int | None) -> None:
        for engine in (self.disk, self.memory):
            engine.apply(iter(edits), size)

    @rule()
    def sync(self) -> None:
        self.disk.sync()
        self.memory.sync()
        assert not self.disk.is_pending

    @rule(now=st.sampled_from([0.0, float("inf")]))
    def rest(self, now: float) -> None:
        self.disk.rest(now)
        self.memory.rest(now)

    @rule(database=numbers)
    def clear(self, database: int) -> None:
        self.disk.clear(database)
        self.memory.clear(database)

    @rule()
    def reopen(self) -> None:
        self.disk.close()
        self.memory.close()
        self.disk = opened(self.folder, self.layout)
        self.memory = MemoryEngine(self.layout, self.memory.rows)

    @rule()
    def crash(self) -> None:
        """What is on disk at this moment is opened; the engine before is closed where nobody sees it."""
        folder = next(self.folders)
        shutil.copytree(self.folder, folder)
        self.disk.close()
        shutil.rmtree(self.folder)
        self.folder = folder
        self.disk = opened(folder, self.layout)
        self.memory = MemoryEngine(self.layout, self.memory.rows)

    @rule()
    def compact(self) -> None:
        self.disk._compact()

    @rule(database=numbers, start=st.just(b"") | keys, end=st.none() | keys)
    def scan(self, database: int, start: bytes, end: bytes | None) -> None:
        expected = rows(self.memory, database, start, end)
        assert rows(self.disk, database, start, end) == expected
        names = [key for key, _ in expected]
        assert list(self.disk.keys(database, start, end)) == list(self.memory.keys(database, start, end)) == names

    @rule(database=numbers, edits=edits, taken=st.integers(0, 4))
    def scan_while_edits_are_applied(self, database: int, edits: list[Edit], taken: int) -> None:
        expected = rows(self.memory, database)
        with closing(self.disk.scan(database)) as on_disk, closing(self.memory.scan(database)) as in_memory:
            for stream in (on_disk, in_memory):
                found = [(key, bytes(value)) for key, value in islice(stream, taken)]
                if found:
                    for engine in (self.disk, self.memory):
                        engine.apply(edits, 0)
                    found += [(key, bytes(value)) for key, value in stream]
                    assert found == expected
                    expected = rows(self.memory, database)
                    break

    @rule(database=numbers, key=keys)
    def look_at_one(self, database: int, key: bytes) -> None:
        found, expected = self.disk.get(database, key), self.memory.get(database, key)
        assert (found is None) == (expected is None)
        assert found is None or expected is None or bytes(found) == bytes(expected)
        assert self.disk.key_before(database, key) == self.memory.key_before(database, key)

    @precondition(lambda self: self.memory.rows.keys[0])
    @rule(prefix=keys)
    def scan_prefix(self, prefix: bytes) -> None:
        expected = [key for key in self.memory.rows.keys[0] if key.startswith(prefix)]
        assert list(self.disk.keys(0, prefix, behind(prefix))) == expected

    @invariant()
    def all_rows_are_the_same(self) -> None:
        for database in range(2):
            assert rows(self.disk, database) == rows(self.memory, database)


TestEnginesAgree = EnginesAgree.TestCase
TestEnginesAgree.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


class PairedRowsAgree(EnginesAgree):
    """Bodies and their entries, put and deleted together; an entry changes alone."""

    layout = replace(LAYOUT, paired=(0, 1))

    def paired(self, changes: list[tuple[str, bytes]]) -> list[Edit]:
        there = set(self.memory.rows.keys[0])
        deletions: list[Edit] = []
        others: list[Edit] = []
        for change, key in changes:
            if change in ("delete", "rewrite") and key in there:
                deletions += [(0, key, None), (1, key, None)]
                there.remove(key)
            if change in ("put", "rewrite") and key not in there and not any(key == put for _, put, _ in others):
                others += [(0, key, b"body"), (1, key, b"entry")]
            elif change == "change" and key in there:
                others.append((1, key, b"changed"))
        return [*deletions, *[edit for edit in others if edit[1] in there or edit[2] != b"changed"]]

    @rule(
        changes=st.lists(
            st.tuples(st.sampled_from(["put", "put", "delete", "delete", "change", "rewrite"]), st.sampled_from(FEW)),
            max_size=6,
        ),
        size=st.sampled_from([None, 0, 0, 0, LOGGED_BYTES_MAX + 1]),
    )
    def apply_paired(self, changes: list[tuple[str, bytes]], size: int | None) -> None:
        edits = self.paired(changes)
        for engine in (self.disk, self.memory):
            engine.apply(iter(edits), size)

    @rule()
    def clear(self) -> None:
        """Both: a body without its entry, or an entry without its body, is not there."""
        for engine in (self.disk, self.memory):
            engine.clear(0, 1)

    @rule()
    def apply(self) -> None:
        """What is not paired is not put there."""

    @rule()
    def scan_while_edits_are_applied(self) -> None:
        """As for `apply`."""


TestPairedRowsAgree = PairedRowsAgree.TestCase
TestPairedRowsAgree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_paired_rows_that_come_and_go_within_the_log_never_reach_lmdb(tmp_path: Path) -> None:
    engine = opened(tmp_path / "store", PairedRowsAgree.layout)
    stays, goes = [(0, b"stays", b"body"), (1, b"stays", b"entry")], [(0, b"goes", b"body"), (1, b"goes", b"entry")]
    engine.apply([*stays, *goes], 0)
    engine.apply([(0, b"goes", None), (1, b"goes", None)], 0)
    assert [list(recent) for recent in engine._overlay] == [[b"stays"], [b"stays"], []]
    engine.sync()
    engine.apply([(0, b"stays", None), (1, b"stays", None)], 0)
    assert [list(recent) for recent in engine._overlay] == [[b"stays"], [b"stays"], []], "LMDB has it"
    engine.close()
    again = opened(tmp_path / "store", PairedRowsAgree.layout)
    assert rows(again, 0) == rows(again, 1) == []
    again.close()


@pytest.fixture(params=["lmdb", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    engine = opened(tmp_path / "store") if request.param == "lmdb" else MemoryEngine(LAYOUT)
    yield engine
    engine.close()


def test_what_is_stored_is_what_the_layout_makes_of_an_edit(engine: Engine) -> None:
    for size in (None, 0):
        engine.apply([(0, b"key", b"value")], size)
        assert engine.get(0, b"key") == sealed_row(0, b"key", b"value")
        assert rows(engine, 0) == [(b"key", sealed_row(0, b"key", b"value"))]


def test_the_last_edit_of_a_key_counts(engine: Engine) -> None:
    engine.apply([(0, b"a", b"1"), (0, b"a", None), (0, b"b", None), (0, b"b", b"2")])
    assert list(engine.keys(0)) == [b"b"]


def test_a_value_need_only_be_good_until_the_next_edit(engine: Engine) -> None:
    value = bytearray()

    def edits() -> Iterator[Edit]:
        for number in range(5):
            value[:] = b"%d" % number
            yield 0, b"k%d" % number, value

    for size in (None, 0):
        engine.apply(edits(), size)
        assert [content[8:] for _, content in rows(engine, 0)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("key", [b"", b"x" * (KEY_BYTES_MAX + 1)])
def test_a_key_that_cannot_be_stored_leaves_everything_as_it_was(engine: Engine, key: bytes) -> None:
    with pytest.raises(StoreUnwritable):
        engine.apply([(0, b"before", b"1"), (1, key, b"2")])
    assert rows(engine, 0) == rows(engine, 1) == []


def test_edits_that_fail_on_the_way_leave_everything_as_it_was(engine: Engine) -> None:
    def edits() -> Iterator[Edit]:
        yield 0, b"key", b"value"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        engine.apply(edits())
    assert rows(engine, 0) == []


def test_scans_may_go_on_side_by_side(engine: Engine) -> None:
    engine.apply([(0, b"%d" % n, b"") for n in range(5)])
    engine.apply([(1, b"%d" % n, b"") for n in range(5)], 0)
    assert list(zip(engine.keys(0), engine.keys(1), strict=True)) == [(b"%d" % n, b"%d" % n) for n in range(5)]


def test_the_room_is_known(engine: Engine) -> None:
    before = engine.sizes()["used_bytes"]
    engine.apply([(0, b"key", bytes(1 << 20))])
    assert engine.sizes()["used_bytes"] >= before + (1 << 20)
    assert engine.space.look().bytes > 0
    assert engine.space.left > 0
