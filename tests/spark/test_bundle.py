"""The zip for executors: complete, plain Python, the same each time, and enough where nothing else of ours is."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.spark import bundle
from shardmq.spark.bundle import make_zip

BARE = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.modules["msgspec"] = sys.modules["zmq"] = sys.modules["lmdb"] = sys.modules["msgpack._cmsgpack"] = None
import msgpack, shardmq
assert msgpack.__file__.startswith(sys.argv[1]), msgpack.__file__
assert shardmq.__file__.startswith(sys.argv[1]), shardmq.__file__
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_zip(tmp_path_factory.mktemp("bundle") / "shardmq.zip")


def run(archive: Path, code: str, *arguments: str) -> None:
    # -S would hide pyspark and pyarrow; so the zip stands in front, and what must not be used is blocked.
    ran = subprocess.run(
        [sys.executable, "-P", "-c", BARE + code, str(archive), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_it_has_sources_alone_and_not_the_pipeline(archive: Path) -> None:
    with zipfile.ZipFile(archive) as bundled:
        names = bundled.namelist()
    assert [name for name in names if not name.endswith(".py")] == []
    assert [name for name in names if "pipeline" in name] == []
    assert {f"shardmq/{name}" for name in bundle.MODULES} <= set(names)
    assert {"shardmq/spark/write/writer.py", "pyspark_shardmq/__init__.py", "msgpack/fallback.py"} <= set(names)


def test_it_is_the_same_each_time(archive: Path, tmp_path: Path) -> None:
    assert make_zip(tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_everything_in_it_is_imported_from_it(archive: Path) -> None:
    with zipfile.ZipFile(archive) as bundled:
        names = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in bundled.namelist()]
    run(
        archive,
        f"""
import importlib
for name in {names!r}:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), name
assert importlib.import_module("pyspark_shardmq").DefaultSource.name() == "shardmq"
""",
    )


def test_a_partition_is_staged_and_committed_with_nothing_else(archive: Path, broker: Broker) -> None:
    run(
        archive,
        """
import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType
from shardmq.spark.options import parse
from shardmq.spark.write.writer import BatchWriter
options = parse({"url": sys.argv[2], "routing_key": "amq.fanout", "exchange": "amq.fanout", "mandatory": "false"},
                "write")
writer = BatchWriter(options, StructType([StructField("value", StringType())]))
staged = writer.write(iter([pa.record_batch({"value": ["a", "b"]})]))
assert staged.rows == 2
writer.commit([staged])
""",
        broker.url,
    )
