"""A queue to Parquet, in folders by date: a look at it, or all of it taken out."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from shardmq.errors import InvalidRequest, NotFound
from shardmq.spark.jobs import export_folder as landing
from shardmq.spark.jobs import preconditions as targets
from shardmq.spark.jobs.export_folder import Folder
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.jobs.summary import Summary
from shardmq.spark.jobs.transaction import FORMAT, asking, put_back

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

By = Literal["date", "hour"]

LEASE_MS: Final = 24 * 3600 * 1000
"""How long messages are set aside for a job that takes them: longer than jobs take, for what it writes must be
acknowledged before they are back."""


def export(
    spark: "SparkSession",
    queue: str,
    to: str,
    *,
    url: str,
    drain: bool = False,
    by: By = "date",
    append: bool = False,
    max_records: int = 0,
    partitions: int = 0,
    lease_ms: int = LEASE_MS,
    say: Callable[[str], None] = print,
) -> Summary:
    """Write a queue's messages to Parquet, in folders date=YYYY-MM-DD, by when the broker took them (UTC).

    Without `drain` the queue stays as it is. With it the messages are set aside, written, moved to their folders and
    then acknowledged; an export that broke off anywhere is finished by the next one of that queue to that folder, and
    no message is written twice. One at a time, then.

    Args:
        spark: the session.
        queue: its name.
        to: the folder, as Spark takes it.
        url: the broker's.
        drain: acknowledge what was written.
        by: "hour" for folders hour=H below those of dates.
        append: to what is in the folder, without `drain`; with it, that is always so.
        max_records: only the first so many messages; 0 is all of them.
        partitions: files at once, about; 0 is Spark's parallelism.
        lease_ms: with `drain`, after so long the messages are back in their queue.
        say: is told what goes on, a sentence at a time.

    Raises:
        NotFound: there is no such queue.
        InvalidRequest: the folder is there already.
        ShardmqError: it failed; what was set aside is back in the queue, unless another export finishes it.
    """
    started_at = time.monotonic()
    if by not in ("date", "hour"):
        raise InvalidRequest(f"by '{by}' is no way to lay files out; by date or by hour")
    targets.ready(url, queue)
    slices = partitions or spark.sparkContext.defaultParallelism
    options = {"url": url, "queue": queue, "maxRecords": str(max_records), "minPartitions": str(slices)}
    with plain_faults(f"exporting queue '{queue}' to {to}"):
        target = Folder(spark, to)
        if drain:
            job = _Drain(spark, target, queue, url, by, {**options, "drainTimeoutMs": str(lease_ms)}, say)
            name, rows, size, notes = job.run()
        else:
            if not append and target.exists():
                raise InvalidRequest(f"'{to}' is there already; name another folder, or append to it")
            rows, size = write(spark.read.format(FORMAT).options(**options).load(), to, by, "append")
            name, notes = "", []
    return Summary(
        job="export",
        rows=rows,
        messages=rows if drain else 0,
        bytes=size,
        seconds=time.monotonic() - started_at,
        transaction=name,
        queues={queue: targets.ready(url, queue)},
        notes=tuple(notes),
    )


def write(messages: "DataFrame", to: str, by: By, mode: str) -> tuple[int, int]:
    """Write messages in folders by date; returns how many it were, and the bytes of their bodies."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    took = F.to_utc_timestamp("timestamp", F.current_timezone())
    dated = messages.withColumn("date", F.to_date(took))
    if by == "hour":
        dated = dated.withColumn("hour", F.hour(took))
    counts = Observation()
    counted = dated.observe(
        counts, F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(F.octet_length("body")), F.lit(0)).alias("bytes")
    )
    counted.write.partitionBy(*(["date"] if by == "date" else ["date", "hour"])).mode(mode).parquet(to)
    return int(counts.get["rows"]), int(counts.get["bytes"])


class _Drain:
    """An export that takes the messages out."""

    def __init__(
        self,
        spark: "SparkSession",
        target: Folder,
        queue: str,
        url: str,
        by: By,
        options: dict[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._target = target
        self._queue = queue
        self._url = url
        self._by = by
        self._options = options
        self._say = say
        self._notes: list[str] = []

    def run(self) -> tuple[str, int, int, list[str]]:
        """Finish what broke off, then do what is to do: (reservation, rows, bytes, notes)."""
        for name in landing.unfinished(self._target, self._queue):
            if self._target.at(landing.FOLDER).at(name).at(landing.COMPLETE).exists():
                self._note(f"export '{name}' had broken off after it was written; finishing it")
                self._land(name)
            else:
                self._note(f"export '{name}' had broken off before it was written; what it had set aside is put back")
                with asking(self._url) as broker:
                    broker.end_reservation(self._queue, name, False)
                landing.clear(self._target, name)
        name = landing.new_id(self._queue)
        folder = self._target.at(landing.FOLDER).at(name)
        messages = self._spark.read.format(FORMAT).options(**self._options, drain="true", drainId=name).load()
        try:
            rows, size = write(messages, folder.path, self._by, "overwrite")
        except BaseException as fault:
            put_back(self._url, self._queue, name, fault)
            landing.clear(self._target, name)
            raise
        self._land(name)
        return name, rows, size, self._notes

    def _land(self, name: str) -> None:
        """Move what is written to its place, acknowledge it, and leave nothing behind."""
        self._target.at(landing.FOLDER).at(name).move_into(self._target)
        with asking(self._url) as broker:
            try:
                broker.end_reservation(self._queue, name, True)
            except NotFound:
                self._note(
                    f"messages of export '{name}' were back in queue '{self._queue}' before they could be "
                    "acknowledged, its time was over: they are exported again"
                )
        landing.clear(self._target, name)

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)
        self._say(sentence)
