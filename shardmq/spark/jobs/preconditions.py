"""What there must be before a job starts, and what is there after it: the broker asked, without Spark."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

ANSWER_SECONDS: Final = 30.0
"""A broker that does not answer for so long has failed the job before it began."""


def connected(url: str) -> "Connection":
    """A connection for a question or two.

    Raises:
        ConnectionLost: there is no broker.
        AuthenticationFailed: it does not know us.
    """
    from shardmq.client.sync.connection import connect

    return connect(url, timeout=ANSWER_SECONDS, recovery=None)


def check_exchange(url: str, exchange: str | None) -> None:
    """Make sure that the broker is there, and the exchange.

    Args:
        url: the broker's.
        exchange: its name; "" is always there, None asks for the broker alone.

    Raises:
        NotFound: the exchange is not there.
        ConnectionLost, AuthenticationFailed: as `connected`.
    """
    with connected(url) as connection:
        if exchange:
            connection.channel().exchange_declare(exchange, passive=True)


def ready(url: str, queue: str) -> int:
    """How many messages a queue has ready.

    Raises:
        NotFound: there is no such queue.
        ConnectionLost, AuthenticationFailed: as `connected`.
    """
    with connected(url) as connection:
        return connection.channel().queue_declare(queue, passive=True).messages


def queues_behind(url: str, exchanges: Iterable[str]) -> dict[str, int]:
    """The queues that are bound to exchanges, or to exchanges that are bound to them, each with its messages ready now.

    Those of the default exchange are not among them: it leads to all there are.
    """
    wanted = {exchange for exchange in exchanges if exchange}
    if not wanted:
        return {}
    with connected(url) as connection:
        bindings = connection.topology("bindings")
        queues: set[str] = set()
        while True:
            ends = [binding for binding in bindings if binding["source"] in wanted]
            queues.update(end["destination"] for end in ends if end["destination_type"] != "exchange")
            more = {end["destination"] for end in ends if end["destination_type"] == "exchange"} - wanted
            if not more:
                break
            wanted |= more
        channel = connection.channel()
        return {queue: channel.queue_declare(queue, passive=True).messages for queue in sorted(queues)}
