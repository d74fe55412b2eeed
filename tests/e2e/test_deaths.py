"""One process dies: what its clients see, and what nobody else notices."""

import asyncio
import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import shardmq
from shardmq import errors
from tests.conftest import StartBroker

from .traffic import bodies, counts, numbers, publish_all, shard_of, take, until


def declare_on_each(channel: shardmq.Channel, connection: shardmq.Connection, durable: bool = True) -> dict[str, str]:
    """A queue on each of two shards, by the shard's name."""
    queues: dict[str, str] = {}
    for number in range(64):
        name = f"spread-{durable}-{number}"
        channel.queue_declare(name, durable=durable)
        queues.setdefault(shard_of(connection, name), name)
        if len(queues) == 2:
            return queues
    raise AssertionError(f"64 queues are all on one of two shards: {queues}")


def test_publishes_to_a_dead_shard_are_refused_and_everything_else_lives_on(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        queues = declare_on_each(channel, connection)
        dead, alive = queues["shard-0"], queues["shard-1"]
        for queue in (dead, alive):
            channel.queue_bind(queue, "amq.fanout")
        publish_all(channel, dead, [b"before"])
        known = len(broker.notices)
        os.kill(broker.pid, signal.SIGSTOP)  # so that nobody starts it again meanwhile
        try:
            broker.kill("shard-0")
            with pytest.raises(errors.RequestError, match="shard-0") as refused:
                channel.basic_publish("", dead, b"refused")
            assert refused.value.code == errors.ReplyCode.RESOURCE_ERROR
            with pytest.raises(errors.RequestError, match="publish again"):
                channel.basic_publish("amq.fanout", "", b"half refused")
            with channel.publisher() as publisher:
                publisher.publish("", alive, b"while it is away")
                publisher.publish_many("", dead, [b"refused"] * 10)
                with pytest.raises(errors.RequestError, match="10 messages were refused"):
                    publisher.flush()
            assert bodies(channel, alive) == [b"half refused", b"while it is away"]
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        broker.wait_for("ready", "shard-0", after=known)

        def publish_again() -> bool:
            with contextlib.suppress(errors.RequestError):
                channel.basic_publish("", dead, b"after")
                return True
            return False

        until(publish_again, "publishing goes on")
        got = bodies(channel, dead)
        assert got[0] == b"before"
        assert got[-1] == b"after"
        assert set(got) <= {b"before", b"refused", b"half refused", b"after"}


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_consumers_resume_by_themselves_when_their_shard_is_back(start_broker: StartBroker, durable: bool) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel, publishing = connection.channel(), connection.channel()
        queues = declare_on_each(channel, connection, durable)
        consumers = {shard: channel.consume(queue, prefetch=10) for shard, queue in queues.items()}
        for queue in queues.values():
            publish_all(publishing, queue, numbers(0, 20))
        held = {shard: [next(messages) for _ in range(10)] for shard, messages in consumers.items()}
        for messages in held.values():
            for message in messages[:5]:
                message.ack()
        channel.flush()
        for queue in queues.values():
            until(lambda: counts(connection, queue)["valid"] == 15, "the acks arrive")  # noqa: B023
        broker.kill_and_wait("shard-0")
        for message in held["shard-0"][5:]:
            message.ack()  # no fault, though it acks nothing: what is numbered anew is not what it held
        until(lambda: counts(connection, queues["shard-0"]).get("consumers") == 1, "the consumer is back")
        publish_all(publishing, queues["shard-0"], [b"last"])
        got = []
        for message in consumers["shard-0"]:
            got.append(message)
            message.ack()
            if message.body == b"last":
                break
        again = [int(message.body) for message in got if message.redelivered and message.body != b"last"]
        fresh = [message.body for message in got if not message.redelivered]
        if durable:
            assert again == sorted(set(again))
            assert set(again) >= set(range(5, 15)), "what was out, in the client's hands or on the way there"
            assert {message.body for message in got} >= {*numbers(5, 20), b"last"}
            assert fresh[:5] == numbers(10, 15), "came before the shard died"
        else:
            assert again == []
            assert fresh == [*numbers(10, 15), b"last"]
        for message in held["shard-1"][5:]:
            message.ack()
        until(lambda: counts(connection, queues["shard-1"])["valid"] == 10, "the other consumer goes on")
        assert channel.is_open


def test_a_transient_queue_outlives_the_coordinator_and_loses_its_messages_with_its_shard(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.exchange_declare("light", "fanout")
        queues = declare_on_each(channel, connection, durable=False)
        for queue in queues.values():
            channel.queue_bind(queue, "light")
        channel.basic_publish("light", "", b"1")
        broker.kill_and_wait("coordinator")
        channel.exchange_declare("light", "fanout")
        for queue in queues.values():
            assert channel.queue_declare(queue).messages == 1
        broker.kill_and_wait("shard-0")
        until(lambda: counts(connection, queues["shard-0"]), "the shard is back")
        assert channel.queue_declare(queues["shard-0"]).messages == 0
        assert channel.queue_declare(queues["shard-1"]).messages == 1
        channel.basic_publish("light", "", b"2")
        assert bodies(channel, queues["shard-0"]) == [b"2"]
        assert bodies(channel, queues["shard-1"]) == [b"1", b"2"]


def test_without_a_coordinator_messages_flow_and_declarations_wait(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection, ThreadPoolExecutor() as pool:
        channel, declaring = connection.channel(), connection.channel()
        channel.exchange_declare("flow", "topic", durable=True)
        channel.queue_declare("flow", durable=True)
        channel.queue_bind("flow", "flow", "#")
        channel.queue_declare("gone", durable=True)
        channel.basic_publish("", "gone", b"with it")
        messages = channel.consume("flow", prefetch=10)
        known = len(broker.notices)
        broker.kill("coordinator")
        declared = pool.submit(declaring.queue_declare, "later", durable=True)
        deleted = pool.submit(connection.channel().queue_delete, "gone")
        flowed = 0
        while not declared.done():
            channel.basic_publish("flow", "a.b", b"%d" % flowed)
            message = next(messages)
            assert message.body == b"%d" % flowed
            message.ack()
            with shardmq.connect(broker.url) as newcomer:  # passwords and topology are known without it
                newcomer.channel().basic_publish("", "nobody's", b"")
            flowed += 1
        assert broker.wait_for("ready", "coordinator", after=known)
        assert declared.result() == shardmq.QueueDeclared("later", 0, 0)
        assert deleted.result(20) == 1
        assert flowed >= 5
        channel.basic_publish("", "later", b"x")
        assert bodies(declaring, "later") == [b"x"]


def test_what_is_answered_is_there_after_a_kill_at_once_and_a_declaration_waits_for_the_shard(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("first", durable=True)
        channel.basic_publish("", "first", b"0")
        broker.kill("shard-0")
        assert channel.queue_declare("second", durable=True).messages == 0
        channel.basic_publish("", "first", b"1")
        channel.basic_publish("", "second", b"x")
        known = len(broker.notices)
        broker.kill("shard-0")
        broker.wait_for("ready", "shard-0", after=known)
        assert [message.body for message in take(channel, "first")] == [b"0", b"1"]
        assert bodies(channel, "second") == [b"x"]


@pytest.mark.parametrize("victims", [("shard-0",), ("coordinator", "shard-0")], ids="-and-".join)
def test_a_queue_is_there_though_its_shard_is_killed_as_soon_as_it_is_declared(
    start_broker: StartBroker, victims: tuple[str, ...]
) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(3):
            known = len(broker.notices)
            channel.queue_declare(f"q{number}", durable=True)
            for victim in victims:
                broker.kill(victim)
            for victim in victims:
                broker.wait_for("ready", victim, after=known)
            assert channel.queue_declare(f"q{number}", passive=True).messages == 0
            channel.basic_publish("", f"q{number}", b"%d" % number)
        assert [bodies(channel, f"q{number}") for number in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_a_callback_consumer_notices_nothing_of_deaths_but_redeliveries(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    seen: dict[bytes, int] = {}
    unmarked: list[bytes] = []
    lock = threading.Lock()

    def callback(message: shardmq.Message) -> None:
        with lock:
            if message.body in seen and not message.redelivered:
                unmarked.append(message.body)
            seen[message.body] = seen.get(message.body, 0) + 1
        message.ack()

    with shardmq.connect(broker.url) as connection:
        channel, publishing = connection.channel(), connection.channel()
        channel.queue_declare("steady", durable=True)
        channel.basic_consume("steady", callback, prefetch=50)
        confirmed = 0
        for victim in ("shard-0", "coordinator", "shard-0"):
            known = len(broker.notices)
            broker.kill(victim)
            for _ in range(200):
                with contextlib.suppress(errors.RequestError):
                    publishing.basic_publish("", "steady", b"%d" % confirmed)
                    confirmed += 1
            broker.wait_for("ready", victim, after=known)
        until(lambda: counts(connection, "steady").get("valid") == 0, "all is consumed and acked")
        assert set(numbers(0, confirmed)) <= seen.keys()
        assert not unmarked
        assert channel.is_open


def test_with_asyncio_the_same_holds(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)

    async def publish_until_confirmed(channel: Any, body: bytes) -> None:
        while True:
            with contextlib.suppress(errors.RequestError):
                await channel.basic_publish("", "aio", body)
                return

    async def main() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.queue_declare("aio", durable=True)
            async with channel.publisher() as publisher:
                await publisher.publish_many("", "aio", numbers(0, 10))
            async with contextlib.aclosing(channel.consume("aio", prefetch=5)) as messages:
                held = [await anext(messages) for _ in range(5)]
                assert [message.body for message in held] == numbers(0, 5)
                broker.kill("shard-0")
                with pytest.raises(errors.RequestError, match="shard-0"):
                    await channel.basic_publish("", "aio", b"refused")
                await publish_until_confirmed(channel, b"last")
                got = []
                async for message in messages:
                    got.append(message)
                    message.ack()
                    if message.body == b"last":
                        break
            assert [message.body for message in got if message.body != b"refused"] == [*numbers(0, 10), b"last"]
            assert all(message.redelivered for message in got[:5])
            broker.kill("coordinator")
            assert (await channel.queue_declare("aio-later", durable=True)).messages == 0
            await channel.exchange_declare("aio", "fanout", durable=True)

    asyncio.run(asyncio.wait_for(main(), 60))
