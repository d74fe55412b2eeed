"""The memory that one large message takes of a gateway and a shard, by the protocols that it comes and goes by."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.footprint.processes import taken_by
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.terminal.output import Say
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

QUEUE: Final = "large"


class Clients:
    """A client of each protocol, with one large message.

    Args:
        broker: that they are connected to.
        body: of the message.
    """

    def __init__(self, broker: Broker, body: bytes) -> None:
        import pika

        self._body = body
        self._native = connect(broker.url, timeout=120.0)
        self._channel = self._native.channel()
        self._channel.queue_declare(QUEUE, durable=True)
        self._amqp = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0))

    def close(self) -> None:
        """Close both connections."""
        self._native.close()
        self._amqp.close()

    def publish(self) -> None:
        """By the SDK."""
        self._channel.basic_publish("", QUEUE, self._body)

    def publish_by_amqp(self) -> None:
        """By pika, with a confirm."""
        channel = self._amqp.channel()
        channel.confirm_delivery()
        self._send(channel)

    def publish_in_tx(self) -> None:
        """By pika, in a transaction."""
        channel = self._amqp.channel()
        channel.tx_select()
        self._send(channel)
        channel.tx_commit()

    def _send(self, channel: "BlockingChannel") -> None:
        import pika

        channel.basic_publish("", QUEUE, self._body, pika.BasicProperties(delivery_mode=2))

    def get(self) -> None:
        """By the SDK."""
        message = self._channel.basic_get(QUEUE, auto_ack=True)
        self._check(message.body if message is not None else None)

    def consume(self) -> None:
        """By the SDK."""
        channel = self._native.channel()
        for message in channel.consume(QUEUE, inactivity_timeout=120.0):
            self._check(message.body)
            message.ack()
            break
        channel.close()

    def get_by_amqp(self) -> None:
        """By pika."""
        _, _, body = self._amqp.channel().basic_get(QUEUE, auto_ack=True)
        self._check(body)

    def consume_by_amqp(self) -> None:
        """By pika."""
        channel = self._amqp.channel()
        for method, _, body in channel.consume(QUEUE, inactivity_timeout=120.0):
            self._check(body)
            channel.basic_ack(method.delivery_tag)
            break
        channel.cancel()
        channel.close()

    def purge(self) -> None:
        """Empty the queue."""
        self._channel.queue_purge(QUEUE)

    def _check(self, body: bytes | None) -> None:
        if body != self._body:
            raise ShardmqError("the large message did not come as it was published")


Work = Callable[[Clients], None]

WORKS: Final[dict[str, tuple[str, tuple[tuple[Work | None, Work], ...]]]] = {
    "published": (
        "published, natively or over AMQP, `tx` included",
        ((None, Clients.publish), (None, Clients.publish_by_amqp), (None, Clients.publish_in_tx)),
    ),
    "native": ("delivered, or got, natively", ((Clients.publish, Clients.consume), (Clients.publish, Clients.get))),
    "amqp": (
        "delivered, or got, over AMQP",
        ((Clients.publish_by_amqp, Clients.consume_by_amqp), (Clients.publish_by_amqp, Clients.get_by_amqp)),
    ),
    "crossing": (
        "delivered natively, published over AMQP",
        ((Clients.publish_by_amqp, Clients.consume), (Clients.publish_by_amqp, Clients.get)),
    ),
}
"""Rows by name: what each is about, and what is done before and while memory is looked at; the greatest counts."""


def rows(folder: Path, size: int, say: Say) -> list[dict[str, Any]]:
    """Measure; returns the rows of a file of results.

    Args:
        folder: on the disk that the broker writes to.
        size: bytes of the message.
        say: is told each row.
    """
    options = ("--message-size-max", str(size))
    with Broker(folder / "large", shards=1, options=options) as broker:
        clients = Clients(broker, bytes(size))
        try:
            return [measured(broker, clients, size, name, say) for name in WORKS]
        finally:
            clients.close()


def measured(broker: Broker, clients: Clients, size: int, name: str, say: Say) -> dict[str, Any]:
    """Measure a row."""
    what, works = WORKS[name]
    most: dict[str, int] = {}
    for before, work in works:
        if before is not None:
            before(clients)
        taken = taken_by(functools.partial(work, clients), broker.pids)
        clients.purge()
        most = {role: max(most.get(role, 0), taken[role]) for role in ("gateway", "shard")}
    say(f"{what}: " + ", ".join(f"{role} {found >> 20:,} MiB" for role, found in most.items()))
    times = {role: f"{found / size:.1f} times ({found >> 20:,} MiB)" for role, found in most.items()}
    return {"id": name, "what": what, **times, "bytes": most}
