"""Files to an exchange: a message for each row."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shardmq.errors import InvalidRequest
from shardmq.spark.jobs import files, preconditions
from shardmq.spark.jobs.options import PublishOptions, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.templates import body_of, filled, key_of
from shardmq.spark.jobs.transaction import SendOptions, send
from shardmq.spark.options import EXACTLY_ONCE, new_transaction_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@takes_keywords(PublishOptions)
def publish(spark: "SparkSession", paths: str | Sequence[str], options: PublishOptions) -> Summary:
    """Publish the rows of files, every partition in parallel, all of them or none.

    Args:
        spark: the session.
        paths: CSV, JSON (one object a line) or Parquet files, folders or patterns.
        options: see Keywords.

    Raises:
        InvalidRequest: options contradict one another, or the files cannot be read as asked.
        NotFound: the exchange does not exist.
        ShardmqError: publishing failed. With delivery "exactly-once" nothing was published.
    """
    started_at = time.monotonic()
    paths = [paths] if isinstance(paths, str) else list(paths)
    url, exchange = options.url, options.exchange
    preconditions.check_exchange(url, exchange)
    txn_id = _transaction_of(options)
    with plain_faults(f"reading {', '.join(paths)}"):
        rows = files.read(spark, paths, options.format, options.read_options)
        rows = messages(rows, options.key, options.value, options.headers, options.message_id)
    if options.partitions is not None:
        rows = rows.repartition(options.partitions)
    sent = send(
        rows,
        SendOptions(
            url=url,
            doing="publishing to " + (f"exchange '{exchange}'" if exchange else "the default exchange"),
            exchange=exchange,
            txn_id=txn_id,
            delivery=options.delivery,
            mandatory=options.mandatory,
            defaults=_defaults(options),
        ),
    )
    notes = []
    if sent.is_repeat:
        notes.append(f"transaction '{txn_id}' was committed before: nothing was published now")
        options.say(notes[-1])
    return Summary(
        job="publish",
        rows=sent.rows,
        messages=sent.rows,
        bytes=sent.bytes,
        seconds=time.monotonic() - started_at,
        transaction=txn_id,
        queues=preconditions.queues_behind(url, [exchange] if exchange else []) or _queue_of_key(options),
        notes=tuple(notes),
    )


def _transaction_of(options: PublishOptions) -> str:
    """The transaction's name, "" where there is none; refuses options that contradict one another."""
    if options.key is not None and options.routing_key is not None:
        raise InvalidRequest("key and routing_key both say how rows are routed; give one of them")
    if options.delivery == EXACTLY_ONCE:
        return options.txn_id or new_transaction_id()
    if options.txn_id:
        raise InvalidRequest("at-least-once delivery has no transaction; leave out txn_id, or deliver exactly-once")
    return ""


def _defaults(options: PublishOptions) -> dict[str, str]:
    """The data source's options for rows without columns of these names."""
    given = dict(options.properties or {})
    if options.routing_key is not None:
        given["routing_key"] = options.routing_key
    if options.value is None:
        given.setdefault("content_type", "application/json")
    return given


def _queue_of_key(options: PublishOptions) -> dict[str, int]:
    """The queue that the routing key of all rows names; it exists where every row had to be taken."""
    key = options.routing_key
    if options.exchange or key is None or not options.mandatory:
        return {}
    return {key: preconditions.ready(options.url, key)}


def messages(
    rows: "DataFrame",
    key: str | None = None,
    value: str | None = None,
    headers: Mapping[str, str] | None = None,
    message_id: str | None = None,
) -> "DataFrame":
    """Make rows what the data source takes: value, and routing_key, headers and message_id where they are asked for.

    Args:
        rows: the rows.
        key: a column or a template for routing keys.
        value: the column that is the body; None for the whole row as a JSON object.
        headers: a template for each header, by the header's name.
        message_id: a column or a template.

    Raises:
        InvalidRequest: a column does not exist.
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
