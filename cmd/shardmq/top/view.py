"""What is shown of which queues, in which order, and what keys change of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.terminal.connection import connected
from shardmq.errors import ConnectionLost, InvalidRequest

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

ORDERS: Final = {
    "publish": "rates.publish",
    "deliver": "rates.deliver_get",
    "ack": "rates.ack",
    "ready": "ready",
    "unacked": "unacked",
    "messages": "messages",
    "consumers": "consumers",
    "name": "name",
}
"""What queues are sorted by, and the broker's columns for it."""

BY_NAME: Final = "name"

FILTER_MAX: Final = 255
"""Characters of a filter: no queue's name has more."""

Look = dict[str, Any]


@dataclass(slots=True)
class View:
    """What is shown.

    Attributes:
        order: one of ORDERS; numbers from the largest down, names from the first on.
        is_reversed: whether it is the other way round.
        name: only queues whose name contains this; "" for all.
        vhost: only queues of this virtual host; None for all that the user may see.
        page: from 1 on.
        typed: the filter that is being typed; None where none is.
    """

    order: str = "publish"
    is_reversed: bool = False
    name: str = ""
    vhost: str | None = None
    page: int = 1
    typed: str | None = None

    def press(self, key: str) -> bool:
        """Do what a key means; returns whether it means to quit."""
        if self.typed is not None:
            self._type(key, self.typed)
            return False
        if key in ("q", "Q", "\x03"):
            return True
        action = KEYS.get(key)
        if action is not None:
            action(self)
        return False

    def turn(self, by: int) -> None:
        """Go to another page; `Looker.look` takes care of there being one."""
        self.page = max(1, self.page + by)

    def reorder(self, by: int) -> None:
        """Take the next order, or the one before."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + by) % len(names)]
        self.is_reversed, self.page = False, 1

    def reverse(self) -> None:
        """Turn the order round."""
        self.is_reversed, self.page = not self.is_reversed, 1

    def ask(self) -> None:
        """Begin to type a filter."""
        self.typed = self.name

    def _type(self, key: str, typed: str) -> None:
        match key:
            case "\r" | "\n":
                self.name, self.typed, self.page = typed, None, 1
            case "\x1b":
                self.typed = None
            case "\x7f" | "\b":
                self.typed = typed[:-1]
            case "\x15":  # Ctrl-U, as in shells
                self.typed = ""
            case _ if key.isprintable():
                self.typed = (typed + key)[:FILTER_MAX]


KEYS: Final[dict[str, Callable[[View], None]]] = {
    "s": lambda view: view.reorder(1),
    "S": lambda view: view.reorder(-1),
    "r": View.reverse,
    "/": View.ask,
    "n": lambda view: view.turn(1),
    "p": lambda view: view.turn(-1),
}
"""What keys do."""


class Looker:
    """Looks at a broker, and connects again where the connection is lost.

    Args:
        url: of the broker.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None

    def look(self, view: View, rows: int) -> Look:
        """The broker's overview, and as many queues as there is room for.

        Args:
            view: which queues; its page becomes the last one where there are fewer.
            rows: how many queues there is room for.

        Raises:
            ShardmqError: the broker does not answer, or refuses.
        """
        from shardmq.client.api.statistics import ListQuery

        try:
            if self._connection is None:
                self._connection = connected(self._url)
            overview = self._connection.stats_overview(view.vhost)
            reverse = (view.order != BY_NAME) != view.is_reversed
            query = ListQuery(
                view.vhost, view.name, sort=ORDERS[view.order], reverse=reverse, page=view.page, page_size=rows
            )
            try:
                found = self._connection.stats_list("queues", query)
            except InvalidRequest:
                if view.page == 1:
                    raise
                found = self._connection.stats_list("queues", replace(query, page=1))
                view.page = found["page_count"]  # there are fewer, or the terminal has grown
                found = self._connection.stats_list("queues", replace(query, page=view.page))
        except ConnectionLost:
            self.close()
            raise
        return {
            "overview": overview,
            "queues": found["items"],
            "found": found["filtered_count"],
            "page_count": found["page_count"],
        }

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
