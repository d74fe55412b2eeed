"""What is durable is there after a restart, however it came about; nothing else is."""

from collections.abc import Callable

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.broker import Broker

from .traffic import bodies, counts, numbers, publish_all, take, until

TRANSIENT = shardmq.Properties(delivery_mode=1)

StartBroker = Callable[..., Broker]
Restart = Callable[[Broker], None]


def kill_and_start(broker: Broker) -> None:
    """kill -9 of the supervisor takes all processes with it."""
    broker.kill_everything()
    broker.start()


ways = pytest.mark.parametrize("restart", [Broker.restart, kill_and_start], ids=["stop", "kill"])


def names(connection: shardmq.Connection, noun: str) -> set[str]:
    return {table["name"] for table in connection.topology(noun) if not table["name"].startswith("amq.")}


@ways
def test_durable_exchanges_queues_and_bindings_survive_and_no_others(
    start_broker: StartBroker, restart: Restart
) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for durable in (True, False):
            channel.exchange_declare(f"exchange-{durable}", "topic", durable=durable)
            for number in range(4):
                channel.queue_declare(f"queue-{durable}-{number}", durable=durable)
        for exchange in ("exchange-True", "exchange-False", "amq.topic"):
            for durable in (True, False):
                for number in range(4):
                    channel.queue_bind(f"queue-{durable}-{number}", exchange, f"k.{number}")
        channel.queue_bind("queue-True-0", "exchange-True", "undone")
        channel.queue_unbind("queue-True-0", "exchange-True", "undone")
        channel.queue_delete("queue-True-3")
        channel.exchange_declare("deleted", "fanout", durable=True)
        channel.exchange_delete("deleted")
    restart(broker)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        assert names(connection, "exchanges") == {"exchange-True"}
        assert names(connection, "queues") == {f"queue-True-{number}" for number in range(3)}
        assert {
            (table["exchange"], table["queue"], table["routing_key"]) for table in connection.topology("bindings")
        } == {
            (exchange, f"queue-True-{number}", f"k.{number}")
            for exchange in ("exchange-True", "amq.topic")
            for number in range(3)
        }
        channel.basic_publish("exchange-True", "k.1", b"routed")
        assert bodies(channel, "queue-True-1") == [b"routed"]
        with pytest.raises(errors.NotFound):
            channel.basic_publish("exchange-False", "k.1", b"")
        with pytest.raises(errors.NotFound):
            channel.basic_get("queue-False-1")
        assert channel.queue_declare("queue-False-1").messages == 0
        assert channel.queue_declare("queue-True-3", durable=True).messages == 0


@ways
def test_persistent_messages_in_durable_queues_survive_with_all_they_had_and_no_others(
    start_broker: StartBroker, restart: Restart
) -> None:
    broker = start_broker(shards=2)
    own = shardmq.Properties(message_id="mine", headers={"n": 1}, content_type="text/csv")
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for queue in ("durable", "copy"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.fanout")
        channel.queue_declare("passing")
        channel.queue_bind("passing", "amq.fanout")
        publish_all(channel, "durable", numbers(0, 20))
        publish_all(channel, "durable", [b"transient"] * 20, TRANSIENT)
        channel.basic_publish("amq.fanout", "key", b"own", own)
        channel.basic_publish("amq.fanout", "key", b"given")
        publish_all(channel, "durable", numbers(20, 40))
        assert channel.queue_declare("durable", durable=True).messages == 62
        assert channel.queue_declare("passing").messages == 2
        [_, copy] = take(channel, "copy")
        first = [channel.basic_get("durable") for _ in range(5)]
        for message in first[:3]:
            assert message is not None
            message.ack()
        channel.queue_purge("passing")
    restart(broker)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        got = take(channel, "durable")
        again = [message.body for message in got if message.redelivered]
        if restart is kill_and_start:  # an ack is on disk a moment later, and a mark is ahead of what was handed out
            assert set(again) >= set(numbers(3, 5))
            got = [message for message in got if message.body not in numbers(0, 3)]
        else:
            assert again == numbers(3, 5)
        assert [message.body for message in got] == [*numbers(3, 20), b"own", b"given", *numbers(20, 40)]
        mine, given = got[17], got[18]
        assert (mine.message_id, mine.properties, mine.routing_key) == ("mine", own, "key")
        assert (given.message_id, given.timestamp_ms) == (copy.message_id, copy.timestamp_ms)
        assert (given.exchange, given.persistent) == ("amq.fanout", True)
        assert channel.queue_declare("copy", durable=True).messages == 0
        assert "passing" not in names(connection, "queues")
        channel.basic_publish("", "durable", b"new")
        [new] = take(channel, "durable")
        assert new.message_id not in {message.message_id for message in got}


@ways
def test_what_a_consumer_acked_before_the_end_stays_acked_and_the_rest_comes_in_order(
    start_broker: StartBroker, restart: Restart
) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("partly", durable=True)
        channel.queue_declare("empty", durable=True)
        publish_all(channel, "partly", numbers(0, 3000))
        for message in channel.consume("partly", prefetch=500):
            if int(message.body) % 3:
                message.ack()
            else:
                message.nack(requeue=False)
            if message.body == b"1999":
                break
        until(lambda: channel.queue_declare("partly", durable=True).messages == 1000, "all acks and returns arrive")
        until(lambda: counts(connection, "partly")["valid"] == 1000, "nothing is unacked")
        channel.queue_purge("empty")  # acks reach the disk a moment later; the answer to a purge, when they have
    restart(broker)
    with shardmq.connect(broker.url) as connection:
        assert bodies(connection.channel(), "partly") == numbers(2000, 3000)


def test_a_stop_answers_every_publish_that_is_under_way(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    confirmed: list[bytes] = []
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("stopping", durable=True)
        publisher = channel.publisher(window=200)
        sent = 0
        with pytest.raises(errors.ConnectionFault):  # noqa: PT012
            while True:
                for _ in range(100):
                    publisher.publish("", "stopping", b"%d" % sent)
                    sent += 1
                publisher.flush()
                confirmed = numbers(0, sent)
                if sent == 1000:
                    broker.kill("gateway-0", 15)  # type: ignore[arg-type]
    broker.restart()
    with shardmq.connect(broker.url) as connection:
        got = bodies(connection.channel(), "stopping")
    assert got[: len(confirmed)] == confirmed
    assert got == numbers(0, len(got))
