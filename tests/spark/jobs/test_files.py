"""Formats by the names of files, and which paths are looked for."""

from pathlib import Path

import pytest

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs.files import check_there, format_of


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


@pytest.mark.parametrize(
    ("paths", "said"), [(["a"], "give a format"), (["a.csv", "b.json"], "csv and json files together")]
)
def test_what_names_do_not_tell_is_refused(paths: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        format_of(paths)


def test_only_plain_local_paths_are_looked_for(tmp_path: Path) -> None:
    check_there([str(tmp_path), f"{tmp_path}/*.csv", "hdfs://host/no/such", "file:/no/such"])
    with pytest.raises(InvalidRequest, match="no-such"):
        check_there([str(tmp_path / "no-such")])
