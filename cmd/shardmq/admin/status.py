"""`shardmq status`: the processes, queues and stores of a broker, with rates."""

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.admin.rates import RATES, Status, StatusWatch
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import Number
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.rows import Column, Row, plain
from shardmq.cmd.terminal.tables import Table, print_fitted
from shardmq.cmd.terminal.values import counted, duration, size
from shardmq.topology.entities import DEFAULT_VHOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group

HELD: Final = {
    "gateway": ("connection", "consumer"),
    "coordinator": ("exchange", "queue", "binding"),
    "shard": (),
}
"""What processes of each role hold; their tables name it in the plural."""

TABLE_LINES: Final = 5
"""Lines of a table that are no rows: title, header, rule, caption, and one between tables."""

ROWS_LEAST: Final = 3
"""Rows of each table that are shown on the smallest terminal."""


def _queue_name(row: Row) -> str:
    name = row["name"] if row["vhost"] == DEFAULT_VHOST else f"{row['vhost']}: {row['name']}"
    return f"{name} (out of service)" if "out_of_service" in row else str(name)


def _rate(title: str, rate: str) -> Column:
    return Column(title, lambda row: row[rate], is_number=True, text=lambda value: f"{value:,.0f}")


def _stored(title: str, field: str) -> Column:
    return Column(title, lambda row: (row.get("store") or {}).get(field), is_number=True, text=size)


PROCESS_COLUMNS: Final = (
    Column("process"),
    Column("pid", is_number=True, text=str),
    Column("up", lambda row: row["uptime_seconds"], is_number=True, text=duration),
    Column("cpu", lambda row: row["cpu_percent"], is_number=True, text=lambda share: f"{share:.1f} %"),
    Column("memory", lambda row: row["rss_bytes"], is_number=True, text=size),
    _stored("store", "file_bytes"),
    _stored("in use", "used_bytes"),
)
HOST_COLUMNS: Final = (
    Column("host"),
    Column("term", lambda row: row.get("term"), is_number=True, text=str),
)
"""Of processes in a broker on several hosts; the term is a primary's."""

HOSTS_COLUMNS: Final = (
    Column("host"),
    Column("state", style=lambda row: "" if row["state"] == "up" else "yellow"),
    *(Column(name, is_number=True) for name in ("leads", "replicas")),
    Column("in sync", lambda row: row["in_sync"], is_number=True),
)


def followers(row: Row) -> list[str]:
    """How far each follower of a group is behind, in a few words."""
    return [f"{each['host']} {_behind(each)}" for each in row["followers"]]


def _behind(follower: Row) -> str:
    records, seconds = follower["records"], follower["seconds"]
    if follower["joined_percent"] is not None:
        return f"{follower['state']} {follower['joined_percent']} %"
    if follower["state"] != "in sync" or records is None:
        return str(follower["state"])
    return f"{records:,} ({seconds:g} s)" if records else "0"


GROUP_COLUMNS: Final = (
    Column("shard", lambda row: row["group"]),
    Column("primary"),
    Column("term", is_number=True, text=str),
    Column("in sync", lambda row: row["in_sync"], is_wrapped=True),
    Column("behind", followers, is_wrapped=True),
    Column("state", is_wrapped=True, style=lambda row: "" if row["state"] == "whole" else "yellow"),
)
"""Of replica groups; behind are records that a follower does not have on its disk yet."""

QUEUE_COLUMNS: Final = (
    Column("queue", _queue_name, style=lambda row: "red" if "out_of_service" in row else ""),
    *(Column(name, is_number=True) for name in ("ready", "unacked", "consumers")),
    *(_rate(title, rate) for title, rate in zip(("in/s", "out/s", "ack/s"), RATES.values(), strict=True)),
    Column("bytes", is_number=True, text=size),
)


@click.command(short_help="Show processes, queues and stores.")
@click.option(
    "--interval",
    type=Number(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between the two looks that rates come from.",
)
@click.option("--watch", is_flag=True, help="Again and again, the busiest first, until Ctrl-C.")
@URL
@JSON
def status(*, interval: float, watch: bool, url: str, as_json: bool) -> None:
    """Show processes, queues (ready, unacked, consumers, rates, bytes) and stores.

    Users without the tag monitoring or administrator see the queues of their virtual hosts, and what they hold. In a
    pipe it is one line for each process and queue, tab-separated, and for each host and shard of a broker on several.
    """
    with connected(url) as connection:
        looks = StatusWatch(connection, interval)
        if as_json or not sys.stdout.isatty():
            show = print_json if as_json else print_lines
            show(looks.next())
            while watch:
                show(looks.next())
            return
        from rich.console import Console

        console = Console(highlight=False)
        if not watch:
            print_fitted(console, *page(looks.next(), console.width))
            return
        from rich.live import Live

        with Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live:
            while True:
                state = looks.next()
                live.update(page(state, console.width, console.height)[0], refresh=True)


def print_lines(state: Status) -> None:
    """Print the state for pipes: a line begins with "process", "host", "shard", "queue" or "note"."""
    columns = (*PROCESS_COLUMNS, *HOST_COLUMNS) if "groups" in state else PROCESS_COLUMNS
    for row in state["processes"]:
        click.echo("\t".join(("process", *(plain(column.of(row)) for column in columns))))
    for noun, rows, named in (("host", "hosts", HOSTS_COLUMNS), ("shard", "groups", GROUP_COLUMNS)):
        for row in state.get(rows, ()):
            click.echo("\t".join((noun, *(plain(column.of(row)) for column in named))))
    for row in state["queues"]:
        click.echo("\t".join(("queue", *(plain(column.of(row)) for column in QUEUE_COLUMNS))))
    for sentence, _ in notes(state):
        click.echo(f"note\t{sentence}")


def page(state: Status, width: int, height: int | None = None) -> "tuple[Group, int]":
    """What people see, and the width that it needs.

    Args:
        state: with rates.
        width: of the terminal.
        height: of the terminal, where only the busiest that fit are to be shown; None for all, in the broker's order.
    """
    from rich.console import Group
    from rich.text import Text

    said = [Text(sentence, style) for sentence, style in notes(state)]
    processes, queues = state["processes"], state["queues"]
    if height is None:
        room_of_processes = room_of_queues = None
    else:
        room = height - len(said) - TABLE_LINES - (TABLE_LINES if processes else 0)
        room_of_processes = max(ROWS_LEAST, min(len(processes), room // 2))
        room_of_queues = max(ROWS_LEAST, room - min(len(processes), room_of_processes))
    tables = []
    if processes:
        shown = processes if room_of_processes is None else busiest(processes, _process_load, room_of_processes)
        caption = ", ".join(filter(None, [_held(processes), hidden(len(processes) - len(shown))]))
        columns = (PROCESS_COLUMNS[0], *HOST_COLUMNS, *PROCESS_COLUMNS[1:]) if "groups" in state else PROCESS_COLUMNS
        tables.append(Table("processes", columns, shown, caption).fitted(width))
    if height is None and state.get("groups"):
        tables.append(Table("hosts", HOSTS_COLUMNS, state["hosts"], "").fitted(width))
        tables.append(Table("shards", GROUP_COLUMNS, state["groups"], "").fitted(width))
    shown = queues if room_of_queues is None else busiest(queues, _queue_load, room_of_queues)
    caption = ", ".join(filter(None, [counted(len(queues), "queue"), hidden(len(queues) - len(shown))]))
    queue_table, needed = Table("queues", QUEUE_COLUMNS, shown, caption).fitted(width)
    return Group(*(table for table, _ in tables), *said, queue_table), max([needed, *(each for _, each in tables)])


def busiest(rows: "Sequence[Row]", load: Any, room: int) -> list[Row]:
    """The rows with the greatest load, as many as there is room for; equals stay in their order."""
    return sorted(rows, key=load, reverse=True)[:room]


def _queue_load(row: Row) -> tuple[float, int]:
    return sum([row[rate] for rate in RATES.values()]), row["ready"] + row["unacked"]


def _process_load(row: Row) -> float:
    return float(row["cpu_percent"] or 0.0)


def hidden(number: int) -> str:
    """How many rows are not shown; nothing where all are."""
    return f"{number:,} less busy not shown" if number else ""


def _held(processes: list[Row]) -> str:
    """What all processes hold together."""
    held: dict[str, int] = {}
    for row in processes:
        for noun in HELD[row["role"]]:
            held[noun] = held.get(noun, 0) + row[f"{noun}s"]
    return ", ".join(counted(number, noun) for noun, number in held.items())


def notes(state: Status) -> list[tuple[str, str]]:
    """What is to be said beside the tables: (sentence, style)."""
    processes = state["processes"]
    said = [(f"publishers wait: {alarm}", "red") for row in processes for alarm in row.get("alarms", [])]
    said += [(found["text"], "red") for row in processes for found in row.get("damaged", [])]
    said += [(found["title"], "red") for found in state.get("findings", ())]
    said += [(sentence, "yellow") for sentence in logins(processes)]
    said += [(sentence, "") for sentence in transactions(processes)]
    return [(own(state["own"]), ""), *said] if "own" in state else said


def own(held: dict[str, int]) -> str:
    """What a user holds who does not see the processes."""
    words = [counted(number, noun.removesuffix("s")) for noun, number in held.items()]
    return f"this user has {words[0]}, {words[1]} and {words[2]}; processes are shown to the tag 'monitoring'"


def logins(processes: list[Row]) -> list[str]:
    """What is to be said of logins: nothing where none were refused and none wait."""
    refused, delayed, waiting = (
        sum(process.get(f"logins_{what}", 0) for process in processes) for what in ("refused", "delayed", "waiting")
    )
    if not refused and not waiting:
        return []
    return [
        f"refused since the gateways began: {counted(refused, 'login')}, {delayed:,} of them late; "
        f"waiting now: {waiting:,}"
    ]


def transactions(processes: list[Row]) -> list[str]:
    """What is to be said of transactions: nothing where there are none."""
    staged = [row for process in processes for row in process.get("staged", ())]
    undecided = sum(process.get("transactions", 0) for process in processes)
    concluding = sum(process.get("concluding", 0) for process in processes)
    said = []
    if undecided or staged:
        messages, count = (sum(row[name] for row in staged) for name in ("messages", "bytes"))
        said.append(
            f"staged: {counted(messages, 'message')}, {size(count)}; undecided: {counted(undecided, 'transaction')} "
            "(`shardmq transaction list`)"
        )
    if concluding:
        said.append(f"decided, and not yet so on every shard: {counted(concluding, 'transaction')}")
    return said
