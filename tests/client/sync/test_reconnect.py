"""A connection that is lost and comes back: real brokers whose gateway is killed, stopped, or one of two."""

import asyncio
import contextlib
import os
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicGet, BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionClose, ConnectionOpen
from shardmq.protocol.native.operations.topology import QueueDeclare
from tests.client.peers import Conversation, Script

StartBroker = Callable[..., Broker]
Peer = Callable[[Script], str]

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


def stored(connection: shardmq.Connection, queue: str) -> list[int]:
    """The numbers in a queue; they are gone then."""
    numbers: list[int] = []
    with connection.channel() as channel:
        for batch in channel.consume_batches(queue, inactivity_timeout=1):
            numbers += map(int, batch.bodies)
            batch.ack()
    return numbers


def test_publishers_and_consumers_run_through_kills_and_every_message_is_stored_once(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    total = 30_000
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        recovered: list[shardmq.Recovered] = []
        back = threading.Semaphore(0)

        @connection.on_recovery
        def note(what: shardmq.Recovered) -> None:
            recovered.append(what)
            back.release()

        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_bind("work", "amq.fanout")
        channel.queue_bind("kept", "amq.fanout")
        handled: Counter[int] = Counter()
        everything = threading.Event()

        def handle(message: shardmq.Message) -> None:
            handled[int(message.body)] += 1
            message.ack()
            if len(handled) == total:
                everything.set()

        connection.channel().basic_consume("work", handle, prefetch=200, consumer_tag="worker")
        with channel.publisher(window=3000) as publisher:
            for number in range(total):
                publisher.publish("amq.fanout", "", b"%d" % number)
                if number in (8_000, 20_000):
                    broker.kill("gateway-0")
                    assert back.acquire(timeout=20)
        assert everything.wait(20)
        assert len(recovered) == 2
        assert recovered[0].failed == []
        assert sorted(stored(connection, "kept")) == list(range(total))
        [consumer] = [table for table in connection.status()["queues"] if table["name"] == "work"]
        assert consumer["consumers"] == 1


def test_one_of_two_addresses_is_enough(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1, gateways=1)
    nowhere = "127.0.0.1:1"
    url = f"shardmq://guest:guest@{nowhere},127.0.0.1:{broker.port},{nowhere}/"
    with shardmq.connect(url, recovery=QUICK) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        broker.kill("gateway-0")
        channel.basic_publish("", "q", b"1")
        assert stored(connection, "q") == [1]


def test_what_was_declared_comes_back_and_what_was_deleted_does_not(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        back = threading.Event()
        told: list[shardmq.Recovered] = []
        connection.on_recovery(lambda what: (told.append(what), back.set()))
        channel = connection.channel()
        channel.exchange_declare("kept", "topic")
        channel.exchange_declare("deleted", "topic")
        channel.exchange_delete("deleted")
        channel.queue_declare("mine")
        channel.queue_bind("mine", "kept", "a.#")
        channel.queue_bind("mine", "kept", "b.#")
        channel.queue_unbind("mine", "kept", "b.#")
        messages = channel.consume("mine", prefetch=10)
        channel.basic_publish("kept", "a.1", b"before")
        first = next(messages)
        broker.kill("gateway-0")
        assert back.wait(20)
        first.ack()  # of the life before: means nothing
        again = next(messages)
        assert (again.body, again.redelivered) == (b"before", True)
        again.ack()
        channel.basic_publish("kept", "b.1", b"unbound")
        channel.basic_publish("kept", "a.2", b"after")
        after = next(messages)
        assert after.body == b"after"
        assert after.delivery_tag > again.delivery_tag > first.delivery_tag
        with pytest.raises(errors.NotFound):
            channel.basic_publish("deleted", "a", b"")
        assert channel.is_open


def test_a_stopped_gateway_is_left_for_another_life_within_two_heartbeats(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, heartbeat=1, recovery=QUICK) as connection:
        lost, back = threading.Event(), threading.Event()
        connection.on_lost(lambda _: lost.set())
        connection.on_recovery(lambda _: back.set())
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        pid = broker.kill("gateway-0", signal.SIGSTOP)
        assert lost.wait(10)
        assert connection.is_recovering
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        assert back.wait(30)
        channel.basic_publish("", "q", b"1")


def test_close_returns_in_time_while_the_gateway_is_stopped_and_while_it_is_away(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    silent, away = shardmq.connect(broker.url, timeout=2), shardmq.connect(broker.url, timeout=2, recovery=QUICK)
    silent_channel = silent.channel()
    silent_channel.queue_declare("q")
    publisher = silent_channel.publisher(window=100_000)
    broker.kill("gateway-0", signal.SIGSTOP)
    try:
        with pytest.raises(errors.Timeout):
            publisher.publish_many("", "q", [bytes(1000)] * 100_000)
        began = time.monotonic()
        silent.close()
        assert time.monotonic() - began < 8
    finally:
        broker.kill("gateway-0", signal.SIGCONT)
    lost = threading.Event()
    away.on_lost(lambda _: lost.set())
    broker.stop()
    assert lost.wait(20)
    assert away.is_open
    began = time.monotonic()
    away.close()
    assert time.monotonic() - began < 3
    with pytest.raises(errors.ConnectionLost, match="closed by this program"):
        away.channel()


def test_publishing_while_it_is_away_times_out_and_says_so_and_was_not_sent(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, timeout=1, recovery=QUICK) as connection:
        lost, back = threading.Event(), threading.Event()
        connection.on_lost(lambda _: lost.set())
        connection.on_recovery(lambda _: back.set())
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        broker.stop()
        assert lost.wait(20)
        with pytest.raises(errors.Timeout, match=r"being recovered.*was not sent"):
            channel.basic_publish("", "q", b"1")
        publisher = channel.publisher(window=2)
        publisher.publish("", "q", b"2")
        publisher.publish("", "q", b"3")
        with pytest.raises(errors.Timeout, match=r"window.*being recovered"):
            publisher.publish("", "q", b"4")
        with pytest.raises(errors.Timeout, match=r"declaring queue .other.*being recovered"):
            channel.queue_declare("other")
        broker.start()
        assert back.wait(20)
        publisher.flush(10)
        assert stored(connection, "q") == [2, 3]


def test_a_get_under_way_is_lost_and_a_declaration_is_asked_again(peer: Peer) -> None:
    served = threading.Event()

    def second(talk: Conversation) -> None:
        talk.open(channels=2)
        asked = talk.next(QueueDeclare)
        talk.answer(asked, {"queue": "q", "messages": 7, "consumers": 0})
        served.set()
        talk.read_to_end()

    second_url = peer(second)

    def first(talk: Conversation) -> None:
        talk.open(channels=2)
        kinds = {type(talk.next()), type(talk.next())}
        assert kinds == {BasicGet, QueueDeclare}

    connection = shardmq.connect([peer(first), second_url], recovery=QUICK)
    channel, other = connection.channel(), connection.channel()
    other_outcome: list[BaseException] = []

    def get() -> None:
        try:
            other.basic_get("q")
        except errors.ShardmqError as error:
            other_outcome.append(error)

    getting = threading.Thread(target=get)
    getting.start()
    declared = channel.queue_declare("q")
    getting.join(10)
    assert declared.messages == 7
    assert [type(error) for error in other_outcome] == [errors.ConnectionLost]
    assert "getting from queue 'q' was under way" in str(other_outcome[0])
    assert served.wait(5)
    connection.close()


def test_refused_credentials_end_the_recovery(peer: Peer) -> None:
    def refuses(talk: Conversation) -> None:
        talk.next(ConnectionOpen)
        talk.send(ConnectionClose(403, "the password was changed"))

    def lets_in(talk: Conversation) -> None:
        talk.open(channels=0)

    connection = shardmq.connect([peer(lets_in), peer(refuses)], recovery=QUICK)
    ended = threading.Event()
    connection.on_lost(lambda _: None if connection.is_open else ended.set())
    deadline = time.monotonic() + 10
    while connection.is_open and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(errors.AuthenticationFailed, match="password was changed"):
        connection.channel()
    connection.close()


def test_a_connection_comes_back_in_a_program_with_many_open_files(peer: Peer) -> None:
    second_url = peer(lambda talk: (talk.open(), talk.read_to_end()))
    first_url = peer(Conversation.open)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1024):  # the connection's own have higher numbers than select() takes
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with shardmq.connect([first_url, second_url], recovery=QUICK) as connection:
            back = threading.Event()
            connection.on_recovery(lambda _: back.set())
            connection.channel()  # the first peer hangs up when it has opened one
            assert back.wait(60)


def test_a_recovery_is_given_up_when_it_was_to_be(peer: Peer) -> None:
    def hangs_up(talk: Conversation) -> None:
        talk.open(channels=0)

    connection = shardmq.connect(peer(hangs_up), recovery=shardmq.Recovery(first_seconds=0.01, attempts=1), timeout=1)
    deadline = time.monotonic() + 15
    while connection.is_open and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(errors.ConnectionLost):
        connection.channel()
    connection.close()


def test_unconfirmed_batches_are_resent_with_their_numbers_before_anything_new(peer: Peer) -> None:
    said: list[list[BasicPublish]] = [[], []]

    def second(talk: Conversation) -> None:
        talk.open()
        while sum(publish.count for publish in said[1]) < 30:
            said[1].append(talk.next(BasicPublish))
            talk.confirm(said[1][-1])
        talk.read_to_end()

    second_url = peer(second)

    def first(talk: Conversation) -> None:
        talk.open()
        while sum(publish.count for publish in said[0]) < 20:
            said[0].append(talk.next(BasicPublish))
        talk.confirm(said[0][0])

    with shardmq.connect([peer(first), second_url], recovery=QUICK) as connection:
        lost = threading.Event()
        connection.on_lost(lambda _: lost.set())
        publisher = connection.channel().publisher()
        for number in range(4):
            publisher.publish_many("", "q", [b"%d" % number] * 5)
        assert lost.wait(10)
        for number in range(4, 7):
            publisher.publish_many("", "q", [b"%d" % number] * 5)
        publisher.flush(10)
    assert [publish.sequence for publish in said[0]] == [1, 6, 11, 16]
    assert [publish.sequence for publish in said[1]] == [6, 11, 16, 21, 26, 31]
    assert {publish.producer for life in said for publish in life} == {said[0][0].producer}
    assert said[0][0].producer > 0


@pytest.mark.parametrize("kind", ["consume", "handler"])
def test_the_same_in_asyncio(tmp_path: Path, kind: str) -> None:
    async def main(broker: Broker) -> None:
        async with await shardmq.aio.connect(broker.url, recovery=QUICK) as connection:
            back = asyncio.Event()

            @connection.on_recovery
            async def note(_: shardmq.Recovered) -> None:
                back.set()

            channel = await connection.channel()
            await channel.queue_declare("q", durable=True)
            consuming = await connection.channel()
            handled: set[int] = set()
            everything = asyncio.Event()

            async def handle(message: shardmq.Message) -> None:
                handled.add(int(message.body))
                message.ack()
                if len(handled) == 6000:
                    everything.set()

            async def consume() -> None:
                async for message in consuming.consume("q", prefetch=100):
                    await handle(message)

            task = None
            if kind == "handler":
                await consuming.basic_consume("q", handle, prefetch=100, concurrency=5)
            else:
                task = asyncio.create_task(consume())
            async with channel.publisher(window=1000) as publisher:
                for number in range(6000):
                    await publisher.publish("", "q", b"%d" % number)
                    if number == 3000:
                        broker.kill("gateway-0")
                        await asyncio.wait_for(back.wait(), 20)
            await asyncio.wait_for(everything.wait(), 20)
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    broker = Broker(tmp_path / "data", shards=1)
    try:
        broker.start()
        asyncio.run(asyncio.wait_for(main(broker), 60))
    finally:
        broker.close()
