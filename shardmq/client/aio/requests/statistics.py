"""What exists, page by page, with counters and rates: part of Connection."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from shardmq.client.api.statistics import EVERYTHING, ListQuery
from shardmq.client.core.requests import statistics
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class StatisticsRequests(ABC):
    """The verbs of those who watch a broker: part of a connection.

    They are for users with a tag: "management" and "policymaker" see the virtual hosts that they have a permission in
    and their own connections, "monitoring" and "administrator" see all. Others get AccessRefused.
    """

    @abstractmethod
    async def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    async def stats_list(self, noun: str, query: ListQuery = EVERYTHING) -> dict[str, Any]:
        """List things of one kind, with counters and rates.

        Args:
            noun: "queues", "exchanges", "bindings", "topics", "groups", "vhosts", "users", "connections", "channels" or
                "consumers".
            query: which of them, in which order, and how much of each.

        Returns:
            "items", a table for each; "page", "page_size", "page_count"; "item_count" of them on this page,
            "filtered_count" on all pages, and "total_count" without the filter by name.
        """
        return await self._ask(statistics.stats_list(noun, query))

    async def stats_get(self, noun: str, vhost: str, name: str) -> dict[str, Any]:
        """Describe one thing in detail.

        Args:
            noun: as in `stats_list`, but for bindings, groups and consumers.
            vhost: its virtual host; "" for what is in none.
            name: its name, as lists have it.

        Raises:
            NotFound: it does not exist.
        """
        return await self._ask(statistics.stats_get(noun, vhost, name))

    async def stats_overview(self, vhost: str | None = None, *, is_detailed: bool = False) -> dict[str, Any]:
        """Sum up the broker: totals, rates, churn, alarms, processes.

        Args:
            vhost: of one virtual host; None for all that the user may see.
            is_detailed: with histograms, for users who see all.
        """
        return await self._ask(statistics.stats_overview(vhost, is_detailed))

    async def findings_tell(self, findings: Sequence[tuple[bool, dict[str, Any]]]) -> bool:
        """Publish findings that begin or end to the exchange `amq.rabbitmq.event`, where the broker's events are.

        Args:
            findings: whether each begins, and what is told of it, at most 100; none to ask whether anybody would hear.

        Returns:
            Whether anything is bound to the exchange.
        """
        return await self._ask(statistics.findings_tell(findings))
