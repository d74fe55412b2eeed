"""The pipeline's plans: templates, formats, chunks, paces, names and sentences, without Spark."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import InvalidRequest, NotFound, ShardmqError
from shardmq.spark.jobs.export_folder import new_id, prefix_of
from shardmq.spark.jobs.files import check_there, format_of
from shardmq.spark.jobs.outcome import plain
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
from shardmq.spark.jobs.summary import Summary
from shardmq.spark.jobs.templates import parse

FILES = st.lists(st.integers(0, 50), max_size=8).map(
    lambda rows: tuple(File(f"file:/{number}", 10, count) for number, count in enumerate(rows))
)


@pytest.mark.parametrize(
    ("template", "pieces"),
    [
        ("", []),
        ("fixed", ["fixed"]),
        ("{carrier}.{origin}", [("carrier",), ".", ("origin",)]),
        ("a {{brace}} and { spaced }", ["a {brace} and ", ("spaced",)]),
        ("{address.city}", [("address.city",)]),
    ],
)
def test_braces_hold_columns_and_doubled_ones_are_braces(template: str, pieces: list[object]) -> None:
    assert parse(template) == pieces


@pytest.mark.parametrize("template", ["{", "}", "{}", "a{b", "{a}}", "{{a}"])
def test_a_brace_alone_is_refused(template: str) -> None:
    with pytest.raises(InvalidRequest, match="a brace is doubled"):
        parse(template)


@pytest.mark.parametrize(
    ("paths", "ending"),
    [
        (["a.csv"], ".csv"),
        (["s3a://bucket/a.CSV.gz", "b.csv"], ".csv"),
        (["dir/part-*.parquet"], ".parquet"),
        (["a.jsonl.zst"], ".jsonl"),
        (["x.b.ndjson", "y.json"], ".ndjson"),
    ],
)
def test_names_tell_formats(paths: list[str], ending: str) -> None:
    assert format_of(paths) == ending


def test_folders_are_what_is_in_them(tmp_path: Path) -> None:
    inner = tmp_path / "out" / "date=2026-11-20"
    inner.mkdir(parents=True)
    (tmp_path / "out" / "_SUCCESS").touch()
    (inner / "part-0.snappy.parquet").touch()
    assert format_of([str(tmp_path / "out")]) == ".parquet"


@pytest.mark.parametrize(("paths", "said"), [(["a"], "give a format"), (["a.csv", "b.json"], "csv and json together")])
def test_what_names_do_not_tell_is_refused(paths: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        format_of(paths)


def test_only_plain_local_paths_are_looked_for(tmp_path: Path) -> None:
    check_there([str(tmp_path), f"{tmp_path}/*.csv", "hdfs://host/no/such", "file:/no/such"])
    with pytest.raises(InvalidRequest, match="no-such"):
        check_there([str(tmp_path / "no-such")])


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


def test_exports_of_a_queue_are_told_from_others() -> None:
    assert new_id("a").startswith(prefix_of("a"))
    assert prefix_of("a") != prefix_of("b")
    assert new_id("a") != new_id("a")


def test_errors_of_tasks_and_of_the_driver_are_what_they_were() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to commit or abort Python data source write: Traceback (most recent call "
        'last):\n  File "x.py", line 20, in commit\n    raise\nshardmq.errors.NotFound: NOT_FOUND - no exchange '
        "'x'\n in vhost '/'\n SQLSTATE: 38000"
    )
    fault = plain("publishing", text, "PYTHON_DATA_SOURCE_ERROR")
    assert type(fault) is NotFound
    assert fault.text == "publishing: no exchange 'x' in vhost '/'"


def test_what_names_the_job_already_is_not_named_twice() -> None:
    text = "Traceback\nshardmq.errors.Unroutable: NO_ROUTE - publishing to exchange 'x' failed: no queue takes it"
    assert plain("publishing to exchange 'x'", text, "").text == "publishing to exchange 'x' failed: no queue takes it"


@pytest.mark.parametrize(
    ("text", "condition", "kind", "said"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nope. SQLSTATE: 42K03",
            "PATH_NOT_FOUND",
            InvalidRequest,
            "reading: Path does not exist: file:/nope.",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File\n"
            "OSError: full",
            "PYTHON_EXCEPTION",
            ShardmqError,
            "reading: OSError: full",
        ),
        (
            "An error occurred while calling o83.mkdirs.\n: java.io.IOException: Mkdirs failed to create file:/x\n"
            "\tat y",
            "",
            ShardmqError,
            "reading: Spark says: Mkdirs failed to create file:/x",
        ),
        ("Job aborted.\n\tat org.apache.spark.X", "", ShardmqError, "reading: Spark says: Job aborted."),
    ],
)
def test_other_errors_are_one_sentence(text: str, condition: str, kind: type[ShardmqError], said: str) -> None:
    fault = plain("reading", text, condition)
    assert (type(fault), fault.text) == (kind, said)


def test_a_summary_has_a_rate() -> None:
    assert Summary(job="publish", rows=10, seconds=4.0).as_table()["rows_per_s"] == 2.5
    assert Summary(job="publish").rows_per_s == 0.0
