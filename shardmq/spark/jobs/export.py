"""A queue to Parquet, in folders by date: a copy of its messages, or the messages themselves."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shardmq.errors import ConnectionFault, InvalidRequest, NotFound, RequestError
from shardmq.spark.jobs import export_folder as landing
from shardmq.spark.jobs import preconditions
from shardmq.spark.jobs.export_folder import Folder
from shardmq.spark.jobs.options import By, ExportOptions, Say, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.transaction import FORMAT, asking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@takes_keywords(ExportOptions)
def export(spark: "SparkSession", queue: str, options: ExportOptions) -> Summary:
    """Write a queue's messages to Parquet, in folders date=YYYY-MM-DD, by when the broker took them (UTC).

    Without `drain` the queue stays as it is. With it the messages are reserved, written, moved to their folders and
    then acknowledged. The next export of that queue to that folder finishes one that broke off, and no message is
    written twice; so run one at a time. Of an empty queue there is one Parquet file without rows, so that the folder
    can be read and replayed.

    Args:
        spark: the session.
        queue: the queue's name.
        options: see Keywords.

    Raises:
        NotFound: the queue does not exist.
        InvalidRequest: the folder exists, and neither `append` nor `drain` is set.
        ShardmqError: the export failed. Reserved messages are back in the queue, unless the next export puts them back
            or finishes it; a note says so.
    """
    started_at = time.monotonic()
    url, to = options.url, options.to
    if options.by not in ("date", "hour"):
        raise InvalidRequest(f"'{options.by}' is no way to lay out files; give by='date' or by='hour'")
    preconditions.ready(url, queue)
    given = _read_options(spark, queue, options)
    name, notes = "", []
    with plain_faults(f"exporting queue '{queue}' to {to}"):
        target = Folder(spark, to)
        if options.drain:
            drain = _Drain(spark, target, queue, options, given)
            name, rows, size = drain.run()
            notes = drain.notes
        else:
            if not options.append and target.exists():
                raise InvalidRequest(f"folder '{to}' exists; name another one, or append to it")
            rows, size = write(spark.read.format(FORMAT).options(**given).load(), to, options.by)
        if not rows:
            write_empty(spark, target, options.by)
    return Summary(
        job="export",
        rows=rows,
        messages=rows if options.drain else 0,
        bytes=size,
        seconds=time.monotonic() - started_at,
        transaction=name,
        queues={queue: preconditions.ready(url, queue)},
        notes=tuple(notes),
    )


def _read_options(spark: "SparkSession", queue: str, options: ExportOptions) -> dict[str, str]:
    """The data source's options for reading the queue."""
    slices = options.partitions or spark.sparkContext.defaultParallelism
    given = {"url": options.url, "queue": queue, "maxRecords": str(options.max_records), "minPartitions": str(slices)}
    return given | ({"drainTimeoutMs": str(options.lease_ms)} if options.drain else {})


def write(messages: "DataFrame", to: str, by: By) -> tuple[int, int]:
    """Write messages in folders by date, beside what is in them.

    Args:
        messages: as the data source reads them.
        to: the folder.
        by: "date" or "hour".

    Returns:
        How many messages there were, and the bytes of their bodies.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counts = Observation()
    counted = dated(messages, by).observe(
        counts, F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(F.octet_length("body")), F.lit(0)).alias("bytes")
    )
    counted.write.partitionBy(*(["date"] if by == "date" else ["date", "hour"])).mode("append").parquet(to)
    return int(counts.get["rows"]), int(counts.get["bytes"])


def dated(messages: "DataFrame", by: By) -> "DataFrame":
    """Messages with the columns that their folders are named by: date, and hour where they are by hour."""
    from pyspark.sql import functions as F

    took = F.to_utc_timestamp("timestamp", F.current_timezone())
    with_date = messages.withColumn("date", F.to_date(took))
    return with_date.withColumn("hour", F.hour(took)) if by == "hour" else with_date


def write_empty(spark: "SparkSession", target: Folder, by: By) -> None:
    """Write a file with columns and no rows where the folder has no file yet: without one, nobody can read it."""
    from shardmq.spark.read.columns import READ_SCHEMA

    if any(not name.startswith(("_", ".")) for name in target.names()):
        return
    now = datetime.now(UTC)
    folder = target.at(f"date={now:%Y-%m-%d}")
    if by == "hour":
        folder = folder.at(f"hour={now.hour}")
    spark.createDataFrame([], READ_SCHEMA).write.parquet(folder.path)


class _Drain:
    """An export that takes the messages out of their queue.

    Attributes:
        notes: what was found of exports that broke off, a sentence each.
    """

    def __init__(
        self, spark: "SparkSession", target: Folder, queue: str, options: ExportOptions, given: dict[str, str]
    ) -> None:
        self._spark = spark
        self._target = target
        self._queue = queue
        self._url = options.url
        self._by = options.by
        self._lease_ms = options.lease_ms
        self._given = given
        self._say: Say = options.say
        self.notes: list[str] = []

    def run(self) -> tuple[str, int, int]:
        """Finish exports that broke off, then export: the reservation's name, rows, bytes."""
        for name in landing.unfinished(self._target, self._queue):
            if self._target.at(landing.FOLDER).at(name).at(landing.COMPLETE).exists():
                self._note(f"export '{name}' had broken off after it was written; finishing it")
                self._land(name)
            else:
                self._note(f"export '{name}' had broken off before it was written; its messages are put back")
                with asking(self._url) as broker:
                    broker.end_reservation(self._queue, name, False)
                landing.clear(self._target, name)
        name = landing.new_id(self._queue)
        folder = self._target.at(landing.FOLDER).at(name)
        folder.make()  # before anything is reserved: it alone tells the next export of the reservation
        messages = self._spark.read.format(FORMAT).options(**self._given, drain="true", drainId=name).load()
        try:
            rows, size = write(messages, folder.path, self._by)
        except BaseException as fault:
            self._take_back(name, folder, fault)
            raise
        self._land(name)
        return name, rows, size

    def _take_back(self, name: str, folder: Folder, fault: BaseException) -> None:
        """Put the messages of an export that failed back, and remove its folder.

        Where they cannot be put back, the folder stays, for the next export to do it, and the fault gets a note.
        """
        try:
            folder.at(landing.COMPLETE).remove()  # they may be back although nobody hears it: nothing is to be landed
        finally:
            is_back = self._put_back(name, fault)
        if is_back:
            landing.clear(self._target, name)

    def _put_back(self, name: str, fault: BaseException) -> bool:
        try:
            with asking(self._url) as broker:
                broker.end_reservation(self._queue, name, False)
        except (ConnectionFault, RequestError) as gone:
            fault.add_note(
                f"messages of queue '{self._queue}' are still reserved as '{name}' and could not be put back "
                f"({gone.text}): drain the queue to {self._target.path} again, which puts them back first; else they "
                f"return when their lease of {self._lease_ms / 3_600_000:g} h is over"
            )
            return False
        return True

    def _land(self, name: str) -> None:
        """Move the written files to their place, acknowledge the messages, and remove the export's folder."""
        self._target.at(landing.FOLDER).at(name).move_into(self._target)
        with asking(self._url) as broker:
            try:
                broker.end_reservation(self._queue, name, True)
            except NotFound:
                self._note(
                    f"messages of export '{name}' returned to queue '{self._queue}' before they could be "
                    "acknowledged, as their lease was over: they are exported again"
                )
        landing.clear(self._target, name)

    def _note(self, sentence: str) -> None:
        self.notes.append(sentence)
        self._say(sentence)
