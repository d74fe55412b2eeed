"""What RabbitMQ takes without a word though it means nothing there: unknown arguments, and what is not there to be
unbound or deleted. The native protocol refuses all of it. The answers are those of RabbitMQ 3.10.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import NotFound, PreconditionFailed


@pytest.fixture
def own(connection: pika.BlockingConnection) -> Iterator[BlockingChannel]:
    """A channel that the test may have closed."""
    channel = connection.channel()
    yield channel
    if channel.is_open:
        channel.close()


def logged(broker: Broker, words: str) -> int:
    """How often the broker's processes have written that."""
    return broker.log.read_text().count(words)


def test_unknown_arguments_are_taken_compared_with_nothing_and_logged_once(
    own: BlockingChannel, broker: Broker
) -> None:
    for arguments in ({"x-mesage-ttl": 5}, {}, {"x-mesage-ttl": 6, "owner": "me"}):
        own.queue_declare("u.queue", arguments=arguments)
    own.queue_declare("u.other", arguments={"x-mesage-ttl": 5})
    for exchange_arguments in ({"x-alternate": "a"}, {}, {"x-alternate": "b"}):
        own.exchange_declare("u.exchange", arguments=exchange_arguments)
    own.basic_consume("u.queue", lambda *_: None, arguments={"x-prioritie": 5})
    for words in (
        "unknown argument 'x-mesage-ttl' of queue 'u.queue' is ignored; did you mean 'x-message-ttl'?",
        "unknown argument 'x-alternate' of exchange 'u.exchange' is ignored; did you mean 'alternate-exchange'?",
        "unknown argument 'x-prioritie' of a consumer of queue 'u.queue' is ignored; did you mean 'x-priority'?",
    ):
        assert logged(broker, words) == 1
    assert logged(broker, "x-mesage-ttl") == 1
    for queue in ("u.queue", "u.other"):
        own.queue_delete(queue)
    own.exchange_delete("u.exchange")


def test_known_arguments_are_compared_whatever_unknown_ones_are_beside_them(own: BlockingChannel) -> None:
    own.queue_declare("u.known", exclusive=True, arguments={"x-max-length": 5, "x-none": 1})
    with pytest.raises(ChannelClosedByBroker, match=r"inequivalent arg 'x-max-length' for queue 'u\.known'"):
        own.queue_declare("u.known", exclusive=True, arguments={"x-max-length": 6, "x-none": 1})


def test_native_clients_are_refused_unknown_arguments(native: shardmq.Connection) -> None:
    with native.channel() as channel, pytest.raises(PreconditionFailed, match="x-mesage-ttl"):
        channel.queue_declare("u.native", arguments={"x-mesage-ttl": 5})


MISSING: dict[str, Callable[[BlockingChannel], Any]] = {
    "exchange.delete": lambda channel: channel.exchange_delete("u.none"),
    "exchange.delete, if unused": lambda channel: channel.exchange_delete("u.none", if_unused=True),
    "queue.unbind, queue": lambda channel: channel.queue_unbind("u.none", "amq.direct", "k"),
    "queue.unbind, queue and exchange": lambda channel: channel.queue_unbind("u.none", "u.none", "k"),
    "queue.unbind, exchange": lambda channel: channel.queue_unbind("u.there", "u.none", "k"),
    "queue.unbind, binding": lambda channel: channel.queue_unbind("u.there", "amq.direct", "k"),
    "exchange.unbind, source": lambda channel: channel.exchange_unbind("amq.fanout", "u.none", "k"),
    "exchange.unbind, destination": lambda channel: channel.exchange_unbind("u.none", "amq.fanout", "k"),
    "exchange.unbind, binding": lambda channel: channel.exchange_unbind("amq.fanout", "amq.direct", "k"),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_not_there_is_unbound_and_deleted_already(own: BlockingChannel, what: str) -> None:
    own.queue_declare("u.there", exclusive=True)
    MISSING[what](own)
    assert own.queue_delete("u.none", if_unused=True, if_empty=True).method.message_count == 0
    own.queue_delete("u.there")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda channel: channel.queue_purge("u.none"), "no queue 'u.none' in vhost '/'"),
        (lambda channel: channel.queue_bind("u.none", "amq.direct", "k"), "no queue 'u.none' in vhost '/'"),
        (lambda channel: channel.queue_bind("u.none", "u.none", "k"), "no exchange 'u.none' in vhost '/'"),
        (lambda channel: channel.exchange_bind("u.none", "amq.direct", "k"), "no exchange 'u.none' in vhost '/'"),
        (lambda channel: channel.exchange_bind("amq.direct", "u.none", "k"), "no exchange 'u.none' in vhost '/'"),
    ],
)
def test_what_is_not_there_is_neither_bound_nor_purged(
    own: BlockingChannel, call: Callable[[BlockingChannel], Any], text: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        call(own)
    assert (closed.value.reply_code, closed.value.reply_text) == (404, f"NOT_FOUND - {text}")


def test_native_clients_hear_that_it_is_not_there(native: shardmq.Connection) -> None:
    for call in (
        lambda channel: channel.queue_delete("u.none"),
        lambda channel: channel.exchange_delete("u.none"),
        lambda channel: channel.queue_unbind("u.none", "amq.direct", "k"),
    ):
        with native.channel() as channel, pytest.raises(NotFound, match=r"u\.none"):
            call(channel)
