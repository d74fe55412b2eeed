"""Dead letters: why messages die, where they go, what they tell, and that none gets lost on the way."""

import datetime
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, counts, numbers, publish_all, shard_of, take, until


def declare_pair(channel: shardmq.Channel, name: str, **arguments: Any) -> tuple[str, str]:
    """A queue and the queue of its dead letters."""
    dead = f"{name}.dead"
    channel.queue_declare(dead, durable=True)
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, **arguments}
    channel.queue_declare(
        name, durable=True, arguments={key: value for key, value in terms.items() if value is not None}
    )
    return name, dead


def wait_for_message(channel: shardmq.Channel, queue: str) -> shardmq.Message:
    found: list[shardmq.Message] = []

    def arrived() -> bool:
        message = channel.basic_get(queue, auto_ack=True)
        found.extend([message] if message is not None else [])
        return bool(found)

    until(arrived, f"a message is in {queue}")
    return found[0]


def headers_of(message: shardmq.Message) -> dict[str, Any]:
    assert message.properties is not None
    assert message.properties.headers is not None
    return dict(message.properties.headers)


def test_a_rejected_message_tells_where_and_why_it_died(channel: shardmq.Channel) -> None:
    queue, dead = declare_pair(channel, "rejecting")
    channel.basic_publish("", queue, b"bad", shardmq.Properties(message_id="m-1", headers={"mine": 1}))
    message = channel.basic_get(queue)
    assert message is not None
    message.nack(requeue=False)
    letter = wait_for_message(channel, dead)
    headers = headers_of(letter)
    assert (letter.body, letter.exchange, letter.routing_key) == (b"bad", "", dead)
    assert letter.message_id == "m-1"
    (death,) = headers.pop("x-death")
    time = death.pop("time")
    assert abs((datetime.datetime.now(datetime.UTC) - time).total_seconds()) < 60
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue],
    }
    assert headers == {
        "mine": 1,
        "x-first-death-reason": "rejected",
        "x-first-death-queue": queue,
        "x-first-death-exchange": "",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": queue,
        "x-last-death-exchange": "",
    }


def test_an_expired_message_loses_its_expiration_and_remembers_it(channel: shardmq.Channel) -> None:
    queue, dead = declare_pair(channel, "expiring")
    channel.basic_publish("", queue, b"late", shardmq.Properties(expiration="20"))
    letter = wait_for_message(channel, dead)
    assert letter.properties is not None
    assert letter.properties.expiration is None
    (death,) = headers_of(letter)["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("expired", "20")


def test_too_many_messages_die_from_the_head(channel: shardmq.Channel) -> None:
    queue, dead = declare_pair(channel, "narrow", **{"x-max-length": 3})
    publish_all(channel, queue, numbers(0, 10))
    until(lambda: channel.queue_declare(dead, passive=True).messages == 7, "seven are dead")
    assert bodies(channel, queue) == numbers(7, 10)
    letters = take(channel, dead)
    assert [letter.body for letter in letters] == numbers(0, 7)
    assert {headers_of(letter)["x-death"][0]["reason"] for letter in letters} == {"maxlen"}


def test_what_is_delivered_in_vain_too_often_dies(channel: shardmq.Channel) -> None:
    queue, dead = declare_pair(channel, "poisoned", **{"x-delivery-limit": 2})
    channel.basic_publish("", queue, b"poison")
    seen = []
    for _ in range(3):
        message = wait_for_unacked(channel, queue)
        seen.append((message.deliveries, message.redelivered))
        message.nack()
    assert seen == [(0, False), (1, True), (2, True)]
    letter = wait_for_message(channel, dead)
    assert headers_of(letter)["x-death"][0]["reason"] == "delivery_limit"
    assert bodies(channel, queue) == []


def wait_for_unacked(channel: shardmq.Channel, queue: str) -> shardmq.Message:
    found: list[shardmq.Message] = []

    def arrived() -> bool:
        message = channel.basic_get(queue)
        found.extend([message] if message is not None else [])
        return bool(found)

    until(arrived, f"a message is in {queue}")
    return found[0]


def test_a_message_that_dies_again_in_the_same_way_is_counted(channel: shardmq.Channel) -> None:
    channel.queue_declare(
        "retry", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry.wait"}
    )
    channel.queue_declare(
        "retry.wait",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry", "x-message-ttl": 10},
    )
    channel.basic_publish("", "retry", b"again")
    for attempt in range(3):
        message = wait_for_unacked(channel, "retry")
        deaths = headers_of(message)["x-death"] if attempt else []
        assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == (
            [("retry.wait", "expired", attempt), ("retry", "rejected", attempt)] if attempt else []
        )
        message.nack(requeue=False)
    wait_for_unacked(channel, "retry").ack()


def test_a_circle_without_a_rejection_ends(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare(
        "circle",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "circle", "x-message-ttl": 10},
    )
    channel.basic_publish("", "circle", b"round")
    until(lambda: counts(connection, "circle")["valid"] == 0, "the message is dropped")


def test_without_a_dead_letter_exchange_they_are_gone(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare("no-letters", durable=True, arguments={"x-dead-letter-exchange": "never-declared"})
    publish_all(channel, "no-letters", [b"x"])
    message = channel.basic_get("no-letters")
    assert message is not None
    message.nack(requeue=False)
    until(lambda: counts(connection, "no-letters")["valid"] == 0, "the message is dropped")


@pytest.mark.parametrize("who", ["source", "home", "gateway"])
def test_none_is_lost_when_a_shard_dies_on_the_way(start_broker: StartBroker, who: str) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        source, home = on_both_shards(connection, channel)
        ids = numbers(0, 3000)
        publish_all(channel, source, ids)
        victims = {"source": shard_of(connection, source), "home": shard_of(connection, home), "gateway": "gateway-0"}
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for message in channel.consume(source, prefetch=3000):
            message.nack(requeue=False)
            if message.body == ids[-1]:
                break
        broker.kill_and_wait(victims[who])
    drained = drain(broker, source, home)
    assert set(ids) <= drained


def on_both_shards(connection: shardmq.Connection, channel: shardmq.Channel) -> tuple[str, str]:
    channel.queue_declare("home", durable=True)
    for number in range(64):
        name = f"source-{number}"
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "home"}
        channel.queue_declare(name, durable=True, arguments=arguments)
        if shard_of(connection, name) != shard_of(connection, "home"):
            return name, "home"
    raise AssertionError("64 queues are all on one of two shards")


def drain(broker: Broker, source: str, home: str) -> set[bytes]:
    """All bodies there are in the end, wherever; what came back to its queue is rejected again."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()

        def settled() -> bool:
            for message in channel.consume(source, inactivity_timeout=0.1):
                message.nack(requeue=False)
            return bool(counts(connection, source)["valid"] == 0)

        until(settled, "the source is empty", seconds=30)
        return set(bodies(channel, home))


def test_a_dead_letter_key_without_an_exchange_is_refused(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.PreconditionFailed, match="x-dead-letter-exchange"):
        channel.queue_declare("half", arguments={"x-dead-letter-routing-key": "k"})


def test_a_home_that_is_full_for_a_while_costs_the_others_no_copies(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.exchange_declare("several-homes", "fanout")
    channel.queue_declare("full-home", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", "full-home", b"there")
    homes = ["full-home", "home-1", "home-2", "home-3"]
    for home in homes:
        if home != "full-home":
            channel.queue_declare(home, durable=True)
        channel.queue_bind(home, "several-homes")
    channel.queue_declare("sender", durable=True, arguments={"x-dead-letter-exchange": "several-homes"})
    publish_all(channel, "sender", [b"dead"])
    message = channel.basic_get("sender")
    assert message is not None
    message.nack(requeue=False)
    until(lambda: channel.queue_declare("home-1", passive=True).messages, "it has arrived where there is room")
    assert counts(connection, "sender")["dying"] == 1
    assert bodies(channel, "full-home") == [b"there"]
    until(lambda: counts(connection, "sender")["valid"] == 0, "it was sent again, and has left")
    assert {home: bodies(channel, home) for home in homes} == {home: [b"dead"] for home in homes}
