"""Rows that Spark publishes exactly once, and reads from a topic, as gateways and shards grow."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.bench.compare.spark_sinks import ShardmqSink, frame
from shardmq.cmd.bench.compare.spark_sources import BatchSource, Topic
from shardmq.cmd.bench.scaling.processes import Processes, started_in
from shardmq.cmd.bench.scaling.rows import LAYOUTS, Point, Scaled, empty_scaled, point, scaled
from shardmq.cmd.bench.scaling.usage import between, used_by
from shardmq.cmd.terminal.output import Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local-cluster[2,1,900]"
"""Two executors, each a Java process with one core and a Python worker."""

PUBLISH: Final = "publish"
READ: Final = "read"

EMPTY: Final = empty_scaled(PUBLISH, READ)

QUEUES: Final = 4
PARTITIONS: Final = 8
SIZE: Final = 100
WARM_ROWS: Final = 200_000


def measure(disk: Path, rows: int, turns: int, say: Say) -> list[Scaled]:
    """Measure all layouts with one Spark.

    Args:
        disk: folder on the disk that brokers write to.
        rows: of each measurement.
        turns: of each.
        say: is told how it goes.
    """
    from shardmq.cmd.spark.session import session

    found: list[Scaled] = []
    paths = list(sys.path)
    with session("shardmq bench scaling", MASTER, {"spark.executor.memory": "900m"}) as started, _no_leftovers(started):
        sys.path[:] = paths  # Spark has put executors' zip before them, which has no brokers to start
        for place, layout in enumerate(LAYOUTS):
            with started_in(disk, *layout) as processes:
                for name, load in _loads(started, processes, rows, is_cold=not place).items():
                    found.append(scaled(name, layout, [load() for _ in range(turns)]))
                    told = f"{layout[0]} gateways, {layout[1]} shards, {name}"
                    say(f"{told}: {found[-1].rate:,.0f} rows/s, cores {found[-1].cores}")
    return sorted(found, key=lambda row: (row.load, row.gateways, row.shards))


@contextlib.contextmanager
def _no_leftovers(session: "SparkSession") -> Iterator[None]:
    """Remove the folder that executors of a local cluster leave behind where Spark is installed."""
    import pyspark

    work = Path(pyspark.__file__).parent / "work"
    own = work / session.sparkContext.applicationId
    try:
        yield
    finally:
        shutil.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):  # another one's is there
            work.rmdir()


def _loads(session: "SparkSession", processes: Processes, rows: int, is_cold: bool) -> dict[str, Callable[[], Point]]:
    """What is measured on a broker, each warm: Python workers have its connections, and Java has compiled the job."""
    sink = ShardmqSink(processes.url, QUEUES, "exactly-once")
    topic = Topic(processes.url, rows, SIZE, PARTITIONS)
    source = BatchSource(topic)
    for _ in range(3 if is_cold else 1):
        sink.publish(frame(session, WARM_ROWS, SIZE, sink.queues, PARTITIONS))
        source.read(session)

    def measured(work: Callable[[], Any]) -> Point:
        before, began = used_by(processes.pids), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return point(rows, seconds, between(before, used_by(processes.pids)))

    def publish() -> Point:
        made = frame(session, rows, SIZE, sink.queues, PARTITIONS)
        before = used_by(processes.pids)
        seconds = sink.publish(made)
        return point(rows, seconds, between(before, used_by(processes.pids)))

    return {PUBLISH: publish, READ: lambda: measured(lambda: source.read(session))}
