"""Dead letters counted by queue, reason and source."""

from shardmq.client.api.results import DeathsPage
from shardmq.management.dead_letters.finding import Row
from shardmq.management.dead_letters.walking import Walk
from shardmq.search.filters import DeathFilters, SearchFilters


class Groups:
    """Dead letters counted by queue, reason and source."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}

    def count(self, queue: str, page: DeathsPage) -> None:
        """Count those that a page of a search has found."""
        for group in page.groups:
            row = self._rows.setdefault(
                (queue, group.reason, group.queue),
                {
                    "queue": queue,
                    "reason": group.reason,
                    "source": group.queue,
                    "messages": 0,
                    "oldest": None,
                    "newest": None,
                },
            )
            row["messages"] += group.messages
            if group.first_ms is not None and group.last_ms is not None:
                first, last = group.first_ms // 1000, group.last_ms // 1000
                row["oldest"] = first if row["oldest"] is None else min(row["oldest"], first)
                row["newest"] = last if row["newest"] is None else max(row["newest"], last)

    def rows(self) -> list[Row]:
        """A row for each group, in order."""
        return [self._rows[key] for key in sorted(self._rows)]


async def count_all(walk: Walk, filters: SearchFilters) -> Groups:
    """The dead letters of all queues of a walk.

    A queue whose first page holds none, whatever they died of, is taken for one that dead letters do not go to.
    """
    groups = Groups()
    async for queue in walk.queues():
        if (await walk.look(queue, SearchFilters(death=DeathFilters()))).groups:
            async for page in walk.pages(queue, filters):
                groups.count(queue, page)
    return groups
