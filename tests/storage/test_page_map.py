"""How the map of a store is read: large values ahead, everything else page by page."""

from pathlib import Path

import pytest

from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import Layout
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.page_map import AHEAD_BYTES_MIN, READ_BYTES_MAX, REST_SECONDS

LAYOUT = Layout(b"test", (b"rows", b"notes"), sealed_row, log_note=(1, b"log"))


def flags_of_map(file: Path) -> set[str]:
    """What the kernel was told of a file's map (proc_pid_smaps(5)): "rr" is that it is read at random."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.endswith(str(file)))
    return set(next(line for line in lines[start:] if line.startswith("VmFlags:")).split()[1:])


def mapped_kb(file: Path) -> int:
    """How much of a file's map counts as this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.endswith(str(file)))
    return int(next(line for line in lines[start:] if line.startswith("Rss:")).split()[1])


@pytest.fixture
def engine(tmp_path: Path) -> LmdbEngine:
    """An engine with a small and a large value."""
    engine = LmdbEngine(tmp_path, LAYOUT, reserve_bytes=1 << 16, margin_bytes=0)
    engine.start(None, lambda: None)
    engine.apply([(0, b"large", bytes(range(256)) * 4096), (0, b"small", b"x")])
    engine.sync()
    return engine


def test_a_large_value_is_read_ahead_and_nothing_else_is(engine: LmdbEngine) -> None:
    seen: list[set[str]] = []
    ahead = engine._map.ahead

    def watched() -> object:
        context = ahead()
        enter = context.__enter__

        class Watched:
            def __enter__(self) -> None:
                enter()
                seen.append(flags_of_map(engine.file))

            def __exit__(self, *fault: object) -> None:
                context.__exit__(None, None, None)

        return Watched()

    engine._map.ahead = watched  # type: ignore[assignment,method-assign]
    small = engine.get(0, b"small", AHEAD_BYTES_MIN - 1)
    assert small is not None
    assert small[8:] == b"x"
    assert seen == []
    large = engine.get(0, b"large", 1 << 20)
    assert large is not None
    assert large[8:] == bytes(range(256)) * 4096
    assert len(seen) == 1
    assert "sr" in seen[0]
    assert "rr" in flags_of_map(engine.file)
    engine.close()


def test_a_store_that_was_compacted_is_read_ahead_too(engine: LmdbEngine) -> None:
    assert engine.get(0, b"large", 1 << 20) is not None
    engine._compact()
    with engine._map.ahead():
        assert "sr" in flags_of_map(engine.file)
    assert "rr" in flags_of_map(engine.file)
    engine.close()


def test_what_was_read_is_given_back_when_there_is_nothing_to_do(engine: LmdbEngine) -> None:
    rows = 2_000
    engine.apply([(0, b"row %06d" % number, bytes(2_000)) for number in range(rows)])
    engine.sync()
    assert len(list(engine.keys(0, b"row", b"s"))) == rows
    assert engine._map.bytes < READ_BYTES_MAX
    mapped = mapped_kb(engine.file)
    assert mapped > 4_000
    engine.rest(1000.0, is_busy=True)
    assert mapped_kb(engine.file) == mapped
    engine.rest(1000.0)
    assert mapped_kb(engine.file) < 500
    assert len(list(engine.keys(0, b"row", b"s"))) == rows
    engine.rest(1000.0 + REST_SECONDS / 2)
    assert mapped_kb(engine.file) > 4_000
    engine.rest(1000.0 + REST_SECONDS)
    assert mapped_kb(engine.file) < 500
    engine.close()
