"""`shardmq connection`: list, close."""

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import Row, carry_out, rows_of, show


@click.group()
def connection() -> None:
    """Clients' connections: list, close."""


@connection.command("list")
@URL
@JSON
def connection_list(*, url: str, as_json: bool) -> None:
    """Show the connections this user may see."""
    rows = rows_of(url, "connections")
    if not as_json:
        rows = [
            {
                **row,
                "peer": f"{row['peer_host']}:{row['peer_port']}",
                "client": _client(row),
                "protocol": [row["protocol"], "TLS"] if row["tls"] else row["protocol"],
            }
            for row in rows
        ]
    columns = ("name", "user", "vhost", "peer", "client", "protocol", "state")
    show("connections", rows, as_json, columns, ("channels",))


def _client(row: Row) -> str:
    """What a client calls itself: the name its program gave the connection, or its library and version."""
    said = row["client_properties"]
    library = " ".join(str(said[name]) for name in ("product", "version") if name in said)
    return str(said.get("connection_name") or library)


@connection.command("close")
@click.argument("name")
@click.option("--reason", default="closed by an administrator", show_default=True, help="The client is told.")
@URL
@JSON
def connection_close(*, name: str, reason: str, url: str, as_json: bool) -> None:
    """Close connection NAME, as `list` shows it, wherever it is."""
    carry_out(
        url, as_json, f"connection '{name}' is closed", lambda connection: connection.connection_expel(name, reason)
    )
