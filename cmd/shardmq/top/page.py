"""A look as people see it."""

from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.terminal.rows import Column, Row, plain
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted, duration, size, whole
from shardmq.cmd.top.view import Look, View
from shardmq.topology.entities import DEFAULT_VHOST

if TYPE_CHECKING:
    from rich.console import Group

OUT: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""What takes messages out of a queue."""

LINES: Final = 8
"""Lines that are no rows: two of the overview, the table's header and rule, its captions, the keys, and one spare."""

ROWS_LEAST: Final = 3

HELP: Final = "q quit  s sort  r reverse  / filter  n, p page"


def _name(row: Row) -> str:
    name = row["name"] if row["vhost"] == DEFAULT_VHOST else f"{row['vhost']}: {row['name']}"
    return name if row["state"] == "running" else f"{name} ({row['state']})"


def _rate(title: str, *names: str) -> Column:
    def value(row: Row) -> float | None:
        rates = row.get("rates")
        return None if rates is None else round(sum([rates.get(name, 0.0) for name in names]), 1)

    return Column(title, value, is_number=True, text=whole)


COLUMNS: Final = (
    Column("queue", _name, style=lambda row: "" if row["state"] == "running" else "red"),
    *(Column(name, is_number=True) for name in ("ready", "unacked", "consumers")),
    _rate("in/s", "publish"),
    _rate("out/s", *OUT),
    _rate("ack/s", "ack"),
    Column("bytes", is_number=True, text=size),
)


def overview(look: Look) -> list[tuple[str, str]]:
    """What is to be said of the broker: sentences, each with its style."""
    found = look["overview"]
    totals, rates, queues = found["object_totals"], found["rates"], found["queue_totals"]
    ages = [row["uptime_seconds"] for row in found.get("processes", ()) if row["role"] == "coordinator"]
    nouns = ("queue", "connection", "channel", "consumer")
    held = ", ".join(counted(totals.get(f"{noun}s") or 0, noun) for noun in nouns)
    out = sum([rates.get(name, 0.0) for name in OUT])
    said = [
        (held + "".join(f", up {duration(age)}" for age in ages), ""),
        (
            f"in {whole(rates['publish'])}/s, out {whole(out)}/s, ack {whole(rates['ack'])}/s; "
            f"ready {queues['ready']:,}, unacked {queues['unacked']:,}",
            "bold",
        ),
    ]
    said += [(f"publishers wait: {alarm}", "red") for alarm in found.get("alarms", ())]
    if found["away"]:
        said.append((f"away: {', '.join(found['away'])}", "red"))
    return said


def lines(look: Look) -> list[str]:
    """A look for pipes: a line begins with "broker" or "queue"."""
    said = [f"broker\t{plain(sentence)}" for sentence, _ in overview(look)]
    return said + ["\t".join(("queue", *(plain(column.of(row)) for column in COLUMNS))) for row in look["queues"]]


def page(look: Look | None, view: View, width: int, fault: str = "") -> "Group":
    """A look for a terminal.

    Args:
        look: None before the first one that was answered.
        view: what was asked for.
        width: of the terminal.
        fault: why there is no newer look; "" where there is.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(fault, "red")] if fault else []
    if look is not None:
        parts += [Text(sentence, style, overflow="ellipsis", no_wrap=True) for sentence, style in overview(look)]
        parts.append(Table("", COLUMNS, look["queues"], _caption(look, view)).fitted(width)[0])
    keys = HELP if view.typed is None else f"filter: {plain(view.typed)}_  (Enter takes it, Esc leaves it)"
    parts.append(Text(keys, "reverse", overflow="ellipsis", no_wrap=True))
    return Group(*parts)


def rows_for(height: int, look: Look | None) -> int:
    """How many queues a terminal of that height has room for."""
    notes = 0 if look is None else len(overview(look)) - 2
    return min(500, max(ROWS_LEAST, height - LINES - notes))


def _caption(look: Look, view: View) -> str:
    order = f"by {view.order}{' reversed' if view.is_reversed else ''}"
    which = f" with '{plain(view.name)}'" if view.name else ""
    where = f"page {view.page} of {look['page_count']}, " if look["page_count"] > 1 else ""
    return f"{counted(look['found'], 'queue')}{which}, {where}{order}"
