"""Dead letters counted by queue, reason and source."""

from shardmq.client.api.message import Message
from shardmq.management.dead_letters.chosen import Chosen, Row, last_death, time_of
from shardmq.management.dead_letters.walking import Walk


class Groups:
    """Dead letters counted by queue, reason and source.

    Args:
        chosen: those that count.
    """

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._rows: dict[tuple[str, str, str], Row] = {}

    def count(self, queue: str, messages: list[Message]) -> bool:
        """Count those that are meant; returns whether any of them died."""
        has_dead = False
        for message in messages:
            death = last_death(message)
            if death is None:
                continue
            has_dead = True
            if self._chosen.has(message):
                self._add(queue, death)
        return has_dead

    def _add(self, queue: str, death: Row) -> None:
        reason, source = str(death.get("reason", "")), death["queue"]
        row = self._rows.setdefault(
            (queue, reason, source),
            {"queue": queue, "reason": reason, "source": source, "messages": 0, "oldest": None, "newest": None},
        )
        row["messages"] += 1
        when = time_of(death)
        if when is not None:
            row["oldest"] = when if row["oldest"] is None else min(row["oldest"], when)
            row["newest"] = when if row["newest"] is None else max(row["newest"], when)

    def rows(self) -> list[Row]:
        """A row for each group, in order."""
        return [self._rows[key] for key in sorted(self._rows)]


async def count_all(walk: Walk, chosen: Chosen) -> Groups:
    """The dead letters of all queues of a walk.

    A queue whose first portion holds none is taken for one that dead letters do not go to.
    """
    groups = Groups(chosen)
    async for queue, messages in walk.portions():
        if not groups.count(queue, messages):
            walk.leave()
    return groups
