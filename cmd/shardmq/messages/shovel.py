"""`shardmq shovel`: add, list, delete, restart."""

from typing import Any, Final

import click

from shardmq.cmd.admin.permission import VHOST, named_vhost
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, rows_of
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import BROKER, JSON, LIST, all_of
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, names
from shardmq.cmd.terminal.tables import print_list
from shardmq.topology.parameters.shovel import SHOVEL

HERE: Final = "amqp://"
"""The URI of this broker."""


def _end(side: str) -> Any:
    def shown(row: Row) -> str:
        if not row[f"{side}_uri"]:
            return ""  # its settings cannot be read, which is its error
        queue = row.get(f"{side}_queue")
        what = f"exchange {row.get(f'{side}_exchange') or '(default)'}" if queue is None else f"queue {queue}"
        uri = row[f"{side}_uri"]
        return what if uri.rstrip("/") == HERE.rstrip("/") else f"{what} at {uri}"

    return shown


COLUMNS: Final = (
    *names("name", "vhost", "state"),
    Column("from", value=_end("src"), is_wrapped=True),
    Column("to", value=_end("dest"), is_wrapped=True),
    Column("moved", is_number=True),
    Column("error", is_wrapped=True),
)

_ENDS: Final = (
    click.option("--from", "source_uri", metavar="URI", default=HERE, help="The source's broker.  [default: this one]"),
    click.option("--to", "destination_uri", metavar="URI", default=HERE, help="Likewise, of the destination."),
    click.option("--queue", "source_queue", metavar="NAME", help="Take messages from this queue."),
    click.option("--exchange", "source_exchange", metavar="NAME", help="Or what this exchange routes …"),
    click.option("--binding-key", default="", help="… by this key, from now on."),
    click.option("--to-queue", metavar="NAME", help="Bring them to this queue."),
    click.option("--to-exchange", metavar="NAME", help="Or to this exchange …"),
    click.option("--routing-key", help="… with this key.  [default: their own]"),
    click.option("--prefetch", type=WholeNumber(), help="Messages on their way at most.  [default: 1000]"),
    click.option("--delete-after", metavar="WHEN", help="never, queue-length, or a number of messages."),
    click.option(
        "--ack-mode", type=click.Choice(("on-confirm", "on-publish", "no-ack")), help="When the source is acked."
    ),
    click.option("--reconnect-delay", type=Number(), help="Seconds until it tries again; 0 for never.  [default: 5]"),
    click.option("--forward-headers", is_flag=True, help="Write into messages where they were."),
)


@click.group(short_help="Shovels, which move messages: add, list, delete, restart.")
def shovel() -> None:
    """Shovels, which move messages between queues, exchanges and brokers: add, list, delete, restart."""


@shovel.command("list")
@click.option("--vhost", "-p", metavar="NAME", shell_complete=completing("vhosts"), help="Only of this virtual host.")
@BROKER
@LIST
def shovel_list(*, vhost: str | None, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show shovels, what they have moved, and what went wrong last."""
    rows = [row for row in rows_of(url, "shovels") if vhost in (None, row["vhost"])]
    print_list("shovels", rows, COLUMNS, choice, as_json)


@shovel.command("add", short_help="Add shovel NAME, or change it.")
@click.argument("name")
@lambda command: all_of(command, _ENDS)
@VHOST
@BROKER
@JSON
def shovel_add(*, name: str, vhost: str | None, url: str, as_json: bool, **given: Any) -> None:
    """Add shovel NAME, or change it: it moves messages from a queue or an exchange to another, until it is deleted.

    URIs are as amqp://user:password@host:5672/vhost; without a host, as amqp:///vhost, they mean this broker. A queue
    that is missing is declared. What was moved is acknowledged once the destination has confirmed it. At another
    broker, messages go to the exchange that they were published to unless --to-queue or --to-exchange is given.
    """
    _check(given)
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Added shovel '{name}' in virtual host '{place}'",
        lambda connection: connection.parameter_put(place, SHOVEL, name, _value(given)),
    )


def _check(given: dict[str, Any]) -> None:
    """Refuse what the broker would take, as RabbitMQ does, and what somebody who writes it here did not mean.

    Raises:
        UsageError: options are missing, contradict one another, or would move messages in a circle without an end.
    """
    if (given["source_queue"] is None) == (given["source_exchange"] is None):
        raise click.UsageError("a shovel has one source: give --queue or --exchange")
    if given["to_queue"] is not None and given["to_exchange"] is not None:
        raise click.UsageError("a shovel has one destination: give --to-queue or --to-exchange")
    if given["binding_key"] and given["source_exchange"] is None:
        raise click.UsageError("--binding-key goes with --exchange: all messages of a queue are moved")
    if given["routing_key"] is not None and given["to_queue"] is not None:
        raise click.UsageError("--routing-key goes with --to-exchange: a queue gets its messages by its name")
    if given["source_uri"] != given["destination_uri"]:
        return
    if given["to_queue"] is None and given["to_exchange"] is None:
        raise click.UsageError("the shovel has no destination: give --to-queue or --to-exchange")
    queue = given["to_queue"]
    if queue is not None and queue == given["source_queue"] and given["delete_after"] in (None, "never"):
        raise click.UsageError(
            f"the shovel would move messages from queue '{queue}' to queue '{queue}' for ever: name another queue, or "
            "when it ends by --delete-after"
        )


def _value(given: dict[str, Any]) -> Row:
    """A shovel's settings, by RabbitMQ's names."""
    delete_after = given["delete_after"]
    if delete_after is not None and delete_after.isdecimal():
        delete_after = int(delete_after)
    value = {
        "src-uri": given["source_uri"],
        "src-queue": given["source_queue"],
        "src-exchange": given["source_exchange"],
        "src-exchange-key": given["binding_key"] if given["source_exchange"] else None,
        "src-prefetch-count": given["prefetch"],
        "src-delete-after": delete_after,
        "dest-uri": given["destination_uri"],
        "dest-queue": given["to_queue"],
        "dest-exchange": given["to_exchange"],
        "dest-exchange-key": given["routing_key"],
        "dest-add-forward-headers": given["forward_headers"] or None,
        "ack-mode": given["ack_mode"],
        "reconnect-delay": given["reconnect_delay"],
    }
    return {key: value for key, value in value.items() if value is not None}


@shovel.command("delete")
@click.argument("name", shell_complete=completing("shovels"))
@VHOST
@BROKER
@JSON
def shovel_delete(*, name: str, vhost: str | None, url: str, as_json: bool) -> None:
    """Delete shovel NAME; what it has not moved stays where it is."""
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Deleted shovel '{name}' in virtual host '{place}'",
        lambda connection: connection.parameter_delete(place, SHOVEL, name),
    )


@shovel.command("restart")
@click.argument("name", shell_complete=completing("shovels"))
@VHOST
@BROKER
@JSON
def shovel_restart(*, name: str, vhost: str | None, url: str, as_json: bool) -> None:
    """Have shovel NAME connect anew."""
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Restarted shovel '{name}' in virtual host '{place}'",
        lambda connection: connection.parameter_put(place, SHOVEL, name, None),
    )
