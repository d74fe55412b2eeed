"""Transactions, slices and reservations in the SDK, with threads and asyncio: against scripted peers and brokers."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicPublish, BasicRefused
from shardmq.protocol.native.operations.connection import ChannelClose, ConnectionClose
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]


StartBroker = Callable[..., Broker]


QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A durable queue of the test's own."""
    name = request.node.name[:200]
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def stored(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """The bodies in a queue; they are gone then. As many as it says it has come at once, any others one by one."""
    found: list[bytes] = []
    ready = channel.queue_declare(queue, passive=True).messages
    if ready:
        for message in channel.consume(queue, prefetch=ready):
            found.append(message.body)
            message.ack()
            if len(found) == ready:
                break
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


def begin(talk: Conversation, state: str = "open") -> None:
    talk.open()
    asked = talk.next(TransactionBegin)
    assert asked.transaction == "batch"
    talk.answer(asked, {"number": 7, "state": state})


def finish(talk: Conversation, messages: int) -> None:
    """Seal and commit."""
    sealing = talk.next(TransactionSeal)
    talk.answer(sealing, {"messages": messages, "bytes": 100})
    commit = talk.next(TransactionCommit)
    assert (commit.transaction, commit.number, commit.attempts) == ("batch", 7, [(sealing.attempt, messages)])
    talk.answer(commit, {"visible": False})
    commit = talk.next(TransactionCommit)
    talk.answer(commit, {"visible": True})


def away_at_first(talk: Conversation) -> None:
    """A broker whose shard is not there for three tries."""
    begin(talk)
    first = talk.next(BasicPublish)
    assert (first.transaction, first.sequence, first.count) == (7, 0, 3)
    again = first
    for _ in range(3):
        talk.send(BasicRefused(1, [(again.request, again.request)], 506, "shard-2 is not there now; publish again"))
        again = talk.next(BasicPublish)
        assert (again.producer, again.sequence, again.records) == (first.producer, 0, first.records)
    talk.confirm(again)
    finish(talk, 3)
    talk.read_to_end()


def test_what_a_shard_that_is_away_did_not_take_is_published_again_by_itself(peer: Peer) -> None:
    with shardmq.connect(peer(away_at_first)) as connection, connection.channel() as channel:
        with channel.transaction("batch") as transaction:
            transaction.publish_many("", "q", [b"1", b"2", b"3"])
        assert transaction.is_committed


def test_what_a_shard_that_is_away_did_not_take_is_published_again_by_itself_with_asyncio(peer: Peer) -> None:
    async def run() -> None:
        async with await shardmq.aio.connect(peer(away_at_first)) as connection:
            channel = await connection.channel()
            async with await channel.transaction("batch") as transaction:
                await transaction.publish_many("", "q", [b"1", b"2", b"3"])
            assert transaction.is_committed

    asyncio.run(run())


def close_inside(channel: shardmq.Channel) -> None:
    with channel.transaction("batch") as transaction:
        transaction.publish("", "q", b"1")
        transaction.flush()
        channel.close()
        transaction.publish("", "q", b"2")


def test_a_channel_closed_in_the_middle_ends_it_without_an_abort(peer: Peer) -> None:
    said: SimpleQueue[Any] = SimpleQueue()

    def script(talk: Conversation) -> None:
        begin(talk)
        talk.confirm(talk.next(BasicPublish))
        closing = talk.next(ChannelClose)
        talk.answer(closing)
        said.put(talk.next())

    with shardmq.connect(peer(script)) as connection:
        channel = connection.channel()
        with pytest.raises(errors.ChannelError, match="closed by this program") as caught:
            close_inside(channel)
        assert "could not be aborted" in caught.value.__notes__[0]
    assert isinstance(said.get(timeout=5), ConnectionClose)


def test_a_name_that_was_committed_is_left_without_asking_for_anything(peer: Peer) -> None:
    said: SimpleQueue[Any] = SimpleQueue()

    def script(talk: Conversation) -> None:
        begin(talk, "committed")
        said.put(talk.next())

    with shardmq.connect(peer(script)) as connection:
        channel = connection.channel()
        with channel.transaction("batch") as transaction:
            assert transaction.is_committed
            transaction.publish("", "q", b"1")
            transaction.publish_many("", "q", [b"2"])
    assert isinstance(said.get(timeout=5), ConnectionClose)


def test_a_refusal_aborts_and_the_next_publish_says_why(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        begin(talk)
        first = talk.next(BasicPublish)
        talk.send(BasicRefused(1, [(first.request, first.request)], 406, "transaction 7 is over"))
        aborting = talk.next()
        while isinstance(aborting, BasicPublish):
            talk.send(BasicRefused(1, [(aborting.request, aborting.request)], 406, "transaction 7 is over"))
            aborting = talk.next()
        assert isinstance(aborting, TransactionAbort)
        talk.answer(aborting)
        talk.read_to_end()

    def endless(channel: shardmq.Channel) -> None:
        with channel.transaction("batch", window=10) as transaction:
            while True:
                transaction.publish("", "q", b"1")

    with shardmq.connect(peer(script)) as connection, connection.channel() as channel:
        with pytest.raises(errors.PreconditionFailed, match="transaction 7 is over") as caught:
            endless(channel)
        assert caught.value.__notes__ == ["transaction 'batch' was aborted: nothing of it appears"]


def test_messages_of_several_threads_appear_together_each_threads_in_order(
    channel: shardmq.Channel, queue: str
) -> None:
    with channel.transaction(queue) as transaction:

        def work(thread: int) -> None:
            for number in range(1000):
                transaction.publish("", queue, b"%d %d" % (thread, number))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        transaction.flush()
        assert channel.basic_get(queue) is None
    found = [tuple(map(int, body.split())) for body in stored(channel, queue)]
    assert len(found) == 4000
    for thread in range(4):
        assert [number for other, number in found if other == thread] == list(range(1000))


def test_what_the_channel_publishes_beside_it_is_not_its_matter(channel: shardmq.Channel, queue: str) -> None:
    transaction = channel.transaction(queue)
    with channel.publisher() as publisher:
        for number in range(100):
            publisher.publish("", queue, b"%d" % number)
            transaction.publish("", queue, b"staged")
    channel.basic_publish("", queue, b"100")
    transaction.abort()
    assert stored(channel, queue) == [b"%d" % number for number in range(101)]


def test_parts_staged_elsewhere_are_committed_by_one_who_gets_their_seals_as_json(
    broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    notes: list[str] = []
    for part in range(3):
        with shardmq.connect(broker.url) as connection, connection.channel() as own:
            transaction = own.transaction(queue)
            transaction.publish_many("", queue, [b"%d" % number for number in range(part * 10, part * 10 + 10)])
            notes.append(json.dumps(transaction.seal()))
    with channel.transaction(queue) as driver:
        assert driver.commit(json.loads(note) for note in notes)
    assert stored(channel, queue) == [b"%d" % number for number in range(30)]


def test_a_rerun_changes_nothing_and_a_second_commit_is_harmless(channel: shardmq.Channel, queue: str) -> None:
    for _ in range(2):
        with channel.transaction(queue) as transaction:
            transaction.publish("", queue, b"once")
        assert transaction.commit()
        assert stored(channel, queue) in ([b"once"], [])
    with pytest.raises(errors.PreconditionFailed, match="committed"):
        transaction.abort()


def test_it_is_of_no_more_use_when_it_is_over(channel: shardmq.Channel, queue: str) -> None:
    with channel.transaction(queue) as transaction:
        transaction.publish("", queue, b"1")
    with pytest.raises(errors.PreconditionFailed, match="is committed; begin another one"):
        transaction.publish("", queue, b"2")
    aborted = channel.transaction(queue + "'")
    aborted.abort()
    with pytest.raises(errors.PreconditionFailed, match="was aborted; begin it again"):
        aborted.publish_many("", queue, [b"2"])
    assert stored(channel, queue) == [b"1"]


def test_what_cannot_be_said_is_refused_before_it_is(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.InvalidRequest, match="not empty"):
        channel.transaction("")
    with pytest.raises(errors.InvalidRequest, match="timeout_ms is 0 to"):
        channel.transaction("x", timeout_ms=-1)
    with pytest.raises(errors.InvalidRequest, match="window"):
        channel.transaction("x", window=0)
    with pytest.raises(TypeError, match="transaction is a str"):
        channel.transaction_abort(7)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidRequest, match="slices is 1 to"):
        channel.queue_slices("q", 0)
    with pytest.raises(TypeError, match="first is an int"):
        channel.queue_read("q", None, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="acknowledge is True"):
        channel.reservation_end("q", "r", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ranges is a list of pairs"):
        channel.reservation_end("q", "r", True, [5])  # type: ignore[list-item]


async def until_cancelled(channel: shardmq.aio.Channel, queue: str, inside: asyncio.Event) -> None:
    async with await channel.transaction("cancelled") as transaction:
        await transaction.publish("", queue, b"never")
        inside.set()
        await asyncio.Event().wait()


def test_with_asyncio_it_is_the_same(channel: shardmq.Channel, broker: Broker, queue: str) -> None:
    async def run() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            for turn in range(2):
                async with await own.transaction(queue) as transaction:
                    assert transaction.is_committed is (turn == 1)
                    await transaction.publish_many("", queue, [b"%d" % number for number in range(1000)])
                    await asyncio.gather(*[transaction.publish("", queue, b"x") for _ in range(100)])
                    await own.basic_publish("", queue, b"at once")
            with pytest.raises(errors.NotFound, match="nowhere"):
                async with await own.transaction("fails") as transaction:
                    await transaction.publish("nowhere", "k", b"1")
            task = asyncio.create_task(until_cancelled(own, queue, inside := asyncio.Event()))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await connection.topology("transactions") == []
            worker = await own.transaction("parts")
            await worker.publish("", queue, b"y")
            await worker.flush()
            sealed = await worker.seal()
            driver = await own.transaction("parts")
            assert await driver.commit([sealed])
            await (await own.transaction("given up")).abort()
            await own.transaction_abort("given up")

    asyncio.run(run())
    found = stored(channel, queue)
    assert found == [b"at once", *[b"%d" % number for number in range(1000)], *[b"x"] * 100, b"at once", b"y"]


@pytest.mark.parametrize("victim", ["shard-0", "gateway-0", "coordinator"])
def test_a_transaction_goes_on_while_processes_are_killed(start_broker: StartBroker, victim: str) -> None:
    broker = start_broker(shards=2)
    queues = [f"q{number}" for number in range(6)]
    with shardmq.connect(broker.url, recovery=QUICK) as connection, connection.channel() as channel:
        for queue in queues:
            channel.queue_declare(queue, durable=True)
        with channel.transaction("through it") as transaction:
            for number in range(12_000):
                transaction.publish("", queues[number % 6], b"%d" % number)
                if number in (3000, 6000, 9000):
                    broker.kill_and_wait(victim)
            if victim == "coordinator":
                broker.kill(victim)
        for place, queue in enumerate(queues):
            found = channel.queue_declare(queue, passive=True).messages
            assert found == 2000, queue
            assert [int(body) for body in stored(channel, queue)] == list(range(place, 12_000, 6))


@pytest.mark.parametrize("victim", ["shard-0", "gateway-0"])
def test_a_transaction_goes_on_while_processes_are_killed_with_asyncio(start_broker: StartBroker, victim: str) -> None:
    broker = start_broker(shards=2)
    queues = [f"q{number}" for number in range(6)]

    async def run() -> None:
        async with await shardmq.aio.connect(broker.url, recovery=QUICK) as connection:
            channel = await connection.channel()
            for queue in queues:
                await channel.queue_declare(queue, durable=True)
            async with await channel.transaction("through it") as transaction:
                for number in range(6000):
                    await transaction.publish("", queues[number % 6], b"%d" % number)
                    if number in (2000, 4000):
                        broker.kill(victim)
                        await asyncio.to_thread(broker.wait_for, "ready", victim, after=len(broker.notices))

    asyncio.run(run())
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for place, queue in enumerate(queues):
            assert [int(body) for body in stored(channel, queue)] == list(range(place, 6000, 6))
