"""What a look through a closed store finds."""

from dataclasses import dataclass
from typing import Any, Final

from shardmq.storage.engine import Edit

NUMBERS_SHOWN: Final = 8
"""Ranges of numbers that a sentence names; all are in the JSON."""

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Damage in a store, or something worth knowing of it.

    Attributes:
        store: name of the process whose store it is.
        file: where.
        what: what is wrong.
        database: name of the database; "" where all of the file is meant.
        key: of the row, in hexadecimal.
        queue: id of the queue it belongs to; None where it belongs to none.
        title: that queue, by name where that is known.
        mend: what a repair does; "" where it can do nothing.
        messages: how many messages a repair would lose.
        numbers: which of the queue's those are, as half-open ranges.
        edits: what a repair writes.
        is_damage: whether it is damage; else it is only worth knowing.
    """

    store: str
    file: str
    what: str
    database: str = ""
    key: str = ""
    queue: int | None = None
    title: str = ""
    mend: str = ""
    messages: int = 0
    numbers: Ranges | None = None
    edits: tuple[Edit, ...] = ()
    is_damage: bool = True

    def table(self) -> dict[str, Any]:
        """It, for machines."""
        return {
            "store": self.store,
            "file": self.file,
            "database": self.database,
            "key": self.key,
            "queue": self.queue,
            "title": self.title,
            "what": self.what,
            "repair": self.mend,
            "messages_lost": self.messages,
            "numbers": self.numbers or [],
            "damage": self.is_damage,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """What can be done about a finding.

    Attributes:
        text: what a repair does, for people; "" where it can do nothing.
        edits: what it writes.
        messages: how many messages it loses.
        numbers: which of the queue's those are, as half-open ranges.
    """

    text: str
    edits: tuple[Edit, ...] = ()
    messages: int = 0
    numbers: Ranges | None = None


NO_REPAIR: Final = Repair("")
"""Nothing can be done."""


def numbers_text(numbers: Ranges) -> str:
    """Numbers of messages for people, as "0 to 9, 12"."""
    shown = [f"{start} to {end - 1}" if end - start > 1 else f"{start}" for start, end in numbers[:NUMBERS_SHOWN]]
    if len(numbers) > NUMBERS_SHOWN:
        shown.append(f"and {len(numbers) - NUMBERS_SHOWN:,} ranges more")
    return ", ".join(shown)
