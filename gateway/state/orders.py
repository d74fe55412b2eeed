"""What exists in the order in which lists have it, remembered: a list of 10,000 things is read page by page."""

from collections.abc import Callable
from typing import Any, Final

ORDERS_MAX: Final = 16
"""Lists that are remembered; with one more, all are made anew. 10,000 things take 80 KB."""


class Orders:
    """Things of the topology in order, until that changes."""

    def __init__(self) -> None:
        self._remembered: dict[tuple[str, frozenset[str]], list[Any]] = {}

    def of(self, noun: str, vhosts: frozenset[str], make: Callable[[frozenset[str]], list[Any]]) -> list[Any]:
        """What there is of one kind in these virtual hosts, in order.

        Args:
            noun: the kind.
            vhosts: the virtual hosts.
            make: finds them, in order, where they are not remembered.

        Returns:
            A list that is not to be changed.
        """
        place = noun, vhosts
        found = self._remembered.get(place)
        if found is None:
            if len(self._remembered) >= ORDERS_MAX:
                self._remembered.clear()
            found = self._remembered[place] = make(vhosts)
        return found

    def forget(self) -> None:
        """Forget all of them: the topology has changed."""
        self._remembered.clear()
