"""A queue to Parquet, in folders by date: a copy of its messages, or the messages themselves."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shardmq.errors import (
    ConnectionFault,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    RequestError,
    ShardmqError,
)
from shardmq.spark.connection.reservations import RunningMark, reserved, runs
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

    Without `drain` the queue stays as it is. With it the messages are reserved, written, counted, moved to their
    folders and then acknowledged. The next export of that queue to that folder finishes one that broke off, and no
    message is written twice. One whose driver runs is left alone; to know that of a driver that was killed may take a
    minute. Queues of the same name, of other virtual hosts and brokers, may be exported to that folder as well. Of an
    empty queue there is one Parquet file without rows, so that the folder can be read and replayed.

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
        notes: what was found of other exports, a sentence each.
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
        with asking(self._url) as broker:
            origin = landing.Origin(broker.broker, broker.vhost, self._queue)
        for name in landing.unfinished(self._target, origin):
            self._finish(name, landing.is_of(name, origin))
        name = landing.new_id(origin)
        folder = self._folder(name)
        with RunningMark(self._url, self._queue, name):  # before others can find the folder
            folder.make()  # before anything is reserved: it alone tells the next export of the reservation
            messages = self._spark.read.format(FORMAT).options(**self._given, drain="true", drainId=name).load()
            try:
                rows, size = write(messages, folder.path, self._by)
                self._check(name)
            except BaseException as fault:
                self._take_back(name, folder, fault)
                raise
            self._land(name)
        return name, rows, size

    def _folder(self, name: str) -> Folder:
        return self._target.at(landing.FOLDER).at(name)

    def _finish(self, name: str, is_ours: bool) -> None:
        """Finish an export that broke off, or put its messages back; leave one that runs, or may be of others, alone.

        Args:
            name: of the export.
            is_ours: whether it is known to be of this broker and virtual host.
        """
        folder = self._folder(name)
        with asking(self._url) as broker:
            looking = f"export '{name}' may run still: looking for a minute whether it does"
            if runs(broker, self._queue, name, lambda: self._say(looking)):
                self._note(f"export '{name}' of the queue to that folder runs: its messages are left to it")
                return
        if not folder.exists():
            return  # it has ended meanwhile
        with RunningMark(self._url, self._queue, name):
            left = self._left(name)
            if left is None:
                self._clear_or_leave(name, is_ours)
            elif folder.at(landing.COMPLETE).exists() and (not is_ours or self._is_whole(folder, left)):
                self._note(f"export '{name}' had broken off after it was written; finishing it")
                self._land(name)
            else:
                self._note(f"export '{name}' had broken off before it was written; its messages are put back")
                with asking(self._url) as broker:
                    broker.end_reservation(self._queue, name, False)
                landing.clear(self._target, name)

    def _clear_or_leave(self, name: str, is_ours: bool) -> None:
        """Clear the folder of an export whose reservation is over, where the messages were of this queue."""
        if not is_ours:
            self._note(
                f"export '{name}' in {self._target.at(landing.FOLDER).path} is left there: it is of a queue "
                f"'{self._queue}' of another virtual host or broker, or of this one, and then its messages have "
                "returned; remove its folder when there is no such other export"
            )
            return
        self._note(
            f"export '{name}' had broken off, and its reservation is over: what was not acknowledged has returned to "
            f"queue '{self._queue}', and is exported again"
        )
        landing.clear(self._target, name)

    def _is_whole(self, folder: Folder, left: int) -> bool:
        """Whether a folder has, or had before files were moved out of it, all messages that are reserved."""
        return folder.at(landing.COUNTED).exists() or folder.rows() >= left

    def _left(self, name: str) -> int | None:
        with asking(self._url) as broker:
            return reserved(broker, self._queue, name)

    def _check(self, name: str) -> None:
        """Check that as many messages were written as are reserved, which are acknowledged next.

        There may be more: transient ones that a shard has lost meanwhile, or some that somebody has acknowledged.

        Raises:
            PreconditionFailed: the messages returned to the queue meanwhile.
            ShardmqError: there are less.
        """
        folder, left = self._folder(name), self._left(name)
        if left is None:
            raise PreconditionFailed(
                f"the messages reserved as '{name}' returned to queue '{self._queue}' before all were written, as "
                "their lease was over or somebody released them; export again, with a longer lease_ms"
            )
        rows = folder.rows() if folder.exists() else 0
        if rows < left:
            raise ShardmqError(
                f"{left} messages are reserved as '{name}', and {rows} are in {folder.path}: files were removed there "
                "while the export ran. Nothing was taken from the queue; export again"
            )
        folder.note(landing.COUNTED)

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
        self._folder(name).move_into(self._target)
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
