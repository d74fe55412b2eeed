"""Chunks of a replay, their names, and when they are due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.spark.jobs.replay_plan import (
    BLOCK_ROWS,
    CHUNK_ROWS_MAX,
    File,
    Pace,
    ReplayPart,
    ReplayPlan,
    chunk_rows,
    usual_id,
)

FILES = st.lists(st.integers(0, 50), max_size=8).map(
    lambda rows: tuple(File(f"file:/{number}", 10, count) for number, count in enumerate(rows))
)


@given(FILES, st.integers(1, 40))
def test_chunks_are_all_rows_once_in_order(files: tuple[File, ...], size: int) -> None:
    plan = ReplayPlan(files, size)
    every = [(file.path, row) for file in files for row in range(file.rows)]
    found = []
    for chunk in range(plan.chunks):
        rows = [(part.path, row) for part in plan.parts(range(chunk, chunk + 1)) for row in range(part.first, part.end)]
        assert len(rows) == plan.rows_of(chunk)
        found += rows
    assert found == every


@given(FILES, st.integers(1, 40), st.data())
def test_parts_of_many_chunks_are_those_of_each(files: tuple[File, ...], size: int, data: st.DataObject) -> None:
    plan = ReplayPlan(files, size)
    first = data.draw(st.integers(0, plan.chunks))
    chunks = range(first, data.draw(st.integers(first, plan.chunks)))
    rows = [part.before + row for part in plan.parts(chunks) for row in range(part.first, part.end)]
    assert rows == list(range(chunks.start * size, min(chunks.stop * size, plan.rows)))


def test_blocks_are_all_chunks_in_portions() -> None:
    plan = ReplayPlan((File("file:/a", 1, 10 * BLOCK_ROWS),), BLOCK_ROWS // 4)
    assert list(plan.blocks(38)) == [range(38, 40)]
    assert list(plan.blocks())[:2] == [range(4), range(4, 8)]
    assert plan.parts(range(4, 6)) == [ReplayPart("file:/a", BLOCK_ROWS, BLOCK_ROWS * 3 // 2, 0)]


@pytest.mark.parametrize(("rate", "rows"), [(None, CHUNK_ROWS_MAX), (0.01, 1), (100.0, 500), (1e9, CHUNK_ROWS_MAX)])
def test_a_chunk_is_some_seconds_of_the_rate(rate: float | None, rows: int) -> None:
    assert chunk_rows(rate) == rows


def test_a_replays_name_is_of_its_files_and_its_target() -> None:
    files = [File("file:/a", 10, 5), File("file:/b", 20, 5)]
    assert usual_id(files, "exchange x") == usual_id(list(files), "exchange x")
    others = {
        usual_id(files, "exchange x"),
        usual_id(files, "exchange y"),
        usual_id(files[:1], "exchange x"),
        usual_id([files[0], File("file:/b", 21, 5)], "exchange x"),
    }
    assert len(others) == 4
    assert ReplayPlan(tuple(files), 5).digest("x") != ReplayPlan(tuple(files), 6).digest("x")


def test_the_pace_is_kept_and_what_is_late_is_not_made_up_for() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(100.0, lambda: now[0], sleep)
    pace.wait(50)
    now[0] = 0.1
    pace.wait(50)
    assert slept == [pytest.approx(0.4)]
    now[0] = 9.0
    pace.wait(50)
    pace.wait(50)
    assert slept[1:] == [pytest.approx(0.5)]


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(None, lambda: 0.0, lambda _seconds: pytest.fail("it waits"))
    pace.wait(10**9)
    pace.wait(10**9)
