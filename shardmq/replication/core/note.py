"""The note that lies in a replica's store, and where two histories part.

The note is part of every commit: what a store holds and what its note says never differ.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from shardmq.storage.engine import Edit

Edits = Sequence[Edit]
"""Edits of one commit. They are handed on as they come, and only their keys are looked at."""

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

Key = tuple[Number, bytes]
"""Database and key of a row; rows of a store are in this order."""

BEGINNING: Final[Key] = (0, b"")
"""Before all rows of a store."""

History = tuple[tuple[Number, Number], ...]
"""Terms and the first index of each, oldest first."""

Leads = tuple[tuple[Number, Number], ...]
"""Terms of a history, and the number that the primary of each drew when it began to lead. It is another one where etcd
was restored from a snapshot, and a term is led a second time. Replicas of before there were numbers have none."""


class Note(msgspec.Struct, array_like=True, frozen=True):
    """What a replica's store says about itself.

    Attributes:
        incarnation: of the group whose records the store holds; "" for a store that holds none yet.
        promised: the highest term that the replica acknowledged; it refuses lower ones.
        term: of the last record.
        index: of the last record; 0 before the first.
        released: index up to which records were released, as far as the replica knew.
        history: terms of the records, and where each began.
        copied: where a join is: rows before this key are there. None where the store is complete.
        leads: the numbers that the terms' primaries drew.
    """

    incarnation: str
    promised: Number = 0
    term: Number = 0
    index: Number = 0
    released: Number = 0
    history: History = ()
    copied: Key | None = None
    leads: Leads = ()

    @property
    def is_complete(self) -> bool:
        """Whether the store has all rows: who has not may not be primary."""
        return self.copied is None


class Log(NamedTuple):
    """The records that a replica holds, by their terms.

    Attributes:
        history: terms, and the first index of each.
        last: index of the last record.
        leads: the numbers that the terms' primaries drew, as far as they are known.
    """

    history: History
    last: int
    leads: Leads = ()


def common_point(one: Log, other: Log) -> int | None:
    """Return the last index up to which two replicas hold the same records.

    A term has one primary, so that a term and an index name one record and all before it; where etcd was restored, and
    had forgotten terms, it takes the primary's number as well. What was released is no help here: a replica may know
    less of it than it holds (KIP-101).

    Returns:
        None where the histories have no term in common, and one of them no longer reaches back to the first record.
    """
    spans, leads = spans_of(one.history, one.last), dict(one.leads)
    drawn_by_other = dict(other.leads)
    for term, (first, last) in reversed(spans_of(other.history, other.last).items()):
        if term in spans and spans[term][0] == first and is_one_lead(leads.get(term), drawn_by_other.get(term)):
            return min(last, spans[term][1])
    begins_at_first = all(not history or history[0][1] == 1 for history in (one.history, other.history))
    return 0 if begins_at_first else None


def is_one_lead(drawn: int | None, other: int | None) -> bool:
    """Whether two replicas took the records of a term from one primary, by the numbers that they know of it."""
    return drawn is None or other is None or drawn == other


def spans_of(history: History, last: int) -> dict[int, tuple[int, int]]:
    """Return the first and the last index of each term."""
    ends = [first - 1 for _, first in history[1:]] + [last]
    return {term: (first, end) for (term, first), end in zip(history, ends, strict=True)} if history else {}
