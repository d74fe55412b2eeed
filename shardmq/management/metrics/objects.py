"""Metrics of each queue, exchange, connection and channel.

Objects come from the broker by the page, so that a scrape of many holds nobody up.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardmq.client.aio.connection import Connection
from shardmq.client.api.statistics import ListQuery
from shardmq.limits import LIST_PAGE_MAX
from shardmq.management.metrics.exposition import Exposition, labelled

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of one kind of object.

    Attributes:
        noun: of the list.
        labels: makes an object's labels.
        metrics: name, kind, column and text of each.
    """

    noun: str
    labels: Callable[[Row], dict[str, str]]
    metrics: tuple[tuple[str, str, str, str], ...]


def _queue(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "queue": row["name"]}


def _exchange(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "exchange": row["name"]}


def _connection(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "connection": row["name"]}


def _channel(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "channel": row["name"]}


FAMILIES: Final[Mapping[str, Family]] = {
    "queue_coarse_metrics": Family(
        "queues",
        _queue,
        (
            ("queue_messages_ready", "gauge", "ready", "Messages that wait for a consumer"),
            ("queue_messages_unacked", "gauge", "unacked", "Messages that are not acknowledged yet"),
            ("queue_messages", "gauge", "messages", "Messages that are ready or not acknowledged"),
        ),
    ),
    "queue_consumer_count": Family("queues", _queue, (("queue_consumers", "gauge", "consumers", "Consumers"),)),
    "queue_metrics": Family(
        "queues",
        _queue,
        (
            ("queue_messages_bytes", "gauge", "bytes", "Bytes of messages"),
            ("queue_segments", "gauge", "segments", "Segments of messages"),
        ),
    ),
    "queue_delivery_metrics": Family(
        "queues",
        _queue,
        (
            ("queue_messages_published_total", "counter", "counts.publish", "Messages published to the queue"),
            ("queue_messages_delivered_ack_total", "counter", "counts.deliver", "Delivered, to be acknowledged"),
            ("queue_messages_delivered_total", "counter", "counts.deliver_no_ack", "Delivered, not to be acknowledged"),
            ("queue_get_ack_total", "counter", "counts.get", "Got by basic.get, to be acknowledged"),
            ("queue_get_total", "counter", "counts.get_no_ack", "Got by basic.get, not to be acknowledged"),
            ("queue_get_empty_total", "counter", "counts.get_empty", "Answers of basic.get without a message"),
            ("queue_messages_acked_total", "counter", "counts.ack", "Messages acknowledged"),
            ("queue_messages_redelivered_total", "counter", "counts.redeliver", "Messages delivered again"),
        ),
    ),
    "exchange_metrics": Family(
        "exchanges",
        _exchange,
        (
            ("exchange_messages_published_in_total", "counter", "counts.publish_in", "Messages published to it"),
            ("exchange_messages_published_out_total", "counter", "counts.publish_out", "Messages it passed to queues"),
        ),
    ),
    "connection_coarse_metrics": Family(
        "connections",
        _connection,
        (
            ("connection_incoming_bytes_total", "counter", "counts.bytes_in", "Bytes from the client"),
            ("connection_outgoing_bytes_total", "counter", "counts.bytes_out", "Bytes to the client"),
        ),
    ),
    "connection_metrics": Family(
        "connections", _connection, (("connection_channels", "gauge", "channels", "Channels that are open"),)
    ),
    "channel_metrics": Family(
        "channels",
        _channel,
        (
            ("channel_consumers", "gauge", "consumers", "Consumers"),
            ("channel_messages_unacked", "gauge", "unacked", "Messages that are not acknowledged yet"),
            ("channel_messages_unconfirmed", "gauge", "unconfirmed", "Publishes that are not confirmed yet"),
            ("channel_prefetch", "gauge", "prefetch", "Messages that consumers may hold; 0 for no limit"),
        ),
    ),
}
"""Families of /metrics/detailed, by RabbitMQ's names."""


async def write_objects(
    out: Exposition, connection: Connection, families: Sequence[str], vhosts: Sequence[str | None]
) -> None:
    """Write these families, of these virtual hosts.

    Args:
        out: with the prefix of the endpoint.
        connection: to the broker.
        families: names in FAMILIES.
        vhosts: None for all that the user may see.
    """
    wanted = [FAMILIES[name] for name in dict.fromkeys(families)]
    for noun in dict.fromkeys(family.noun for family in wanted):
        of_noun = [family for family in wanted if family.noun == noun]
        metrics = [metric for family in of_noun for metric in family.metrics]
        columns = ["vhost", "name", *dict.fromkeys(column for _, _, column, _ in metrics)]
        rows = [row for vhost in vhosts async for row in _pages(connection, noun, vhost, columns)]
        labels = [labelled(of_noun[0].labels(row)) for row in rows]
        for name, kind, column, text in metrics:
            out.family(name, kind, text, _samples(labels, rows, column))


def _samples(labels: list[str], rows: list[Row], column: str) -> list[tuple[str, int | float]]:
    table, _, name = column.rpartition(".")
    found = [(row.get(table) or {}).get(name) for row in rows] if table else [row.get(name) for row in rows]
    return [(label, value) for label, value in zip(labels, found, strict=True) if value is not None]


async def _pages(connection: Connection, noun: str, vhost: str | None, columns: list[str]) -> AsyncIterator[Row]:
    number, pages = 1, 1
    while number <= pages:
        query = ListQuery(vhost, page=number, page_size=LIST_PAGE_MAX, columns=columns)
        page = await connection.stats_list(noun, query)
        for row in page["items"]:
            yield row
        number, pages = number + 1, page["page_count"]
