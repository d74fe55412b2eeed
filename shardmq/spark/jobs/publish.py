"""Files to an exchange: a message for each row."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs import files
from shardmq.spark.jobs import preconditions as targets
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.jobs.summary import Summary
from shardmq.spark.jobs.templates import body_of, filled, key_of
from shardmq.spark.jobs.transaction import send
from shardmq.spark.options import EXACTLY_ONCE, new_transaction_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def publish(
    spark: "SparkSession",
    paths: str | Sequence[str],
    *,
    url: str,
    exchange: str,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    key: str | None = None,
    routing_key: str | None = None,
    value: str | None = None,
    headers: Mapping[str, str] | None = None,
    message_id: str | None = None,
    properties: Mapping[str, str] | None = None,
    partitions: int | None = None,
    txn_id: str = "",
    delivery: str = EXACTLY_ONCE,
    mandatory: bool = True,
    say: Callable[[str], None] = print,
) -> Summary:
    """Publish the rows of files, every partition in parallel, all of them or none.

    Args:
        spark: the session.
        paths: CSV, JSON (a line for each row) or Parquet files, folders or patterns.
        url: the broker's.
        exchange: where to; "" with a queue's name as routing key is that queue.
        format: "csv", "tsv", "json" or "parquet"; by the files' names when None.
        read_options: Spark's own for that format, as {"inferSchema": "true"}; a CSV's columns are texts without.
        key: a column, or a template as "{carrier}.{origin}", that makes the routing keys.
        routing_key: the same for all rows, in place of `key`.
        value: the column that is the body; the whole row as a JSON object when None, nulls included.
        headers: by name, a template each.
        message_id: a column or a template.
        properties: of all messages, as {"content_type": "text/csv", "priority": "3"}. The content type is
            application/json unless it is said, or a column is the body.
        partitions: publish with so many; as many as the files have when None.
        txn_id: the transaction's name: published again under it, nothing happens. A new one when "".
        delivery: "exactly-once", or "at-least-once": sooner visible, but there again with each retry.
        mandatory: a row that no queue takes fails the job.
        say: is told what goes on, a sentence at a time.

    Raises:
        ShardmqError: it failed. Nothing was published then, with delivery "exactly-once".
    """
    started_at = time.monotonic()
    paths = [paths] if isinstance(paths, str) else list(paths)
    targets.check_exchange(url, exchange)
    doing = "publishing to " + (f"exchange '{exchange}'" if exchange else "the default exchange")
    if delivery == EXACTLY_ONCE:
        txn_id = txn_id or new_transaction_id()
    elif txn_id:
        raise InvalidRequest("at-least-once has no transaction; leave out its name, or deliver exactly-once")
    if key is not None and routing_key is not None:
        raise InvalidRequest("key and routing_key are two ways to say one thing; leave out one")
    said = {**(properties or {}), **({} if routing_key is None else {"routing_key": routing_key})}
    if value is None:
        said.setdefault("content_type", "application/json")
    with plain_faults(f"reading {', '.join(paths)}"):
        rows = messages(files.read(spark, paths, format, read_options), key, value, headers, message_id)
    if partitions is not None:
        rows = rows.repartition(partitions)
    sent = send(
        rows,
        url=url,
        doing=doing,
        exchange=exchange,
        txn_id=txn_id,
        delivery=delivery,
        mandatory=mandatory,
        options=said,
    )
    notes = []
    if sent.is_repeat:
        notes.append(f"transaction '{txn_id}' was committed before: nothing was published now")
        say(notes[-1])
    queues = targets.queues_behind(url, [exchange] if exchange else [])
    return Summary(
        job="publish",
        rows=sent.rows,
        messages=sent.rows,
        bytes=sent.bytes,
        seconds=time.monotonic() - started_at,
        transaction=txn_id,
        queues=queues or _of_key(url, exchange, routing_key, mandatory),
        notes=tuple(notes),
    )


def _of_key(url: str, exchange: str, routing_key: str | None, mandatory: bool) -> dict[str, int]:
    """The queue that is named as the key of all rows; it is there, if they had to be taken."""
    return {} if exchange or routing_key is None or not mandatory else {routing_key: targets.ready(url, routing_key)}


def messages(
    rows: "DataFrame",
    key: str | None = None,
    value: str | None = None,
    headers: Mapping[str, str] | None = None,
    message_id: str | None = None,
) -> "DataFrame":
    """Rows as the data source takes them: value, and routing_key, headers and message_id where they are asked for.

    Args:
        As `publish`.

    Raises:
        InvalidRequest: a column is not there.
    """
    from pyspark.sql import functions as F

    columns = {"value": body_of(rows, value)}
    if key is not None:
        columns["routing_key"] = key_of(rows, key)
    if message_id is not None:
        columns["message_id"] = key_of(rows, message_id)
    if headers:
        pairs = [column for name, text in headers.items() for column in (F.lit(name), filled(rows, text))]
        columns["headers"] = F.create_map(*pairs)
    return rows.select(*(column.alias(name) for name, column in columns.items()))


__all__ = ["messages", "publish"]
