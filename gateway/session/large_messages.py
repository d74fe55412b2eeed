"""A channel's side of message_loans.py: a large message comes when there is room for it, and is repaid when read."""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.inquiry import watched
from shardmq.bus.messages.shard import Got
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.client import Client
from shardmq.message.record_batch import RecordBatch, cost

GETTERS_MAX: Final = 16
"""Queues that a channel got messages from by basic.get, and is known for to their shards; past it, those it holds
nothing of are forgotten."""


LOOK_BYTES: Final = 4 << 20
"""What shards answer who looks at messages (queue.peek, queue.read), but for a message that is larger by itself."""


class Borrower(Protocol):
    """A channel, or its consumers."""

    @property
    def is_open(self) -> bool:
        """Whether the channel is; one that is closed needs no message any more."""

    @property
    def client(self) -> Client:
        """Whose account it borrows on."""


def ask(borrower: Borrower, consumer: Consumer, size: int) -> None:
    """Ask for room for a consumer's next message, which does not fit into its window; it comes when there is room."""
    link, life = consumer.link, consumer.link.life

    def grant() -> bool:
        if not (borrower.is_open and consumer.running and link.life == life):
            return False
        link.permit(consumer, size)
        return True

    borrower.client.account.ask(size, grant)


def count_sent(client: Client, consumer: Consumer, batch: RecordBatch) -> None:
    """Count messages of a consumer that are handed to its socket: they were in its window, or were lent."""
    size = cost(batch, consumer.overhead)
    if consumer.borrowed:
        repaid = min(len(batch.records), consumer.borrowed)
        consumer.borrowed -= repaid
        size -= repaid
        client.front.repay_when_read(repaid)
    consumer.owed += size


def get(borrower: Borrower, consumer: Consumer, auto_ack: bool, reply: Reply, lent: int = 0) -> None:
    """Ask a shard for one message, of as many bytes as were lent, or of few; for a larger one, borrow and ask again."""
    client = borrower.client
    consumer.permitted = lent

    def got(outcome: Outcome) -> None:
        permitted, consumer.permitted = consumer.permitted, 0  # none any more where the shard was away meanwhile
        used = min(permitted, len(outcome.batch.records)) if isinstance(outcome, Got) else 0
        if permitted:
            client.account.arrived(permitted, used)
        if isinstance(outcome, int):
            client.account.ask(outcome, partial(granted, outcome))
            return
        reply(outcome)
        if used:
            client.front.repay_when_read(used)

    def granted(size: int) -> bool:
        if borrower.is_open:
            get(borrower, consumer, auto_ack, reply, size)
        return borrower.is_open

    consumer.link.get(consumer, auto_ack, lent or client.get_room, got)


def look(borrower: Borrower, question: Callable[[Reply], None], reply: Reply) -> None:
    """Ask a shard for messages to look at, when there is room for what such an answer may bring.

    Args:
        borrower: whose request it is.
        question: asks; called once.
        reply: takes the answer.
    """
    client = borrower.client

    def answered(outcome: Outcome) -> None:
        client.account.arrived(LOOK_BYTES, LOOK_BYTES)
        try:
            reply(outcome)
        finally:
            client.front.repay_when_read(LOOK_BYTES)

    then = watched(answered)  # it may be asked later

    def grant() -> bool:
        if borrower.is_open:
            question(then)
        return borrower.is_open

    client.account.ask(LOOK_BYTES, grant)


def forget_getters(getters: dict[int, Consumer]) -> None:
    """Forget where a channel got messages from, except where it holds some. No get is under way when this is called."""
    if len(getters) >= GETTERS_MAX:
        for queue, getter in [each for each in getters.items() if not each[1].unacked]:
            del getters[queue]
            getter.link.release(getter)
