"""Parquet, as `export` wrote it, back to exchanges: at a pace, and once, however often it is begun.

Rows go in chunks, each in a transaction of its own, "<id>/<number>", committed one after the other. A replay that broke
off goes on where it was: chunks that are committed are not read again. Whatever would cut the chunks otherwise, other
files or another rate, is refused under a name that has been used.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs import files
from shardmq.spark.jobs import preconditions as targets
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.jobs.replay_plan import Pace, ReplayPlan, chunk_rows, usual_id
from shardmq.spark.jobs.summary import Summary
from shardmq.spark.jobs.transaction import asking, claim, is_committed, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NEEDED: Final = ("body", "routing_key", "raw_properties")
TASK_ROWS: Final = 25_000
"""A task for so many rows of a chunk, one at least."""

Progress = Callable[[int, int], None]
"""Told how many rows of how many are done."""


def replay(
    spark: "SparkSession",
    paths: str | Sequence[str],
    *,
    url: str,
    exchange: str | None = None,
    keep_exchange: bool = False,
    rate: float | None = None,
    txn_id: str = "",
    mandatory: bool = True,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Summary:
    """Publish exported messages again, with their routing keys, ids and properties, headers of any type included.

    The order is that of the files' paths, and of their rows; within a chunk, for each routing key.

    Args:
        spark: the session.
        paths: Parquet files, folders or patterns.
        url: the broker's.
        exchange: where all of it goes; "" is the default exchange.
        keep_exchange: each message to the exchange it was published to.
        rate: rows a second at most; no limit when None. A chunk of some seconds' worth appears at once.
        txn_id: the replay's name. Made of the files' paths and sizes and of the target when "", so that the same replay
            has the same name. Names of committed chunks are remembered for seven days.
        mandatory: a message that no queue takes fails its chunk.
        say: is told what goes on, a sentence at a time.
        progress: is told how far it is.

    Raises:
        InvalidRequest: the target is missing or there are two, or these are no exported files.
        PreconditionFailed: under that name something else was replayed.
        ShardmqError: a chunk failed; the ones before it are published.
    """
    started_at = time.monotonic()
    if (exchange is None) != keep_exchange:
        raise InvalidRequest("a replay goes to one exchange, or keeps each message's own: say one of the two")
    if rate is not None and rate <= 0:
        raise InvalidRequest(f"a rate of {rate} rows a second never ends; give more, or none")
    paths = [paths] if isinstance(paths, str) else list(paths)
    target = f"exchange {exchange}" if exchange is not None else "their exchanges"
    targets.check_exchange(url, exchange)
    with plain_faults(f"reading {', '.join(paths)}"):
        rows = files.read(spark, paths, "parquet")
        check_exported(rows, keep_exchange)
        plan = ReplayPlan(tuple(files.described(rows)), chunk_rows(rate))
    txn_id = txn_id or usual_id(plan.files, target)
    say(f"replaying {plan.rows:,} rows of {len(plan.files):,} files as '{txn_id}', in chunks: {plan.chunks:,}")
    sender = _Sender(url, exchange, txn_id, mandatory, plan, Pace(rate), say, progress or (lambda _done, _all: None))
    with asking(url) as broker:
        claim(broker, txn_id, plan.digest(target), "files, target or rate")
        # They are committed one after the other: those that are there are the first.
        start = bisect_left(range(plan.chunks), True, key=lambda chunk: not is_committed(broker, f"{txn_id}/{chunk}"))
    sender.skip(start)
    for chunks in plan.blocks(start):
        sender.send_block(spark, rows, chunks)
    return Summary(
        job="replay",
        rows=sender.messages,
        messages=sender.messages,
        bytes=sender.bytes,
        seconds=time.monotonic() - started_at,
        transaction=txn_id,
        queues=targets.queues_behind(url, [exchange] if exchange else []),
        notes=(f"{start:,} of {plan.chunks:,} chunks were committed before",) if start else (),
    )


def check_exported(rows: "DataFrame", keep_exchange: bool) -> None:
    """Make sure that files are as `export` writes them.

    Raises:
        InvalidRequest: a column is missing.
    """
    needed = (*NEEDED, "exchange") if keep_exchange else NEEDED
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        raise InvalidRequest(
            f"these files have no column {', '.join(missing)}: they are not what export writes; publish takes any files"
        )


class _Sender:
    """Sends the chunks of a replay, block by block."""

    def __init__(
        self,
        url: str,
        exchange: str | None,
        txn_id: str,
        mandatory: bool,
        plan: ReplayPlan,
        pace: Pace,
        say: Callable[[str], None],
        progress: Progress,
    ) -> None:
        self._url = url
        self._exchange = exchange
        self._txn_id = txn_id
        self._mandatory = mandatory
        self._plan = plan
        self._pace = pace
        self._say = say
        self._progress = progress
        self._done = 0
        self.messages = 0
        self.bytes = 0

    def skip(self, chunks: int) -> None:
        """Leave out the first so many."""
        if chunks:
            self._say(f"the first {chunks:,} of {self._plan.chunks:,} chunks were committed before")
            self._done = min(chunks * self._plan.chunk_rows, self._plan.rows)
        self._progress(self._done, self._plan.rows)

    def send_block(self, spark: "SparkSession", rows: "DataFrame", chunks: range) -> None:
        """Send consecutive chunks."""
        block = block_of(spark, rows, self._plan, chunks, self._exchange is None)
        if len(chunks) > 1:
            block = block.persist()
        try:
            for chunk in chunks:
                self._send(block, chunk)
        finally:
            block.unpersist()

    def _send(self, block: "DataFrame", chunk: int) -> None:
        from pyspark.sql import functions as F

        count = self._plan.rows_of(chunk)
        part = block.where(F.col("chunk") == chunk).drop("chunk").coalesce(max(1, -(-count // TASK_ROWS)))
        self._pace.wait(count)
        sent = send(
            part,
            url=self._url,
            doing=f"replaying chunk {chunk:,} of '{self._txn_id}'",
            exchange=self._exchange,
            txn_id=f"{self._txn_id}/{chunk}",
            mandatory=self._mandatory,
        )
        self.messages += sent.rows
        self.bytes += sent.bytes
        self._done += count
        self._progress(self._done, self._plan.rows)


def block_of(
    spark: "SparkSession", rows: "DataFrame", plan: ReplayPlan, chunks: range, keep_exchange: bool
) -> "DataFrame":
    """The rows of consecutive chunks, in order, as the data source takes them, each with the number of its chunk."""
    from pyspark.sql import functions as F

    parts = plan.parts(chunks)
    where = spark.createDataFrame(parts, "path string, first long, end long, before long")
    path, row = F.col("_metadata.file_path"), F.col("_metadata.row_index")
    columns = ["routing_key", *(["exchange"] if keep_exchange else [])]
    numbered = (
        rows.where(path.isin([part.path for part in parts]))
        .select(
            F.col("body").alias("value"),
            *columns,
            with_id(rows).alias("raw_properties"),
            path.alias("path"),
            row.alias("row"),
        )
        .join(F.broadcast(where), "path")
        .where((F.col("row") >= F.col("first")) & (F.col("row") < F.col("end")))
        .withColumn("number", F.col("before") + F.col("row"))
    )
    return numbered.orderBy("number").select(
        "value", *columns, "raw_properties", F.floor(F.col("number") / plan.chunk_rows).cast("long").alias("chunk")
    )


def with_id(rows: "DataFrame") -> "Column":
    """The raw properties, with the id that the broker gave the message where its publisher gave none.

    They are a msgpack map: its header counts one more, and `message_id` and the id, in ASCII, follow at the end.
    """
    from pyspark.sql import functions as F

    raw = F.col("raw_properties")
    if "message_id" not in rows.columns or "properties" not in rows.columns:
        return raw
    name = b"\xaamessage_id"
    entry = F.concat(
        F.lit(name + b"\xd9"),
        F.unhex(F.lpad(F.hex(F.octet_length("message_id")), 2, "0")),
        F.col("message_id").cast("binary"),
    )
    size = F.conv(F.hex(F.substring(raw, 1, 1)), 16, 10).cast("int")
    more = F.concat(F.unhex(F.hex(size + 1)), F.expr("substring(raw_properties, 2)"), entry)
    return (
        F.when(F.col("message_id").isNull() | F.col("properties.message_id").isNotNull(), raw)
        .when(raw.isNull(), F.concat(F.lit(b"\x81"), entry))
        # 0x80 to 0x8e: up to 14 entries, and there are no more than 13 properties.
        .when(size.between(0x80, 0x8E), more)
        .otherwise(raw)
    )
