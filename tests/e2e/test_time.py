"""What time does to messages and queues: expiry, delays, acknowledgement timeouts."""

import time
from itertools import pairwise

import pytest

import shardmq
from shardmq import errors
from shardmq.limits import LIFE_MS_MAX
from tests.conftest import StartBroker

from .traffic import bodies, counts, numbers, publish_all, take, until


def expiring(milliseconds: object) -> shardmq.Properties:
    return shardmq.Properties(expiration=str(milliseconds))


def test_messages_expire_by_the_shorter_of_both_times(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare("short-lived", durable=True, arguments={"x-message-ttl": 1500})
    channel.basic_publish("", "short-lived", b"own", expiring(10))
    until(lambda: counts(connection, "short-lived")["valid"] == 0, "expired by its own time")
    channel.basic_publish("", "short-lived", b"queue's", expiring(60_000))
    assert counts(connection, "short-lived")["ready"] == 1
    until(lambda: counts(connection, "short-lived")["valid"] == 0, "expired by the queue's time")


def test_an_expired_message_is_never_delivered_also_without_a_consumer_meanwhile(
    channel: shardmq.Channel, queue: str
) -> None:
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body, expiring(30))
    channel.basic_publish("", queue, b"stays")
    time.sleep(0.06)  # the time itself is what is tested
    assert bodies(channel, queue) == [b"stays"]


def test_a_requeued_message_keeps_its_time(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    channel.basic_publish("", queue, b"x", expiring(1000))
    message = channel.basic_get(queue)
    assert message is not None
    message.nack()
    until(lambda: counts(connection, queue)["valid"] == 0, "expired")


def test_messages_expire_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        publish_all(channel, "q", numbers(0, 10), expiring(1500))
        publish_all(channel, "q", [b"stays"])
        channel.queue_declare("ttl", durable=True, arguments={"x-message-ttl": 1500})
        publish_all(channel, "ttl", numbers(0, 10))
    broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        until(lambda: counts(connection, "q")["valid"] == 1, "ten have expired")
        until(lambda: counts(connection, "ttl")["valid"] == 0, "all have expired")
        assert bodies(connection.channel(), "q") == [b"stays"]


@pytest.mark.parametrize("wrong", ["-1", "1.5", "soon", "", str(LIFE_MS_MAX + 1)])
def test_an_expiration_that_is_no_number_of_milliseconds_is_refused(
    channel: shardmq.Channel, queue: str, wrong: str
) -> None:
    with pytest.raises(errors.PreconditionFailed, match="expiration"):
        channel.basic_publish("", queue, b"", expiring(wrong))
    assert channel.is_open


def test_an_unused_queue_expires_and_a_used_one_does_not(channel: shardmq.Channel) -> None:
    for name in ("forgotten", "consumed"):
        channel.queue_declare(name, arguments={"x-expires": 1200})
    channel.basic_consume("consumed", lambda _: None)

    def is_gone(name: str) -> bool:
        try:
            channel.queue_bind(name, "amq.direct", "never")
        except errors.NotFound:
            return True
        return False

    until(lambda: is_gone("forgotten"), "the unused queue is gone")
    assert not is_gone("consumed")


def test_a_delayed_message_comes_when_it_is_due_and_not_before(channel: shardmq.Channel, queue: str) -> None:
    start = time.monotonic()
    channel.basic_publish("", queue, b"later", delay_ms=2400)
    channel.basic_publish("", queue, b"sooner", delay_ms=1200)
    channel.basic_publish("", queue, b"now")
    came = []
    for message in channel.consume(queue):
        came.append((message.body, message.redelivered, time.monotonic() - start))
        message.ack()
        if len(came) == 3:
            break
    assert [(body, again) for body, again, _ in came] == [(b"now", False), (b"sooner", False), (b"later", False)]
    assert came[1][2] >= 1.2
    assert came[2][2] >= 2.4


def test_delayed_messages_survive_kill_9_and_fire_when_due(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "q", numbers(1000, 2000), delay_ms=600_000)
        channel.basic_publish("", "q", b"ready")
        first = channel.basic_get("q")
        assert first is not None
        start = time.monotonic()
        first.nack(delay_ms=3000)
        with channel.publisher() as publisher:
            publisher.publish_many("", "q", numbers(0, 1000), delay_ms=3500)
        assert counts(connection, "q")["delayed"] == 2001
    broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        messages = channel.consume("q", prefetch=2000, inactivity_timeout=20)
        parked = next(messages)
        assert (parked.body, parked.redelivered) == (b"ready", True)
        assert time.monotonic() - start >= 3
        came = [next(messages) for _ in range(1000)]
        assert [message.body for message in came] == numbers(0, 1000)
        assert not any(message.redelivered for message in came)
        assert time.monotonic() - start >= 3.4
        assert counts(connection, "q")["delayed"] == 1000
        messages.close()  # type: ignore[attr-defined]


def test_deleting_a_queue_takes_its_delayed_messages_with_it(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.queue_declare("waiting-room", durable=True)
    channel.basic_publish("", "waiting-room", b"x", delay_ms=50)
    channel.queue_delete("waiting-room")
    channel.queue_declare("waiting-room", durable=True)
    channel.basic_publish("", "waiting-room", b"y", delay_ms=100)
    until(lambda: counts(connection, "waiting-room")["ready"] == 1, "the second is due")
    assert bodies(channel, "waiting-room") == [b"y"]


def test_a_message_given_back_with_a_delay_comes_back_to_its_place(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 3))
    first = channel.basic_get(queue)
    assert first is not None
    first.nack(delay_ms=1500)
    assert [message.body for message in take(channel, queue)] == numbers(1, 3)
    publish_all(channel, queue, [b"newer"])
    until(lambda: channel.queue_declare(queue, passive=True).messages == 2, "it is back")
    assert [(message.body, message.redelivered) for message in take(channel, queue)] == [
        (b"0", True),
        (b"newer", False),
    ]


def test_only_what_is_overdue_returns_and_the_channel_lives_on(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    for timeout_ms in (1200, 4000, 12_000):  # where the machine was too busy for the renewals, a longer one
        queue, pauses = f"slow-{timeout_ms}", [time.monotonic()]
        channel.queue_declare(queue, durable=True, arguments={"x-consumer-timeout": timeout_ms})
        publish_all(channel, queue, numbers(0, 2))
        messages = channel.consume(queue, prefetch=2)
        overdue, renewed = next(messages), next(messages)

        def came_again(queue: str = queue, renewed: shardmq.Message = renewed, pauses: list[float] = pauses) -> bool:
            renewed.renew()
            came = counts(connection, queue)["redelivered"] >= 1
            pauses.append(time.monotonic())
            return came

        until(came_again, "one has come again", 60)
        if max(later - earlier for earlier, later in pairwise(pauses)) < timeout_ms / 2000:
            break
        messages.close()  # type: ignore[attr-defined]
    again = next(messages)
    assert (again.body, again.redelivered) == (b"0", True)
    overdue.ack()  # too late, and no harm done
    renewed.ack()
    again.ack()
    channel.flush()
    until(lambda: counts(connection, queue)["valid"] == 0, "all are acked")
    assert channel.is_open
    messages.close()  # type: ignore[attr-defined]


def test_what_is_overdue_is_dead_lettered_where_that_is_declared(channel: shardmq.Channel) -> None:
    channel.queue_declare("overdue.dead", durable=True)
    channel.queue_declare(
        "overdue",
        durable=True,
        arguments={
            "x-consumer-timeout": 100,
            "x-consumer-timeout-action": "dead-letter",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "overdue.dead",
        },
    )
    publish_all(channel, "overdue", [b"x"])
    messages = channel.consume("overdue", prefetch=1)
    next(messages)
    until(lambda: channel.queue_declare("overdue.dead", passive=True).messages == 1, "it is dead")
    (letter,) = take(channel, "overdue.dead")
    assert letter.properties is not None
    assert letter.properties.headers is not None
    assert letter.properties.headers["x-death"][0]["reason"] == "ack_timeout"
    messages.close()  # type: ignore[attr-defined]
