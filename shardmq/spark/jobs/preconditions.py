"""What must exist before a job starts, and what its queues hold afterwards: asked from the broker, without Spark."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

ANSWER_SECONDS: Final = 30.0
"""How long a job waits for an answer before it fails, in seconds."""


def connected(url: str) -> "Connection":
    """Connect for a request or two, without recovery.

    Raises:
        ConnectionLost: no broker answers.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    from shardmq.client.sync.connection import connect

    return connect(url, timeout=ANSWER_SECONDS, recovery=None)


def check_exchange(url: str, exchange: str | None) -> None:
    """Check that the broker answers and an exchange exists.

    Args:
        url: the broker's.
        exchange: the exchange's name; "" always exists, None checks the broker alone.

    Raises:
        NotFound: the exchange does not exist.
        ConnectionLost: no broker answers.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    with connected(url) as connection:
        if exchange:
            connection.channel().exchange_declare(exchange, passive=True)


def ready(url: str, queue: str) -> int:
    """How many messages a queue has ready.

    Raises:
        NotFound: the queue does not exist.
        ConnectionLost: no broker answers.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    with connected(url) as connection:
        return connection.channel().queue_declare(queue, passive=True).messages


def check_topic(url: str, topic: str) -> None:
    """Check that a topic or stream exists, and that its messages may be read.

    Raises:
        NotFound: it does not exist.
        PreconditionFailed: it is a queue whose messages have no offsets.
        AccessRefused: it may not be read.
        ConnectionLost: no broker answers.
        AuthenticationFailed: user, password or virtual host were refused.
    """
    with connected(url) as connection:
        connection.channel().pull(topic, 0, "latest")


def queues_behind(url: str, exchanges: Iterable[str]) -> dict[str, int]:
    """The queues that exchanges lead to, also by way of other exchanges, with their ready messages.

    The default exchange, which leads to every queue, counts for none. A queue whose shard is away now is left out.
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
        # A list, as a declaration would be refused where a queue is another connection's alone.
        ready = {row["name"]: row["ready"] for row in connection.topology("queues")}
        return {queue: ready[queue] for queue in sorted(queues) if ready.get(queue) is not None}
