"""A channel's side of message_loans.py: a large message comes when there is room for it, and is repaid when read."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Got
from shardmq.gateway.links.consumer import Consumer
from shardmq.message.record import cost
from shardmq.message.record_batch import RecordBatch

if TYPE_CHECKING:
    from shardmq.gateway.session.channel import Channel
    from shardmq.gateway.session.session import Session


GETTERS_MAX: Final = 16
"""Queues that a channel got messages from by basic.get, and is known for to their shards; past it, those it holds
nothing of are forgotten."""


LOOK_BYTES: Final = 4 << 20
"""What shards answer who looks at messages (queue.peek, queue.read), but for a message that is larger by itself."""


def ask(channel: "Channel", consumer: Consumer, size: int) -> None:
    """The next message for a consumer does not fit into its window: it comes when there is room for it here."""
    link, life = consumer.link, consumer.link.life

    def grant() -> bool:
        if not (channel.is_open and consumer.running and link.life == life):
            return False
        link.permit(consumer, size)
        return True

    channel.session.account.ask(size, grant)


def count_sent(session: "Session", consumer: Consumer, run: RecordBatch) -> None:
    """Messages of a consumer are no longer under way to its socket: they are its window's, or were lent."""
    size = cost(run, consumer.overhead)
    if consumer.borrowed:
        repaid = min(len(run.records), consumer.borrowed)
        consumer.borrowed -= repaid
        size -= repaid
        session.front.repay_when_read(repaid)
    consumer.owed += size


def get(channel: "Channel", consumer: Consumer, auto_ack: bool, reply: Reply, lent: int = 0) -> None:
    """Ask a shard for one message, of so many bytes as there is room for: what was lent, or few."""
    session = channel.session
    consumer.permitted = lent

    def got(outcome: Outcome) -> None:
        permitted, consumer.permitted = consumer.permitted, 0  # none any more where the shard was away meanwhile
        used = min(permitted, len(outcome.run.records)) if isinstance(outcome, Got) else 0
        if permitted:
            session.account.arrived(permitted, used)
        if isinstance(outcome, int):
            session.account.ask(outcome, partial(granted, outcome))
            return
        reply(outcome)
        if used:
            session.front.repay_when_read(used)

    def granted(size: int) -> bool:
        if channel.is_open:
            get(channel, consumer, auto_ack, reply, size)
        return channel.is_open

    consumer.link.get(consumer, auto_ack, lent or session.get_room, got)


def look(channel: "Channel", question: Callable[[Reply], None], reply: Reply) -> None:
    """Ask a shard for messages to look at, when there is room for what such an answer may bring.

    Args:
        channel: whose request it is.
        question: asks; called once.
        reply: takes the answer.
    """
    session = channel.session

    def answered(outcome: Outcome) -> None:
        session.account.arrived(LOOK_BYTES, LOOK_BYTES)
        reply(outcome)
        session.front.repay_when_read(LOOK_BYTES)

    def grant() -> bool:
        if channel.is_open:
            question(answered)
        return channel.is_open

    session.account.ask(LOOK_BYTES, grant)


def forget_getters(getters: dict[int, Consumer]) -> None:
    """Forget where a channel got messages from, except where it holds some. No get is under way when this is called."""
    if len(getters) >= GETTERS_MAX:
        for queue, getter in [each for each in getters.items() if not each[1].unacked]:
            del getters[queue]
            getter.link.release(getter)
