"""Metrics of each queue, exchange, connection, channel, virtual host, topic and consumer group.

Objects come from the broker by the page, so that a scrape of many holds nobody up.
"""

from collections import Counter
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


def _vhost(row: Row) -> dict[str, str]:
    return {"vhost": row["name"]}


def _topic(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "topic": row["name"]}


def _group(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "topic": row["topic"], "group": row["group"]}


def _named_exchange(row: Row) -> dict[str, str]:
    return {"vhost": row["vhost"], "exchange": row["name"], "type": row["type"]}


def _user(row: Row) -> dict[str, str]:
    return {"user": row["name"]}


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
            ("exchange_messages_published_total", "counter", "counts.publish_in", "Messages published to it"),
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
    "vhost_metrics": Family(
        "vhosts",
        _vhost,
        (
            ("vhost_messages_ready", "gauge", "ready", "Messages that wait for a consumer"),
            ("vhost_messages_unacked", "gauge", "unacked", "Messages that are not acknowledged yet"),
            ("vhost_messages_published_total", "counter", "flow.counts.publish", "Messages published"),
            ("vhost_messages_delivered_total", "counter", "flow.counts.deliver", "Delivered, to be acknowledged"),
            ("vhost_messages_acked_total", "counter", "flow.counts.ack", "Messages acknowledged"),
        ),
    ),
    "topic_metrics": Family(
        "topics", _topic, (("topic_partitions", "gauge", "partitions", "Partitions of the topic"),)
    ),
    "group_metrics": Family(
        "groups", _group, (("group_lag_messages", "gauge", "lag", "Messages that the group has still to read"),)
    ),
}
"""Families of objects that the broker lists, by RabbitMQ's names; the last three are ours."""

COUNTED: Final[Mapping[str, Family]] = {
    "exchange_names": Family(
        "exchanges", _named_exchange, (("exchange_name", "gauge", "one", "That the exchange is there"),)
    ),
    "exchange_bindings": Family(
        "exchanges", _named_exchange, (("exchange_bindings", "gauge", "bindings", "Bindings from the exchange"),)
    ),
    "vhost_status": Family("vhosts", _vhost, (("vhost_status", "gauge", "one", "Whether the virtual host runs"),)),
    "user_metrics": Family(
        "users",
        _user,
        (
            ("user_connections", "gauge", "connections", "Connections of the user"),
            ("user_channels", "gauge", "channels", "Channels of the user"),
        ),
    ),
}
"""Families of what is counted here, from several lists; all but users' are RabbitMQ's, with its other prefix."""

CLUSTER: Final = "rabbitmq_cluster_"
"""RabbitMQ's prefix of what all nodes of a cluster tell alike, in /metrics/detailed (its METRICS_CLUSTER)."""

KEYS: Final = ("vhost", "name", "topic", "group")
"""Columns of which labels are made."""


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
        columns = [*KEYS, *dict.fromkeys(column for _, _, column, _ in metrics)]
        written = [(out.begin(name, kind, text), column) for name, kind, column, text in metrics]
        for vhost in vhosts:
            async for rows in _pages(connection, noun, vhost, columns):
                labels = [labelled(of_noun[0].labels(row)) for row in rows]
                for part, column in written:
                    part.add(_samples(labels, rows, column))


async def write_counted(out: Exposition, connection: Connection, name: str, vhosts: Sequence[str | None]) -> None:
    """Write a family of what is counted here.

    Args:
        out: with the prefix of the family.
        connection: to the broker.
        name: of the family in COUNTED.
        vhosts: None for all that the user may see.
    """
    family = COUNTED[name]
    if family.noun == "users":
        rows = await _clients(connection, vhosts)
    elif family.noun == "vhosts":
        rows = [{**row, "one": 1} for vhost in vhosts async for row in _rows(connection, "vhosts", vhost, ["name"])]
    else:
        rows = [row for vhost in vhosts for row in await _bindings(connection, vhost)]
    labels = [labelled(family.labels(row)) for row in rows]
    for metric, kind, column, text in family.metrics:
        out.family(metric, kind, text, _samples(labels, rows, column))


async def _bindings(connection: Connection, vhost: str | None) -> list[Row]:
    """The exchanges that clients publish to by name, with how many bindings each has, as RabbitMQ tells them."""
    found = Counter(
        [(row["vhost"], row["source"]) async for row in _rows(connection, "bindings", vhost, ["vhost", "source"])]
    )
    return [
        {**row, "one": 1, "bindings": found[row["vhost"], row["name"]]}
        async for row in _rows(connection, "exchanges", vhost, ["vhost", "name", "type", "internal"])
        if row["name"] and not row["internal"]
    ]


async def _clients(connection: Connection, vhosts: Sequence[str | None]) -> list[Row]:
    """The users who are connected, with what they have."""
    connections, channels = Counter[str](), Counter[str]()
    for vhost in vhosts:
        async for row in _rows(connection, "connections", vhost, ["user", "channels"]):
            connections[row["user"]] += 1
            channels[row["user"]] += row["channels"]
    return [
        {"name": user, "connections": count, "channels": channels[user]} for user, count in sorted(connections.items())
    ]


def _samples(labels: list[str], rows: list[Row], column: str) -> list[tuple[str, int | float]]:
    *tables, name = column.split(".")
    found: list[Row] = list(rows)
    for table in tables:
        found = [row.get(table) or {} for row in found]
    values = [row.get(name) for row in found]
    return [(label, value) for label, value in zip(labels, values, strict=True) if value is not None]


async def _rows(connection: Connection, noun: str, vhost: str | None, columns: list[str]) -> AsyncIterator[Row]:
    async for rows in _pages(connection, noun, vhost, columns):
        for row in rows:
            yield row


async def _pages(connection: Connection, noun: str, vhost: str | None, columns: list[str]) -> AsyncIterator[list[Row]]:
    """A list, page by page: one is in memory at a time."""
    number, pages = 1, 1
    while number <= pages:
        query = ListQuery(vhost, page=number, page_size=LIST_PAGE_MAX, columns=columns)
        page = await connection.stats_list(noun, query)
        number, pages = number + 1, page["page_count"]
        yield page["items"]
