"""Exported Parquet files back to exchanges: at a pace, and each row once, however often the replay is begun.

Rows go in chunks. Each chunk is a transaction of its own, "<name>/<number>", and they are committed one after the
other. A replay that broke off goes on at its first uncommitted chunk. Under a name that was used, other files or
another rate are refused, as they would cut other chunks.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs import files, preconditions
from shardmq.spark.jobs.options import ReplayOptions, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.replay_plan import Pace, ReplayPlan, chunk_rows, usual_id
from shardmq.spark.jobs.transaction import SendOptions, asking, claim, is_committed, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NEEDED: Final = ("body", "routing_key", "raw_properties")
TASK_ROWS: Final = 25_000
"""A chunk is published by one task for each so many rows, and by one task at least."""


@takes_keywords(ReplayOptions)
def replay(spark: "SparkSession", paths: str | Sequence[str], options: ReplayOptions) -> Summary:
    """Publish exported messages again, with their routing keys, ids and properties, types of headers included.

    The order is that of the files' paths and of their rows; within a chunk it is kept for each routing key.

    Args:
        spark: the session.
        paths: exported Parquet files, folders or patterns.
        options: see Keywords.

    Raises:
        InvalidRequest: neither or both of `exchange` and `keep_exchange` are given, or the files are no export.
        PreconditionFailed: something else was replayed under this name.
        ShardmqError: a chunk failed; the chunks before it are published.
    """
    started_at = time.monotonic()
    paths = [paths] if isinstance(paths, str) else list(paths)
    check_target(options)
    with plain_faults(f"reading {', '.join(paths)}"):
        rows = files.read(spark, paths, "parquet")
        check_exported(rows, options.keep_exchange)
        plan = ReplayPlan(tuple(files.described(rows)), chunk_rows(options.rate))
    keep = options.keep_exchange
    return carry_out(plan, options, started_at, lambda chunks: block_of(spark, rows, plan, chunks, keep))


def check_target(options: ReplayOptions) -> None:
    """Check where a replay goes, and how fast.

    Raises:
        InvalidRequest: neither or both of `exchange` and `keep_exchange` are given, or the rate is none.
        NotFound: the exchange does not exist.
        ConnectionLost: no broker answers.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    exchange, rate = options.exchange, options.rate
    if (exchange is None) != options.keep_exchange:
        raise InvalidRequest("a replay goes to one exchange, or keeps each message's own: give one of the two")
    if rate is not None and rate <= 0:
        raise InvalidRequest(f"a rate of {rate} rows a second never ends; give more, or none")
    preconditions.check_exchange(options.url, exchange)


def carry_out(
    plan: ReplayPlan, options: ReplayOptions, started_at: float, block: "Callable[[range], DataFrame]"
) -> Summary:
    """Publish the chunks of a plan that are not committed yet.

    Args:
        plan: what is replayed.
        options: of the replay.
        started_at: when it began, by the monotonic clock.
        block: makes the rows of consecutive chunks, as `numbered` gives them.

    Raises:
        PreconditionFailed: something else was replayed under this name.
        ShardmqError: a chunk failed; the chunks before it are published.
    """
    url, exchange = options.url, options.exchange
    target = f"exchange {exchange}" if exchange is not None else "their exchanges"
    name = options.txn_id or usual_id(plan.files, target)
    options.say(
        f"replaying {plan.rows:,} rows of {len(plan.files):,} {plan.kind} as '{name}', in chunks: {plan.chunks:,}"
    )
    with asking(url) as broker:
        claim(broker, name, plan.digest(target), f"{plan.kind}, target or rate")
        # Chunks are committed in their order, so the committed ones are the first.
        start = bisect_left(range(plan.chunks), True, key=lambda chunk: not is_committed(broker, f"{name}/{chunk}"))
    sender = _Sender(options, name, plan)
    sender.skip(start)
    for chunks in plan.blocks(start):
        sender.send_block(block(chunks), chunks)
    return Summary(
        job="replay",
        rows=sender.messages,
        messages=sender.messages,
        bytes=sender.bytes,
        seconds=time.monotonic() - started_at,
        transaction=name,
        queues=preconditions.queues_behind(url, [exchange] if exchange else []),
        notes=(f"{start:,} of {plan.chunks:,} chunks were committed before",) if start else (),
    )


def check_exported(rows: "DataFrame", keep_exchange: bool) -> None:
    """Check that files are as `export` writes them.

    Args:
        rows: the files' rows.
        keep_exchange: whether the column exchange is needed as well.

    Raises:
        InvalidRequest: a column is missing.
    """
    needed = (*NEEDED, "exchange") if keep_exchange else NEEDED
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        raise InvalidRequest(
            f"these files have no column {', '.join(missing)}, so no export wrote them; publish takes any files"
        )


class _Sender:
    """Sends the chunks of a replay, block by block.

    Attributes:
        messages: published so far.
        bytes: of their bodies.
    """

    def __init__(self, options: ReplayOptions, name: str, plan: ReplayPlan) -> None:
        self._options = options
        self._name = name
        self._plan = plan
        self._pace = Pace(options.rate)
        self._done = 0
        self.messages = 0
        self.bytes = 0

    def skip(self, chunks: int) -> None:
        """Leave out the first chunks, which are committed."""
        if chunks:
            self._options.say(f"the first {chunks:,} of {self._plan.chunks:,} chunks were committed before")
            self._done = min(chunks * self._plan.chunk_rows, self._plan.rows)
        self._options.progress(self._done, self._plan.rows)

    def send_block(self, block: "DataFrame", chunks: range) -> None:
        """Send consecutive chunks."""
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
            SendOptions(
                url=self._options.url,
                doing=f"replaying chunk {chunk:,} of '{self._name}'",
                exchange=self._options.exchange,
                txn_id=f"{self._name}/{chunk}",
                mandatory=self._options.mandatory,
            ),
        )
        self.messages += sent.rows
        self.bytes += sent.bytes
        self._done += count
        self._options.progress(self._done, self._plan.rows)


def block_of(
    spark: "SparkSession", rows: "DataFrame", plan: ReplayPlan, chunks: range, keep_exchange: bool
) -> "DataFrame":
    """The rows of consecutive chunks, in order, as the data source takes them, each with the number of its chunk.

    Args:
        spark: the session.
        rows: the files' rows.
        plan: of the replay.
        chunks: which ones.
        keep_exchange: whether rows keep their exchange.
    """
    from pyspark.sql import functions as F

    parts = plan.parts(chunks)
    where = spark.createDataFrame(parts, "path string, first long, end long, before long")
    path, row = F.col("_metadata.file_path"), F.col("_metadata.row_index")
    chosen = (
        rows.where(path.isin([part.path for part in parts]))
        .select("*", path.alias("path"), row.alias("row"))
        .join(F.broadcast(where), "path")
        .where((F.col("row") >= F.col("first")) & (F.col("row") < F.col("end")))
    )
    return numbered(chosen, F.col("before") + F.col("row"), plan, keep_exchange)


def numbered(rows: "DataFrame", number: "Column", plan: ReplayPlan, keep_exchange: bool) -> "DataFrame":
    """Rows as the data source takes them, in order, each with the number of its chunk.

    Args:
        rows: with the columns that exports have.
        number: of each row in the plan.
        plan: of the replay.
        keep_exchange: whether rows keep their exchange.
    """
    from pyspark.sql import functions as F

    columns = ["routing_key", *(["exchange"] if keep_exchange else [])]
    raw = with_id(rows).alias("raw_properties")
    made = rows.select(F.col("body").alias("value"), *columns, raw, number.alias("number"))
    return made.orderBy("number").select(
        "value", *columns, "raw_properties", F.floor(F.col("number") / plan.chunk_rows).cast("long").alias("chunk")
    )


def with_id(rows: "DataFrame") -> "Column":
    """The raw properties, with the broker's id where the publisher gave none.

    Raw properties are a msgpack map. The result's header counts one entry more, and the entry `message_id` follows at
    the end.
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
