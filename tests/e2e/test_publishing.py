"""What a publisher hears: confirms, returns, refusals; and that sending again stores once."""

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, numbers, until


def test_a_mandatory_message_that_no_queue_takes_comes_back(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.Unroutable) as returned:
        channel.basic_publish("amq.direct", "nobody", b"back", mandatory=True)
    assert returned.value.code == errors.ReplyCode.NO_ROUTE
    channel.basic_publish("amq.direct", "nobody", b"dropped")


def test_a_publisher_without_a_hook_hears_of_returns_when_it_flushes(channel: shardmq.Channel, queue: str) -> None:
    publisher = channel.publisher()
    publisher.publish("", queue, b"taken", mandatory=True)
    publisher.publish("", "no-such-queue", b"returned", mandatory=True)
    with pytest.raises(errors.Unroutable):
        publisher.flush()
    publisher.close()
    assert bodies(channel, queue) == [b"taken"]


def test_nobody_publishes_in_anothers_name(channel: shardmq.Channel, queue: str) -> None:
    with pytest.raises(errors.PreconditionFailed, match=r"user_id.*'mallory'.*'guest'"):
        channel.basic_publish("", queue, b"", shardmq.Properties(user_id="mallory"))
    with pytest.raises(errors.PreconditionFailed, match="user_id"), channel.publisher() as publisher:
        publisher.publish("", queue, b"", shardmq.Properties(user_id="mallory"))
    channel.basic_publish("", queue, b"signed", shardmq.Properties(user_id="guest"))
    assert bodies(channel, queue) == [b"signed"]


def test_alternating_priorities_keep_one_order_in_a_plain_queue_and_one_each_where_they_count(
    channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_declare("urgent", arguments={"x-max-priority": 3}, durable=True)
    turns = [None, *[shardmq.Properties(priority=priority) for priority in (0, 1, 3, 200)]]
    levels = [0, 0, 1, 3, 3]  # without a priority, and above the highest
    try:
        for name in (queue, "urgent"):
            with channel.publisher() as publisher:
                for number in range(2000):
                    publisher.publish("", name, b"%d" % number, turns[number % 5])
        assert [int(body) for body in bodies(channel, queue)] == list(range(2000))
        assert [int(body) for body in bodies(channel, "urgent")] == sorted(
            range(2000), key=lambda number: (-levels[number % 5], number)
        )
    finally:
        channel.queue_delete("urgent")


def test_unconfirmed_publishes_are_sent_again_and_stored_once(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for name in ("one", "two"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
        with channel.publisher(window=5000) as publisher:
            for number in range(60_000):
                publisher.publish("amq.fanout", "", b"%d" % number)
                if number in (10_000, 30_000):
                    broker.kill("gateway-0")
        for name in ("one", "two"):
            stored: list[bytes] = []
            for batch in channel.consume_batches(name, inactivity_timeout=2):
                stored += batch.bodies
                batch.ack()
            assert sorted(map(int, stored)) == list(range(60_000))


def test_a_sequence_is_remembered_over_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    for _ in range(2):
        with shardmq.connect(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            with channel.publisher(producer="loader") as publisher:
                for number in range(100):
                    publisher.publish("", "q", b"%d" % number, sequence=number + 1)
        broker.kill_everything()
        broker.start()
    with shardmq.connect(broker.url) as connection:
        assert bodies(connection.channel(), "q") == numbers(0, 100)


def test_publishers_wait_while_the_broker_runs_short_and_consumers_go_on(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, timeout=2) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "q", numbers(0, 10))
    broker.stop()
    tight = Broker(broker.data_dir, shards=1, options=["--disk-free-limit", "1000TB"])
    try:
        tight.start()
        reasons: list[str] = []
        with shardmq.connect(tight.url, timeout=2) as connection:
            connection.on_blocked(reasons.append)
            channel = connection.channel()
            with pytest.raises(errors.Timeout, match="disk"):
                channel.basic_publish("", "q", b"blocked")
            until(lambda: reasons, "the hook was called")
            assert bodies(channel, "q")[:10] == numbers(0, 10)
    finally:
        tight.close()
