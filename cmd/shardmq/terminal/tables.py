"""Tables: for people on a terminal, tab-separated in a pipe, and as JSON."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, plain
from shardmq.cmd.terminal.values import counted, singular

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table as RichTable

GAP: Final = 2
"""Characters between two columns."""

TRAILING_SPACES: Final = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")
"""Spaces at the end of a line, and the escapes after them."""

FACTS: Final = (Column("fact"), Column("value", is_number=True))
"""The columns of a table that has one row for each fact."""


def print_list(
    noun: str, rows: Sequence[Row], columns: Sequence[Column], choice: RowChoice, as_json: bool, one: str = ""
) -> None:
    """Print what was chosen of a list.

    Args:
        noun: what is listed, in the plural.
        rows: one dictionary for each.
        columns: the columns that the list has; JSON has all fields unless columns were chosen.
        choice: rows, order and columns that were asked for.
        as_json: whether it is to be JSON, raw values.
        one: what a row is, where it is more or less than one of the noun's.

    Raises:
        BadParameter: a column that was asked for does not exist.
    """
    chosen = choice.rows(rows, columns)
    shown = choice.shown(rows, columns)
    if as_json:
        picked = [{column.name: column.of(row) for column in shown} for row in chosen]
        print_json(picked if choice.columns else chosen)
        return
    caption = counted(len(rows), one) if one else f"1 {singular(noun)}" if len(rows) == 1 else f"{len(rows):,} {noun}"
    if len(chosen) < len(rows):
        caption = f"{len(chosen):,} of {caption}"
    Table(noun, shown, chosen, caption, is_whole=bool(choice.columns)).print()


def print_facts(title: str, facts: Mapping[str, str]) -> None:
    """Print facts, one a line.

    Args:
        title: stands above them on a terminal.
        facts: name to value, both as people read them.
    """
    rows: list[Row] = [{"fact": fact, "value": value} for fact, value in facts.items()]
    Table(title, FACTS, rows, has_header=False, is_whole=True).print()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a title.

    Attributes:
        title: stands above the rows.
        columns: the most important ones first; those that do not fit are left out, and named below the rows.
        rows: one dictionary for each.
        caption: stands below the rows.
        has_header: whether columns have titles.
        is_whole: whether every column is printed, however wide that is.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    has_header: bool = True
    is_whole: bool = False

    def print(self) -> None:
        """Print the table on a terminal; elsewhere its rows alone, tab-separated, one a line."""
        if not sys.stdout.isatty():
            for row in self.rows:
                click.echo("\t".join(plain(column.of(row)) for column in self.columns))
            return
        from rich.console import Console

        console = Console(highlight=False)
        print_fitted(console, *self.fitted(console.width))

    def fitted(self, width: int) -> "tuple[Group, int]":
        """The table for a terminal, and the width that it needs: more than it has where one name is longer.

        Nothing is cut and no name is wrapped. Columns that do not fit are left out, from the last one.
        """
        from rich.console import Group
        from rich.text import Text

        texts = {column.name: [column.shown(row) for row in self.rows] for column in self.columns}
        least = {column.name: _least(column, texts[column.name], self.has_header) for column in self.columns}
        fitting = list(self.columns)

        def needed() -> int:
            return sum([least[column.name] for column in fitting]) + GAP * (len(fitting) - 1)

        while not self.is_whole and len(fitting) > 1 and needed() > width:
            fitting.pop()
        room = max(0, width - needed())
        table = _empty_table(self.has_header)
        widths = _widths(fitting, least, texts, room)
        for column in fitting:
            table.add_column(
                column.title if self.has_header else "",
                justify="right" if column.is_number else "left",
                no_wrap=not column.is_wrapped,
                overflow="fold" if column.is_wrapped else "crop",
                width=widths[column.name],
            )
        for place, row in enumerate(self.rows):
            cells = [Text(texts[column.name][place], column.style(row) if column.style else "") for column in fitting]
            table.add_row(*cells)
        left_out = ", ".join(column.name for column in self.columns[len(fitting) :])
        hidden = left_out and f"not shown for want of room: {left_out}"
        below = [Text(_lines(text, width), "dim", overflow="ignore") for text in (self.caption, hidden) if text]
        return Group(
            *([Text(_lines(self.title, width), "bold", overflow="ignore")] if self.title else []), table, *below
        ), needed()


def print_fitted(console: "Console", table: "Group", width: int) -> None:
    """Print what `Table.fitted` made. Where a name is longer than the terminal, only its own line is too long."""
    room = console.width
    if width <= room:
        console.print(table, crop=False)
        return
    console.width = width
    with console.capture() as capture:
        console.print(table, crop=False)
    console.width = room
    for line in capture.get().splitlines():
        click.echo(TRAILING_SPACES.sub(r"\1", line.replace("─" * width, "─" * room)), color=True)


def _empty_table(has_header: bool) -> "RichTable":
    from rich import box
    from rich.table import Table as RichTable

    return RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, show_header=has_header)


def _lines(text: str, width: int) -> str:
    """Break a text between words; names that are wider stay whole."""
    return fill(text, max(1, width), break_long_words=False, break_on_hyphens=False)


def _widths(columns: Sequence[Column], least: dict[str, int], texts: dict[str, list[str]], room: int) -> dict[str, int]:
    """Give the room that is left to the columns that may be wrapped, first to those with the most lines."""
    from rich.cells import cell_len

    widths = {column.name: least[column.name] for column in columns}
    whole = {column.name: max(map(cell_len, texts[column.name]), default=0) for column in columns if column.is_wrapped}
    for _ in range(room if whole else 0):
        widest = max(whole, key=lambda name: whole[name] / max(1, widths[name]))
        if whole[widest] <= widths[widest]:
            break
        widths[widest] += 1
    return widths


def _least(column: Column, texts: Sequence[str], has_header: bool) -> int:
    """The least width of a column: its widest text, or its longest word where it may be wrapped."""
    from rich.cells import cell_len

    pieces = texts if not column.is_wrapped else [word for text in texts for word in text.split(" ")]
    return (
        max([cell_len(piece) for piece in pieces], default=0)
        if not has_header
        else max([cell_len(column.title), *map(cell_len, pieces)])
    )
