"""What the commands about nouns share: tables of what there is, and one thing done and told."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.connection import connected, counted, new_table, print_json
from shardmq.cmd.terminal.values import named_values

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel
    from shardmq.client.sync.connection import Connection

ARGUMENTS: Final = click.option(
    "--argument",
    "-a",
    "arguments",
    callback=named_values,
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument, as x-max-length=1000; a value that is JSON is taken as such, else as a string.",
)
DURABLE: Final = click.option(
    "--durable/--transient", default=True, show_default=True, help="Whether it survives a restart of the broker."
)

Row = dict[str, Any]


def rows_of(url: str, noun: str) -> list[Row]:
    """All of a noun that there is."""
    with connected(url) as connection:
        return connection.topology(noun)


def show(noun: str, rows: list[Row], as_json: bool, names: Iterable[str], numbers: Iterable[str] = ()) -> None:
    """Print a list.

    Args:
        noun: in the plural.
        rows: a table for each.
        as_json: as they are; else only the columns named.
        names: columns of text.
        numbers: columns of numbers.
    """
    if as_json:
        print_json(rows)
        return
    from rich.console import Console

    names, numbers = tuple(names), tuple(numbers)
    caption = counted(len(rows), noun.removesuffix("s"))
    table = new_table(noun, tuple(map(title, names)), tuple(map(title, numbers)), caption)
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in (*names, *numbers)))
    Console().print(table)


def with_features(rows: list[Row], *names: str, otherwise: str = "transient") -> list[Row]:
    """The rows with a column `features` that says which of these are so: five columns of yes and no fit no terminal."""
    return [{**row, "features": [title(name) for name in names if row[name]] or [otherwise]} for row in rows]


def title(column: str) -> str:
    """A column's name for people."""
    return column.replace("_", " ").replace("-", " ")


def cell(value: Any) -> str:
    """A value as a table shows it."""
    from rich.markup import escape

    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict():
            return escape(", ".join(f"{name}={inner}" for name, inner in value.items()))
        case list() | tuple():
            return escape(", ".join(str(inner) for inner in value))
        case _:
            return escape(str(value))


def carry_out(url: str, as_json: bool, sentence: str, action: "Callable[[Connection], int | None]") -> None:
    """Do one thing and say that it is done.

    Args:
        url: the broker.
        as_json: for machines.
        sentence: what was done; `{messages}` stands for what the action returned.
        action: gets the connection; returns a number of messages, or None where there is none to tell.
    """
    with connected(url) as connection:
        messages = action(connection)
    if as_json:
        print_json({"ok": True} if messages is None else {"ok": True, "messages": messages})
    else:
        click.echo(sentence.replace("{messages}", counted(messages or 0, "message")))


def on_channel(action: "Callable[[Channel], int | None]") -> "Callable[[Connection], int | None]":
    """An action of a connection that needs a channel."""
    return lambda connection: action(connection.channel())
