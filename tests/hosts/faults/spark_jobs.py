"""A client that is Spark: jobs by the gateways of all hosts, each row of which is published exactly once.

`python -m tests.hosts.faults.spark_jobs URL QUEUE GATEWAYS` is its program. It publishes one job after the other until
SIGTERM, asks again under the same name where one fails, and says which are committed.
"""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import shardmq
from shardmq.spark.connection.gateways import SPREAD
from tests.faults.saboteur import until
from tests.hosts.broker import HostsBroker
from tests.hosts.faults.load import SETTLE_SECONDS, drained, messages
from tests.hosts.hosts import CLIENT, Hosts
from tests.spark.archive import QUICK_JAVA, java_options

QUEUE: Final = "rows"
ROWS, PARTITIONS = 90, 3
"""Of one job; there are as many partitions as gateways."""

START_SECONDS: Final = 240.0
"""For Spark to start: two of them took 120 s where eight workers of the tests share two slow cores with others."""

AGAIN_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 0.5
"""Between two jobs: Spark would take all of the machine."""

DAEMON: Final = Path(__file__).parents[2] / "spark" / "daemon"


class SparkJobs:
    """A Spark session on a host, the client's where nobody says.

    Args:
        hosts: with that host.
        broker: on them.
        host: where it runs: its tasks as well.
        gateways: which ones its tasks take.
    """

    name = "spark"

    def __init__(self, hosts: Hosts, broker: HostsBroker, host: str = CLIENT, gateways: str = SPREAD) -> None:
        self._url = broker.url
        self._queue = f"{QUEUE}-{host}"
        with shardmq.connect(broker.url, timeout=30) as connection, connection.channel() as channel:
            channel.queue_declare(self._queue, durable=True)
        variables = {
            "PYTHONPATH": os.pathsep.join((str(DAEMON), os.environ.get("PYTHONPATH", ""))).rstrip(os.pathsep),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": java_options(),
            "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
            "OPENBLAS_NUM_THREADS": "1",
        }
        program = [sys.executable, "-m", "tests.hosts.faults.spark_jobs", broker.url, self._queue, gateways]
        settings = [f"{name}={value}" for name, value in variables.items()]
        self._process = hosts[host].spawn(["env", *settings, *program], broker.folder / f"spark-{host}.log")

    def begin(self) -> None:
        """Wait until it has committed its first job."""
        until(lambda: self._process.has_ended or self.steps(), "Spark commits its first job", START_SECONDS)

    def steps(self) -> int:
        return len(self._said("committed"))

    def due(self) -> Callable[[], bool]:
        return lambda: True

    def wrongs(self) -> list[str]:
        return [f"spark ended: {self._process.last_words()}"] if self._process.has_ended else []

    def finish(self) -> tuple[str, list[str]]:
        if found := self.wrongs():
            return "", found
        self._process.signal(signal.SIGTERM)
        with suppress(AssertionError):
            until(lambda: self._process.has_ended, "Spark ends", 2 * SETTLE_SECONDS)
        if not self._process.has_ended or not self._said("done"):
            return "", [f"spark does not end its last job: {self._process.last_words()}"]
        jobs = self.steps()
        expected = Counter(f"{number}" for number in range(jobs * ROWS))
        with shardmq.connect(self._url, timeout=60) as connection, connection.channel() as channel:
            with suppress(AssertionError):  # what is missing is told
                until(lambda: messages(channel, self._queue) >= len(expected), "all rows are there", SETTLE_SECONDS)
            bodies = drained(channel, self._queue)
        found = [f"spark: row {each} of a committed job is lost" for each in [*(expected - bodies)][:5]]
        found += [f"spark: row {each} is there twice, or of no job" for each in [*(bodies - expected)][:5]]
        return f"{jobs} jobs of {ROWS} rows committed, {len(self._said('again'))} asked for again", found

    def _said(self, word: str) -> list[str]:
        lines = self._process.output.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(word)]


def publish(url: str, queue: str, gateways: str) -> None:
    """Publish jobs until SIGTERM."""
    from pyspark.errors import PySparkException

    from tests.spark.session import local_session

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    spark = local_session()
    number = 0
    while not stopping:
        rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, PARTITIONS)
        frame = rows.selectExpr("cast(id as string) as value", f"'{queue}' as routing_key")
        writer = frame.write.format("shardmq").options(url=url, exchange="", gateways=gateways)
        try:
            writer.option("txnId", f"{queue}-{number}").mode("append").save()
        except PySparkException as fault:
            print("again", number, " | ".join(str(fault).splitlines())[-1500:], flush=True)
            time.sleep(AGAIN_SECONDS)
            continue
        print("committed", number, flush=True)
        number += 1
        time.sleep(PAUSE_SECONDS)
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    publish(*sys.argv[1:])
