"""What a list is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which items of a list are wanted, in which order, and how much of each.

    Attributes:
        vhost: their virtual host; None for all that the user may see.
        name: only those whose name contains this, whatever the case; "" for all.
        use_regex: whether `name` is a regular expression.
        sort: the column to sort by, dotted where it is in a table, as "rates.publish"; "" for the name.
        reverse: whether the largest come first.
        page: from 1 on; 0 for everything on one page.
        page_size: items of a page, 500 at most.
        columns: those wanted, dotted where they are in a table; () for all.
        with_statistics: whether queues are to have what their shards count.
    """

    vhost: str | None = None
    name: str = ""
    use_regex: bool = False
    sort: str = ""
    reverse: bool = False
    page: int = 0
    page_size: int = 100
    columns: Sequence[str] = ()
    with_statistics: bool = True


EVERYTHING = ListQuery()
"""All items of a list, by name, with all columns."""
