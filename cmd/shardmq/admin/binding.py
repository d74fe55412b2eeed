"""`shardmq binding`: list, declare, delete; to queues and to exchanges."""

from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, on_channel, rows_of
from shardmq.cmd.terminal.options import ARGUMENTS, JSON, LIST, URL, Command, all_of
from shardmq.cmd.terminal.output import CommandFailed, print_done
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, plain
from shardmq.cmd.terminal.tables import print_list

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel

_OF_A_BINDING: Final = (
    click.argument("exchange", shell_complete=completing("exchanges")),
    click.argument("destination", shell_complete=completing("queues")),
    click.argument("routing_key", default=""),
    click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange, not a queue."),
    ARGUMENTS,
    URL,
    JSON,
)


def of_a_binding(command: Command) -> Command:
    """The arguments and options that say which binding."""
    return all_of(command, _OF_A_BINDING)


def _destination(row: Row) -> str:
    return f"exchange {row['destination']}" if row["destination_type"] == "exchange" else str(row["destination"])


COLUMNS: Final = (
    Column("source"),
    Column("destination", _destination),
    Column("routing_key"),
    Column("arguments", is_wrapped=True),
    *extras("destination_type", "vhost"),
)


@click.group()
def binding() -> None:
    """Bindings: list, declare, delete."""


@binding.command("list")
@URL
@LIST
def binding_list(*, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show all bindings."""
    print_list("bindings", rows_of(url, "bindings"), COLUMNS, choice, as_json)


@binding.command("declare")
@of_a_binding
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

    def bind(channel: "Channel") -> None:
        verb = channel.exchange_bind if to_exchange else channel.queue_bind
        verb(destination, exchange, routing_key, arguments)

    kind = "exchange" if to_exchange else "queue"
    sentence = f"Bound {kind} '{destination}' to exchange '{exchange}' with routing key '{routing_key}'"
    carry_out(url, as_json, sentence, on_channel(bind))


@binding.command("delete")
@of_a_binding
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
    kind = "exchange" if to_exchange else "queue"
    wanted = {
        "source": exchange,
        "destination": destination,
        "destination_type": kind,
        "routing_key": routing_key,
        "arguments": arguments,
    }
    with connected(url) as connection:
        rows = connection.topology("bindings")
        if not any(all(row[name] == value for name, value in wanted.items()) for row in rows):
            terms = f"routing key '{routing_key}'" + (f" and arguments {plain(arguments)}" if arguments else "")
            raise CommandFailed(
                f"{kind} '{destination}' is not bound to exchange '{exchange}' with {terms}; "
                f"`shardmq binding list --filter 'source={exchange}'` shows what is"
            )
        channel = connection.channel()
        verb = channel.exchange_unbind if to_exchange else channel.queue_unbind
        verb(destination, exchange, routing_key, arguments)
    print_done(f"Unbound {kind} '{destination}' from exchange '{exchange}' with routing key '{routing_key}'", as_json)
