"""Choosing rows and columns of a list: --sort, --filter and --columns."""

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final

import click

from shardmq.cmd.terminal.values import read_number

Row = dict[str, Any]

COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CONDITION: Final = re.compile(r"([^=!<>]+)(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
CONTROL: Final = {number: repr(chr(number))[1:-1] for number in (*range(32), *range(127, 160))}
"""Control characters as escapes: a name must not move the cursor, nor a tab split a row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list.

    Attributes:
        name: what --sort, --filter, --columns and JSON call it.
        value: makes it from a row; the row's field of that name when None.
        is_number: whether it is aligned to the right.
        is_extra: whether it is shown only when --columns names it.
        is_wrapped: whether a narrow terminal may break it between words. Names are never broken.
        text: makes the text for people from the value; plain text when None.
        style: makes a rich style from the row.
    """

    name: str
    value: Callable[[Row], Any] | None = None
    is_number: bool = False
    is_extra: bool = False
    is_wrapped: bool = False
    text: Callable[[Any], str] | None = None
    style: Callable[[Row], str] | None = None

    @property
    def title(self) -> str:
        """The column's name for people."""
        return title(self.name)

    def of(self, row: Row) -> Any:
        """The value in a row."""
        return row.get(self.name) if self.value is None else self.value(row)

    def shown(self, row: Row) -> str:
        """The text for people."""
        value = self.of(row)
        if value is None:
            return ""
        if self.text is not None:
            return self.text(value)
        return f"{value:,}" if type(value) is int else plain(value)


def names(*columns: str) -> tuple[Column, ...]:
    """Columns of text."""
    return tuple(Column(name) for name in columns)


def numbers(*columns: str) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(Column(name, is_number=True) for name in columns)


def extras(*columns: str) -> tuple[Column, ...]:
    """Columns shown only when --columns names them."""
    return tuple(Column(name, is_extra=True) for name in columns)


def features(*flags: str, otherwise: str = "transient") -> Column:
    """One column for several yes-or-no fields: it names those that are yes."""
    return Column("features", lambda row: [title(flag) for flag in flags if row[flag]] or [otherwise], is_wrapped=True)


def title(name: str) -> str:
    """A field's name for people."""
    return name.replace("_", " ").replace("-", " ")


def plain(value: Any) -> str:
    """A value as pipes and filters see it: one line, numbers without separators."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{plain(name)}={plain(inner)}" for name, inner in value.items())
        case list() | tuple():
            return ", ".join(map(plain, value))
        case _:
            return str(value).translate(CONTROL)


@dataclass(frozen=True, slots=True)
class Condition:
    """One --filter.

    Attributes:
        column: the name of the column that it is about.
        comparison: "=" or "!=" with a pattern; "<", "<=", ">" or ">=" with a number.
        wanted: the pattern, with * and ?, or the number, which may have a unit of bytes.
    """

    column: str
    comparison: str
    wanted: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Read a condition such as "name=orders*" or "ready>100".

        Raises:
            BadParameter: it is none.
        """
        match = CONDITION.fullmatch(text)
        if match is None:
            raise click.BadParameter(f"'{text}' is no condition; write one as name=orders* or ready>100")
        column, comparison, wanted = match.groups()
        if comparison in COMPARISONS:
            read_number(wanted)
        return cls(column.strip(), comparison, wanted)

    def holds(self, value: Any) -> bool:
        """Whether a value meets the condition; no value meets no comparison of numbers."""
        compare = COMPARISONS.get(self.comparison)
        if compare is not None:
            return isinstance(value, int | float) and compare(value, read_number(self.wanted))
        texts = [plain(value), *(map(plain, value) if isinstance(value, list | tuple) else ())]
        return any(fnmatchcase(text, self.wanted) for text in texts) == (self.comparison == "=")


@dataclass(frozen=True, slots=True)
class RowChoice:
    """What of a list is shown, and in which order.

    Attributes:
        sort: column names, the first one first; "-" in front of one turns its order round.
        conditions: all of them hold for a row that is shown.
        columns: names of the columns, in order; those of the list when empty.
    """

    sort: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    columns: tuple[str, ...] = ()

    def rows(self, rows: Iterable[Row], columns: Sequence[Column]) -> list[Row]:
        """The chosen rows, in order.

        Raises:
            BadParameter: a column does not exist.
        """
        chosen = list(rows)
        known = _known(columns, chosen)
        for condition in self.conditions:
            column = _find(condition.column, known, "--filter")
            chosen = [row for row in chosen if condition.holds(column.of(row))]
        for name in reversed(self.sort):
            column = _find(name.removeprefix("-"), known, "--sort")
            chosen.sort(key=_order(column), reverse=name.startswith("-"))
        return chosen

    def shown(self, rows: Sequence[Row], columns: Sequence[Column]) -> list[Column]:
        """The chosen columns, in order.

        Args:
            rows: all rows of the list; their fields can be columns as well.
            columns: those that the list declares.

        Raises:
            BadParameter: a column does not exist.
        """
        if not self.columns:
            return [column for column in columns if not column.is_extra]
        known = _known(columns, rows)
        return [_find(name, known, "--columns") for name in self.columns]


def _known(columns: Sequence[Column], rows: Sequence[Row]) -> dict[str, Column]:
    fields = {name: Column(name) for row in rows[:1] for name in row}
    return fields | {column.name: column for column in columns}


def _find(name: str, known: dict[str, Column], option: str) -> Column:
    if name in known:
        return known[name]
    close = get_close_matches(name, known, 1)
    guess = f" Did you mean '{close[0]}'?" if close else ""
    raise click.BadParameter(f"there is no column '{name}'.{guess} There are {', '.join(known)}.", param_hint=option)


def _order(column: Column) -> Callable[[Row], tuple[int, float, str]]:
    """Numbers before texts; what has no value is less than all that has."""

    def key(row: Row) -> tuple[int, float, str]:
        value = column.of(row)
        if value is None:
            return 0, 0.0, ""
        return (1, float(value), "") if isinstance(value, int | float) else (2, 0.0, plain(value))

    return key
