"""What a queue can be declared to be: bounded, ordered by priority, somebody's own, short-lived."""

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.limits import LIFE_MS_MAX
from tests.conftest import StartBroker

from .traffic import bodies, counts, numbers, publish_all, take, until


def test_the_server_makes_up_a_name(channel: shardmq.Channel) -> None:
    first, second = channel.queue_declare(""), channel.queue_declare("")
    assert first.queue.startswith("amq.gen-")
    assert first.queue != second.queue
    channel.basic_publish("", first.queue, b"x")
    assert bodies(channel, first.queue) == [b"x"]


def test_a_passive_declaration_tells_counts_and_makes_nothing(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 3))
    assert channel.queue_declare(queue, passive=True) == shardmq.QueueDeclared(queue, 3, 0)
    with pytest.raises(errors.NotFound):
        channel.queue_declare("never-was", passive=True)
    with pytest.raises(errors.NotFound):
        channel.exchange_declare("never-was", passive=True)


def test_an_exclusive_queue_is_its_connections_alone_and_goes_with_it(broker: Broker, channel: shardmq.Channel) -> None:
    with shardmq.connect(broker.url) as other:
        own = other.channel()
        own.queue_declare("mine", exclusive=True)
        own.queue_declare("mine", exclusive=True)
        own.basic_publish("", "mine", b"anybody may publish")
        channel.basic_publish("", "mine", b"this one, too")
        for refused in (
            lambda: channel.queue_declare("mine", exclusive=True),
            lambda: channel.queue_declare("mine", passive=True),
            lambda: channel.basic_get("mine"),
            lambda: channel.queue_purge("mine"),
            lambda: channel.queue_delete("mine"),
            lambda: channel.queue_bind("mine", "amq.fanout"),
            lambda: next(iter(channel.consume("mine"))),
        ):
            with pytest.raises(errors.ResourceLocked, match=r"exclusive|locked"):
                refused()
        assert len(bodies(own, "mine")) == 2

    def is_gone() -> bool:
        try:
            channel.queue_declare("mine", passive=True)
        except errors.NotFound:
            return True
        except errors.ResourceLocked:
            return False
        return False

    until(is_gone, "the queue went with its connection")


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: shardmq.Channel) -> None:
    channel.queue_declare("while-used", auto_delete=True)
    first = channel.basic_consume("while-used", lambda _: None)
    second = channel.basic_consume("while-used", lambda _: None)
    channel.basic_cancel(first)
    assert channel.queue_declare("while-used", passive=True).consumers == 1
    channel.basic_cancel(second)

    def is_gone() -> bool:
        try:
            channel.queue_bind("while-used", "amq.fanout")
        except errors.NotFound:
            return True
        return False

    until(is_gone, "the queue went with its consumer")


def test_a_queue_in_use_or_not_empty_is_not_deleted_if_so_asked(channel: shardmq.Channel) -> None:
    channel.queue_declare("kept", durable=True)
    publish_all(channel, "kept", [b"x"])
    with pytest.raises(errors.PreconditionFailed, match="not empty"):
        channel.queue_delete("kept", if_empty=True)
    tag = channel.basic_consume("kept", lambda message: message.ack())
    with pytest.raises(errors.PreconditionFailed, match="in use"):
        channel.queue_delete("kept", if_unused=True)
    until(lambda: channel.queue_declare("kept", passive=True).messages == 0, "it is consumed")
    publish_all(channel, "kept", [b"still taken"])
    channel.basic_cancel(tag)
    channel.flush()
    assert channel.queue_delete("kept", if_unused=True) in (0, 1)


def test_a_bounded_queue_keeps_the_newest(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare("newest", durable=True, arguments={"x-max-length": 10})
    publish_all(channel, "newest", numbers(0, 1000))
    held = channel.basic_get("newest")
    publish_all(channel, "newest", numbers(1000, 1001))
    assert counts(connection, "newest")["ready"] == 10
    assert bodies(channel, "newest") == numbers(991, 1001)
    assert held is not None
    held.ack()


def test_a_bound_in_bytes_counts_bodies(channel: shardmq.Channel) -> None:
    channel.queue_declare("bytes", durable=True, arguments={"x-max-length-bytes": 1000})
    publish_all(channel, "bytes", [b"%04d" % number + b"x" * 96 for number in range(25)])
    assert [body[:4] for body in bodies(channel, "bytes")] == [b"%04d" % number for number in range(15, 25)]


def test_a_full_queue_that_refuses_takes_what_fits_and_says_what_did_not(channel: shardmq.Channel) -> None:
    channel.queue_declare("full", durable=True, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    with pytest.raises(errors.PublishRefused, match="2 messages were refused"), channel.publisher() as publisher:
        publisher.publish_many("", "full", numbers(0, 7))
    with pytest.raises(errors.PublishRefused, match="full"):
        channel.basic_publish("", "full", b"no")
    assert bodies(channel, "full") == numbers(0, 5)
    channel.basic_publish("", "full", b"yes")
    assert bodies(channel, "full") == [b"yes"]


def test_a_full_queue_can_dead_letter_what_it_refuses(channel: shardmq.Channel) -> None:
    channel.queue_declare("refused", durable=True)
    channel.queue_declare(
        "full-dlx",
        durable=True,
        arguments={
            "x-max-length": 2,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "refused",
        },
    )
    with pytest.raises(errors.PublishRefused), channel.publisher() as publisher:
        publisher.publish_many("", "full-dlx", numbers(0, 5))
    until(lambda: channel.queue_declare("refused", passive=True).messages == 3, "three are dead")
    assert (bodies(channel, "full-dlx"), bodies(channel, "refused")) == (numbers(0, 2), numbers(2, 5))


def test_higher_priorities_come_first_and_equal_ones_in_order(channel: shardmq.Channel) -> None:
    channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 5})
    with channel.publisher() as publisher:
        for number in range(40):
            properties = shardmq.Properties(priority=number % 8) if number % 8 else None
            publisher.publish("", "ranked", b"%d" % number, properties)
    expected = sorted(range(40), key=lambda number: (-min(number % 8, 5), number))
    taken = take(channel, "ranked")
    assert [int(message.body) for message in taken] == expected


def test_priorities_and_places_survive_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 3})
        for number in range(12):
            channel.basic_publish("", "ranked", b"%d" % number, shardmq.Properties(priority=number % 4))
        assert channel.basic_get("ranked") is not None
        assert channel.basic_get("ranked") is not None
    broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        expected = sorted(range(12), key=lambda number: (-(number % 4), number))
        taken = take(connection.channel(), "ranked")
        assert [int(message.body) for message in taken] == expected
        assert [message.redelivered for message in taken[:2]] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"x-max-lenght": 5}, "x-max-length"),
        ({"x-max-length": "5"}, "whole number"),
        ({"x-max-length": -1}, "whole number"),
        ({"x-max-length": True}, "whole number"),
        ({"x-message-ttl": LIFE_MS_MAX + 1}, "whole number"),
        ({"x-overflow": "explode"}, "drop-head"),
        ({"x-max-priority": 256}, "255"),
        ({"x-single-active-consumer": 1}, "true or false"),
        ({"x-queue-type": "x"}, "classic"),
        ({"x-expires": 0}, "from 1"),
    ],
)
def test_an_argument_that_would_be_ignored_is_refused(
    channel: shardmq.Channel, arguments: dict[str, object], says: str
) -> None:
    with pytest.raises(errors.PreconditionFailed, match=says):
        channel.queue_declare("wrong", arguments=arguments)


def test_declaring_again_with_other_arguments_says_what_differs(channel: shardmq.Channel) -> None:
    channel.queue_declare("same", arguments={"x-max-length": 5})
    channel.queue_declare("same", arguments={"x-max-length": 5})
    with pytest.raises(errors.PreconditionFailed, match=r"x-max-length.*'6'.*'5'"):
        channel.queue_declare("same", arguments={"x-max-length": 6})
    with pytest.raises(errors.PreconditionFailed, match="auto_delete"):
        channel.queue_declare("same", arguments={"x-max-length": 5}, auto_delete=True)


def test_peeking_leaves_everything_as_it_is(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 10))
    seen = channel.queue_peek(queue, offset=2, count=3)
    assert [message.body for message in seen] == numbers(2, 5)
    assert counts(connection, queue)["delivered"] == 0
    taken = take(channel, queue)
    assert [(message.body, message.redelivered) for message in taken] == [(body, False) for body in numbers(0, 10)]
