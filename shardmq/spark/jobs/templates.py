"""Routing keys, ids and headers made of columns: `{carrier}.{origin}`."""

import re
from typing import TYPE_CHECKING, Final

from shardmq.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_JSON: Final = {
    "ignoreNullFields": "false",
    # Spark's own formats end with milliseconds and silently drop the rest.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_NESTED: Final = ("struct", "array", "map", "variant")

Piece = str | tuple[str]
"""Text, or the name of a column in a tuple of its own."""


def parse(template: str) -> list[Piece]:
    """Cut a template into its pieces: names between braces are columns, doubled braces are braces.

    Raises:
        InvalidRequest: a brace stands alone, or nothing is between two.
    """
    pieces: list[Piece] = []
    place = 0

    def text(more: str) -> None:
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += more
        elif more:
            pieces.append(more)

    for found in _PIECE.finditer(template):
        text(template[place : found.start()])
        place = found.end()
        if found[0] in ("{{", "}}"):
            text(found[0][0])
        elif found[1]:
            pieces.append((found[1].strip(),))
        else:
            raise InvalidRequest(f"'{template}': {found[0]} stands alone; a column is {{name}}, a brace is doubled")
    text(template[place:])
    return pieces


def filled(rows: "DataFrame", template: str) -> "Column":
    """Fill a template for each row; a null column is empty text.

    Raises:
        InvalidRequest: the template is malformed, or names a column that does not exist.
    """
    from pyspark.sql import functions as F

    pieces = parse(template)
    if not pieces:
        return F.lit("")
    nothing = F.lit("")
    return F.concat(
        *(F.lit(piece) if isinstance(piece, str) else F.coalesce(text_of(rows, piece[0]), nothing) for piece in pieces)
    )


def key_of(rows: "DataFrame", key: str) -> "Column":
    """The routing key of each row, where `key` is a column's name or a template.

    Raises:
        InvalidRequest: it is neither.
    """
    if "{" in key or "}" in key:
        return filled(rows, key)
    return filled(rows, f"{{{key}}}")


def column_of(rows: "DataFrame", name: str) -> "Column":
    """A column by its name; with points, a field inside a column.

    Raises:
        InvalidRequest: it does not exist; the text lists the columns that do.
    """
    from pyspark.sql import functions as F

    if name in rows.columns:
        return F.col(f"`{name}`")
    if name.partition(".")[0] in rows.columns:
        return F.col(name)
    raise InvalidRequest(f"the files have no column '{name}'; they have {', '.join(rows.columns)}")


def text_of(rows: "DataFrame", name: str) -> "Column":
    """A column as text: structs, arrays and maps as JSON, other types as Spark writes them.

    Raises:
        InvalidRequest: it does not exist.
    """
    from pyspark.sql import functions as F

    column = column_of(rows, name)
    if type_of(rows, column).startswith(_NESTED):
        return F.to_json(column, _JSON)
    return column.cast("string")


def body_of(rows: "DataFrame", name: str | None) -> "Column":
    """The body of each row: one column, or the whole row as a JSON object.

    Args:
        rows: the rows.
        name: the column, whose bytes and texts stay as they are; None for the whole row, nulls included.

    Raises:
        InvalidRequest: the column does not exist.
    """
    from pyspark.sql import functions as F

    if name is None:
        return F.to_json(F.struct(*(F.col(f"`{column}`") for column in rows.columns)), _JSON)
    column = column_of(rows, name)
    return column if type_of(rows, column) == "binary" else text_of(rows, name)


def type_of(rows: "DataFrame", column: "Column") -> str:
    """The type of a column in Spark's words, such as "string" or "array<int>"."""
    return rows.select(column).dtypes[0][1]
