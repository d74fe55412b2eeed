"""Copies of messages, as they come: from a queue of a command's own, until there are enough or their reader is gone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.messages.stdout_reader import StdoutReader
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.api.message import Batch, Message
    from shardmq.client.sync.connection import Connection

PREFETCH: Final = 1000
WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 << 20
"""What a follower that is behind may have waiting on the broker; the oldest copies are dropped beyond it."""

Terms = tuple[str, dict[str, Any]]
"""A routing key and a binding's arguments."""


@contextmanager
def read_by(reader: StdoutReader, connection: "Connection") -> Iterator[None]:
    """Close the connection when the reader of stdout goes, and end then as programs in pipes do."""
    reader.watch(connection.close)
    try:
        yield
    except ShardmqError as fault:
        if reader.is_gone:  # that is why the connection was closed
            raise BrokenPipeError from fault
        raise


def copies_of(connection: "Connection", exchange: str, terms: Sequence[Terms], said: str) -> "Iterator[Batch]":
    """Batches of what an exchange routes from now on, from a queue that goes with the connection.

    Args:
        connection: to the broker.
        exchange: that the queue is bound to.
        terms: how it is bound.
        said: on stderr, once it is.
    """
    channel = connection.channel()
    limits = {"x-max-length": WAITING_MAX, "x-max-length-bytes": WAITING_BYTES_MAX}
    queue = channel.queue_declare(exclusive=True, auto_delete=True, arguments=limits).queue
    copies = channel.consume_batches(queue, PREFETCH)
    for key, arguments in terms:
        channel.queue_bind(queue, exchange, key, arguments)
    click.echo(said, err=True)
    return copies


def first_of(copies: "Iterator[Batch]", count: int | None) -> "Iterator[tuple[int, Batch, list[Message]]]":
    """Yield batches until they had `count` messages: how many came before, the batch, and those of it that count."""
    shown = 0
    for batch in copies:
        messages = batch.messages if count is None else batch.messages[: count - shown]
        yield shown, batch, messages
        shown += len(messages)
        if shown == count:
            return
