"""`shardmq connection`, `channel` and `consumer`: which clients are there, and what they do."""

import time
from typing import Final

import click

from shardmq.client.api.url import parse_all
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, rows_of
from shardmq.cmd.terminal.options import JSON, LIST, URL
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, features, names, numbers
from shardmq.cmd.terminal.tables import print_list


def _client(row: Row) -> str:
    """What a client calls itself: the name its program gave the connection, or its library and version."""
    said = row["client_properties"]
    library = " ".join(str(said[name]) for name in ("product", "version") if name in said)
    return str(said.get("connection_name") or library)


CONNECTION_COLUMNS: Final = (
    *names("name", "user", "vhost", "state"),
    *numbers("channels"),
    Column("protocol", lambda row: [row["protocol"], "TLS"] if row["tls"] else row["protocol"]),
    Column("peer", lambda row: f"{row['peer_host']}:{row['peer_port']}"),
    Column("client", _client, is_wrapped=True),
    *extras("gateway", "connected_at", "tls", "peer_host", "peer_port", "client_properties"),
)
CHANNEL_COLUMNS: Final = (
    *names("connection"),
    *numbers("number"),
    *names("user", "vhost"),
    *numbers("consumers", "unacked", "unconfirmed"),
    Column("mode", lambda row: [mode for mode in ("confirm", "transactional") if row[mode]]),
    *extras("prefetch", "global_prefetch", "confirm", "transactional"),
)
CONSUMER_COLUMNS: Final = (
    *names("queue", "vhost", "tag", "connection"),
    *numbers("prefetch", "priority"),
    features("auto_ack", "exclusive", otherwise=""),
    *extras("user", "channel", "auto_ack", "exclusive"),
)
OF_QUEUE_COLUMNS: Final = (
    *names("tag", "connection"),
    *numbers("prefetch", "unacked", "oldest_unacked_ms", "ack_latency_ms", "ack_latency_ms_max"),
    features("auto_ack", "exclusive", otherwise=""),
    *extras("queue", "vhost", "user", "channel", "priority", "auto_ack", "exclusive", "active"),
)


@click.group()
def connection() -> None:
    """Clients' connections: list, close."""


@click.group()
def channel() -> None:
    """Channels: list."""


@click.group()
def consumer() -> None:
    """Consumers: list."""


@connection.command("list")
@URL
@LIST
def connection_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the connections this user may see."""
    print_list("connections", rows_of(url, "connections"), CONNECTION_COLUMNS, choice, as_json)


@connection.command("close")
@click.argument("name")
@click.option("--reason", default="closed by an administrator", show_default=True, help="The client is told.")
@URL
@JSON
def connection_close(*, name: str, reason: str, url: str, as_json: bool) -> None:
    """Close connection NAME, as `list` shows it, wherever it is."""
    sentence = f"Closed connection '{name}'"
    carry_out(url, as_json, sentence, lambda connection: connection.connection_expel(name, reason))


@channel.command("list")
@URL
@LIST
def channel_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the channels of the connections this user may see."""
    print_list("channels", rows_of(url, "channels"), CHANNEL_COLUMNS, choice, as_json)


@consumer.command("list")
@click.option(
    "--queue",
    default="",
    shell_complete=completing("queues"),
    help="Those of one queue alone, with what each holds and how long it takes to acknowledge.",
)
@URL
@LIST
def consumer_list(*, queue: str, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show the consumers of the connections this user may see."""
    if queue:
        print_list("consumers", _consumers_of(url, queue), OF_QUEUE_COLUMNS, choice, as_json)
    else:
        print_list("consumers", rows_of(url, "consumers"), CONSUMER_COLUMNS, choice, as_json)


def _consumers_of(url: str, queue: str) -> list[Row]:
    """The consumers of one queue, each with what its shard says of it."""
    vhost = parse_all(url)[0].vhost
    with connected(url) as connection:
        held = connection.stats_get("queues", vhost, queue)["consumer_list"]
        rows = connection.topology("consumers")
    by_number = {(row["gateway"], row["consumer"]): row for row in held}
    return [
        row | _with_age(by_number.get((row.get("gateway"), row.get("consumer")), {}))
        for row in rows
        if (row["vhost"], row["queue"]) == (vhost, queue)
    ]


def _with_age(held: Row) -> Row:
    at = held.get("oldest_unacked_at")
    return held | {"oldest_unacked_ms": None if at is None else max(0, round(1000 * time.time()) - at)}
