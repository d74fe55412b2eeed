"""What is durable is there after a restart, however it came about; nothing else is."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, counts, numbers, publish_all, take, until

TRANSIENT = shardmq.Properties(delivery_mode=1)
OWN = shardmq.Properties(message_id="mine", headers={"n": 1}, content_type="text/csv")


@dataclass
class Restarted:
    """A broker in its second life.

    Attributes:
        channel: to it.
        connection: of the channel.
        was_killed: whether its first life ended with kill -9 of everything, not with a clean stop.
        copy: a message as it was delivered in the first life.
    """

    channel: shardmq.Channel
    connection: shardmq.Connection
    was_killed: bool
    copy: shardmq.Message


@pytest.fixture(scope="module", params=["stop", "kill"])
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    was_killed = request.param == "kill"
    with Broker(tmp_path_factory.mktemp("restarted") / "data") as broker:
        with shardmq.connect(broker.url) as connection:
            channel = connection.channel()
            declare(channel)
            copy = publish(channel)
            consume(connection, channel)
            if was_killed:
                broker.kill_everything()
        if not was_killed:
            broker.stop()
        broker.start()
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            yield Restarted(channel, connection, was_killed, copy)
        print(broker.last_words())


def declare(channel: shardmq.Channel) -> None:
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


def publish(channel: shardmq.Channel) -> shardmq.Message:
    for queue in ("durable", "copy"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.fanout")
    channel.queue_declare("passing")
    channel.queue_bind("passing", "amq.fanout")
    publish_all(channel, "durable", numbers(0, 20))
    publish_all(channel, "durable", [b"transient"] * 20, TRANSIENT)
    channel.basic_publish("amq.fanout", "key", b"own", OWN)
    channel.basic_publish("amq.fanout", "key", b"given")
    publish_all(channel, "durable", numbers(20, 40))
    assert channel.queue_declare("durable", durable=True).messages == 62
    assert channel.queue_declare("passing").messages == 2
    [_, copy] = take(channel, "copy")
    first = [channel.basic_get("durable") for _ in range(5)]
    for message in first[:3]:
        assert message is not None
        message.ack()
    return copy


def consume(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare("partly", durable=True)
    publish_all(channel, "partly", numbers(0, 3000))
    for message in channel.consume("partly", prefetch=500):
        if int(message.body) % 3:
            message.ack()
        else:
            message.nack(requeue=False)
        if message.body == b"1999":
            break
    until(lambda: counts(connection, "partly")["valid"] == 1000, "all acks arrive")
    until(lambda: counts(connection, "partly")["ready"] == 1000, "what was not handed out returns")
    for queue in (
        "partly",
        "durable",
        "copy",
    ):  # acks reach the disk a moment later; this, behind them
        channel.queue_purge(beside(connection, queue))


def beside(connection: shardmq.Connection, queue: str) -> str:
    """An empty queue on the same shard."""
    with connection.channel() as channel:
        for number in range(64):
            name = f"beside-{number}"
            channel.queue_declare(name)
            shards = {table["name"]: table["shard"] for table in connection.topology("queues")}
            if shards[name] == shards[queue]:
                return name
    raise AssertionError(f"none of 64 queues is on the shard of '{queue}'")


def names(connection: shardmq.Connection, noun: str, prefix: str) -> set[str]:
    return {table["name"] for table in connection.topology(noun) if table["name"].startswith(prefix)}


def test_durable_exchanges_queues_and_bindings_survive_and_no_others(restarted: Restarted) -> None:
    connection, channel = restarted.connection, restarted.channel
    assert names(connection, "exchanges", "exchange-") == {"exchange-True"}
    assert names(connection, "exchanges", "deleted") == set()
    assert names(connection, "queues", "queue-") == {f"queue-True-{number}" for number in range(3)}
    bindings = connection.topology("bindings")
    assert {
        (table["source"], table["destination"], table["routing_key"])
        for table in bindings
        if table["source"] != "amq.fanout"
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


def test_persistent_messages_in_durable_queues_survive_with_all_they_had_and_no_others(restarted: Restarted) -> None:
    channel, copy = restarted.channel, restarted.copy
    got = take(channel, "durable")
    again = [message.body for message in got if message.redelivered]
    assert [message.body for message in got] == [*numbers(3, 20), b"own", b"given", *numbers(20, 40)]
    if restarted.was_killed:  # what might have been handed out counts as handed out
        assert set(again) >= set(numbers(3, 5))
    else:
        assert again == numbers(3, 5)
    mine, given = got[17], got[18]
    assert (mine.message_id, mine.properties, mine.routing_key) == ("mine", OWN, "key")
    assert (given.message_id, given.timestamp_ms) == (copy.message_id, copy.timestamp_ms)
    assert (given.exchange, given.persistent) == ("amq.fanout", True)
    assert channel.queue_declare("copy", durable=True).messages == 0
    assert names(restarted.connection, "queues", "passing") == set()
    channel.basic_publish("", "durable", b"new")
    [new] = take(channel, "durable")
    assert new.message_id not in {message.message_id for message in got}
    assert not new.redelivered


def test_what_was_acked_stays_acked_and_the_rest_comes_in_order(restarted: Restarted) -> None:
    assert bodies(restarted.channel, "partly") == numbers(2000, 3000)


def test_a_stop_answers_every_publish_that_is_under_way(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    confirmed: list[bytes] = []
    with shardmq.connect(broker.url, recovery=None) as connection:
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
                    broker.kill("gateway-0", signal.SIGTERM)
    broker.restart()
    with shardmq.connect(broker.url) as connection:
        got = bodies(connection.channel(), "stopping")
    assert got[: len(confirmed)] == confirmed
    assert got == numbers(0, len(got))
