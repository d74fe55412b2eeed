"""Files as DataFrames, and what their names and footers tell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs.replay_plan import File

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CSV: Final = {"header": "true", "escape": '"'}
"""A quote within quotes is doubled (RFC 4180); Spark's own default is a backslash."""

FORMATS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    ".csv": ("csv", _CSV),
    ".tsv": ("csv", {**_CSV, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
    ".parquet": ("parquet", {}),
    ".pq": ("parquet", {}),
}
"""Spark's format and its usual options, by the end of a file's name. CSV has a line of names; JSON one object a
line."""

CORRUPT: Final = "_corrupt_record"
"""The column that Spark adds where lines are no JSON. Its rows must not become messages."""

COMPRESSIONS: Final = frozenset({".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz"})
_GLOB: Final = frozenset("*?[{")


def is_local(path: str) -> bool:
    """Whether a path names a local file or folder, and is no pattern."""
    return "://" not in path and not path.startswith("file:") and not _GLOB & set(path)


def check_there(paths: Sequence[str]) -> None:
    """Check that local paths exist, before Spark starts.

    Raises:
        InvalidRequest: one does not exist.
    """
    missing = [path for path in paths if is_local(path) and not Path(path).exists()]
    if missing:
        raise InvalidRequest(f"there is no file or folder {', '.join(missing)}")


def format_of(paths: Sequence[str]) -> str:
    """The format of files by the end of their names, a key of FORMATS.

    Raises:
        InvalidRequest: an end is unknown, or the files are of several formats.
    """
    found = {path: _ending(path) for path in paths}
    for path, ending in found.items():
        if ending not in FORMATS:
            known = ", ".join(FORMATS)
            raise InvalidRequest(f"the name '{path}' ends in no known format ({known}); give a format")
    kinds = {FORMATS[ending][0] for ending in found.values()}
    if len(kinds) > 1:
        raise InvalidRequest(
            f"these are {' and '.join(sorted(kinds))} files together; publish one format after the other"
        )
    return next(iter(found.values()))


def _ending(path: str) -> str:
    local = Path(path)
    if is_local(path) and local.is_dir():
        inner = sorted(file for file in local.rglob("*") if file.is_file() and not file.name.startswith(("_", ".")))
        return _ending(str(inner[0])) if inner else ""
    endings = [ending.lower() for ending in Path(path.rstrip("/")).suffixes]
    while endings and endings[-1] in COMPRESSIONS:
        endings.pop()
    return endings[-1] if endings else ""


def read(
    spark: "SparkSession", paths: Sequence[str], format: str | None = None, options: Mapping[str, str] | None = None
) -> "DataFrame":
    """Read the rows of files.

    Args:
        spark: the session.
        paths: files, folders or patterns, as Spark takes them.
        format: "csv", "tsv", "json" or "parquet"; None to tell by the files' names.
        options: Spark's options for reading that format.

    Raises:
        InvalidRequest: there are no files, their format is unknown, or not every line is a JSON object.
    """
    if not paths:
        raise InvalidRequest("there are no files to read")
    ending = f".{format.lower()}" if format else format_of(paths)
    if ending not in FORMATS:
        raise InvalidRequest(f"there is no format '{format}'; there are csv, tsv, json and parquet")
    kind, usual = FORMATS[ending]
    rows = spark.read.format(kind).options(**{**usual, **(options or {})}).load(list(paths))
    if CORRUPT in rows.columns:
        raise InvalidRequest(
            f"not every line of {', '.join(paths)} is a JSON object: correct the files, or give the read option "
            "mode=DROPMALFORMED to leave such lines out, or multiLine=true where a file is one object or array"
        )
    return rows


def described(rows: "DataFrame") -> list[File]:
    """The Parquet files behind a DataFrame with their sizes and rows, sorted by path."""
    from pyspark.sql import functions as F

    counts = rows.groupBy(F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("size"))
    return sorted(File(row["path"], row["size"], row["count"]) for row in counts.count().collect())
