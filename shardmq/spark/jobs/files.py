"""Files as DataFrames, and what is known of them without reading their rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs.replay_plan import File

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CSV: Final = {"header": "true", "escape": '"'}
"""A quote within quotes is doubled, as RFC 4180 has it and all that writes CSV, but for Spark."""

FORMATS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    ".csv": ("csv", _CSV),
    ".tsv": ("csv", {**_CSV, "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
    ".parquet": ("parquet", {}),
    ".pq": ("parquet", {}),
}
"""By the end of a name: Spark's format, and its options unless told otherwise. CSV has a line of names, JSON a line for
each row."""

CORRUPT: Final = "_corrupt_record"
"""A column that Spark adds where it finds lines that are no JSON: published, they would be messages about that."""

COMPRESSIONS: Final = frozenset({".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz"})
_GLOB: Final = frozenset("*?[{")


def is_local(path: str) -> bool:
    """Whether it names a file of this machine, and nothing has to be found by a pattern."""
    return "://" not in path and not path.startswith("file:") and not _GLOB & set(path)


def check_there(paths: Sequence[str]) -> None:
    """Make sure that local paths are there: sooner said than by Spark.

    Raises:
        InvalidRequest: one is not.
    """
    missing = [path for path in paths if is_local(path) and not Path(path).exists()]
    if missing:
        raise InvalidRequest(f"there is no file or folder {', '.join(missing)}")


def format_of(paths: Sequence[str]) -> str:
    """The end of their names that tells what they are, a key of FORMATS.

    Raises:
        InvalidRequest: it tells nothing, or they are not all of one kind.
    """
    found = {path: _ending(path) for path in paths}
    for path, ending in found.items():
        if ending not in FORMATS:
            known = ", ".join(FORMATS)
            raise InvalidRequest(f"'{path}' does not tell what it is by its name ({known}); give a format")
    kinds = {FORMATS[ending][0] for ending in found.values()}
    if len(kinds) > 1:
        raise InvalidRequest(f"files of {' and '.join(sorted(kinds))} together; publish one kind after the other")
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
    """The rows of files.

    Args:
        spark: the session.
        paths: files, folders or patterns, as Spark takes them.
        format: "csv", "json" or "parquet"; by their names when None.
        options: more of Spark's for reading that format.

    Raises:
        InvalidRequest: there are none, nobody can tell what they are, or lines of them are not what they should be.
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
            f"not every line of {', '.join(paths)} is a JSON object, which is a row: correct these, or give the read "
            "option mode=DROPMALFORMED, which leaves them out, or multiLine=true where a file is one object or array"
        )
    return rows


def described(rows: "DataFrame") -> list[File]:
    """The Parquet files behind a DataFrame, with their rows, by their paths."""
    from pyspark.sql import functions as F

    counts = rows.groupBy(F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("size"))
    return sorted(File(row["path"], row["size"], row["count"]) for row in counts.count().collect())
