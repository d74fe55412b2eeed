"""`shardmq binding`: list, declare, delete; to queues and to exchanges."""

from typing import Any, Final

import click

from shardmq.cmd.terminal.connection import JSON, URL
from shardmq.cmd.terminal.tables import ARGUMENTS, carry_out, on_channel, rows_of, show

TO_EXCHANGE: Final = click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange, not a queue.")


@click.group()
def binding() -> None:
    """Bindings: list, declare, delete."""


@binding.command("list")
@URL
@JSON
def binding_list(*, url: str, as_json: bool) -> None:
    """Show all bindings."""
    rows = rows_of(url, "bindings")
    if not as_json:
        rows = [{**row, "destination": destination_of(row)} for row in rows]
    show("bindings", rows, as_json, ("source", "destination", "routing_key", "arguments"))


def destination_of(row: dict[str, Any]) -> str:
    """Where a binding leads, for people."""
    prefix = "exchange " if row["destination_type"] == "exchange" else ""
    return f"{prefix}{row['destination']}"


@binding.command("declare")
@click.argument("exchange")
@click.argument("destination")
@click.argument("routing_key", default="")
@TO_EXCHANGE
@ARGUMENTS
@URL
@JSON
def binding_declare(
    *,
    exchange: str,
    destination: str,
    routing_key: str,
    to_exchange: bool,
    arguments: dict[str, Any],
    url: str,
    as_json: bool,
) -> None:
    """Bind DESTINATION, a queue, to EXCHANGE with ROUTING_KEY."""

    def bind(channel: Any) -> None:
        verb = channel.exchange_bind if to_exchange else channel.queue_bind
        verb(destination, exchange, routing_key, arguments)

    kind = "exchange" if to_exchange else "queue"
    sentence = f"{kind} '{destination}' gets what is published to '{exchange}' with '{routing_key}'"
    carry_out(url, as_json, sentence, on_channel(bind))


@binding.command("delete")
@click.argument("exchange")
@click.argument("destination")
@click.argument("routing_key", default="")
@TO_EXCHANGE
@ARGUMENTS
@URL
@JSON
def binding_delete(
    *,
    exchange: str,
    destination: str,
    routing_key: str,
    to_exchange: bool,
    arguments: dict[str, Any],
    url: str,
    as_json: bool,
) -> None:
    """Remove the binding of DESTINATION, a queue, to EXCHANGE with ROUTING_KEY and the same arguments."""

    def unbind(channel: Any) -> None:
        verb = channel.exchange_unbind if to_exchange else channel.queue_unbind
        verb(destination, exchange, routing_key, arguments)

    kind = "exchange" if to_exchange else "queue"
    sentence = f"{kind} '{destination}' is not bound to '{exchange}' with '{routing_key}' any more"
    carry_out(url, as_json, sentence, on_channel(unbind))
