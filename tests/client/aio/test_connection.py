"""The SDK for asyncio, on asyncio's loop and on uvloop: against a broker, and against peers that fail it."""

import asyncio
import contextlib
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicAck, BasicConsume, BasicDeliver, BasicPublish
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode
from shardmq.protocol.native.operations.connection import ChannelOpen, ConnectionClose, ConnectionOpen, Ok
from shardmq.protocol.native.operations.topology import QueueDeclare
from tests.client.peers import Conversation, Script

Run = Callable[[Awaitable[None]], Any]
Peer = Callable[[Script], str]


@pytest.fixture(params=[None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine to its end on each kind of loop."""

    def run(main: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(main, 30))

    return run


def test_the_verbs_are_the_same(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.exchange_declare("flights", "topic")
            await channel.queue_declare("aio")
            await channel.queue_bind("aio", "flights", "#")
            await channel.basic_publish("flights", "a.b", b"one", shardmq.Properties(type="t"))
            async with channel.publisher(window=1000) as publisher:
                for number in range(3000):
                    await publisher.publish("flights", "a.b", b"%d" % number)
                await publisher.publish_many("flights", "a.b", [b"x"] * 1000)
            assert (await channel.queue_declare("aio")).messages == 4001
            got = []
            async with contextlib.aclosing(channel.consume("aio", prefetch=300)) as messages:
                async for message in messages:
                    got.append(message.body)
                    message.ack()
                    if len(got) == 3501:
                        break
            assert got == [b"one", *(b"%d" % number for number in range(3000)), *[b"x"] * 500]
            assert (await channel.queue_declare("aio")).messages == 500
            message = await channel.basic_get("aio")
            assert message is not None
            message.nack()
            count = 0
            async for batch in channel.consume_batches("aio", inactivity_timeout=2.0):
                count += len(batch.bodies)
                batch.ack()
            assert count == 500
            assert await channel.basic_get("aio") is None
            assert {table["name"] for table in await connection.topology("queues")} >= {"aio"}
            assert (await connection.status())["processes"]
            await channel.queue_unbind("aio", "flights", "#")
            await channel.exchange_delete("flights")
            assert await channel.queue_purge("aio") == 0
            assert await channel.queue_delete("aio") == 0
            await channel.close()

    run(main())


def test_what_many_consumers_of_a_channel_ack_travels_together(peer: Peer, run: Run) -> None:
    acked: list[Any] = []

    def script(talk: Conversation) -> None:
        talk.open()
        asked = [talk.next(BasicConsume) for _ in range(3)]
        for place, consume in enumerate(asked):
            talk.answer(consume, {"consumer": f"c{place}"})
        record = pack(None, b"x")
        talk.send(
            *[BasicDeliver(1, f"c{place}", place + 1, False, "", "q", 1, 0, 1, 1, 1, record) for place in range(3)]
        )
        acked.append(talk.next(BasicAck).tags)
        talk.read_to_end()

    async def main() -> None:
        async with shardmq.aio.connect(peer(script), recovery=None) as connection:
            channel = await connection.channel()

            async def consume(queue: str) -> None:
                async for batch in channel.consume_batches(queue):
                    batch.ack()

            consumers = [asyncio.create_task(consume(f"q{place}")) for place in range(3)]
            while not acked:
                await asyncio.wait(consumers, timeout=0.01)
        await asyncio.gather(*consumers, return_exceptions=True)

    run(main())
    assert acked == [[(1, 3)]]


def test_what_consumers_of_many_channels_ack_is_written_together(peer: Peer, run: Run) -> None:
    read: list[Any] = []

    def script(talk: Conversation) -> None:
        talk.open(channels=3)
        asked = [talk.next(BasicConsume) for _ in range(3)]
        begun = [Ok(consume.request, consume.channel, {"consumer": "c"}) for consume in asked]
        record = pack(None, b"x")
        talk.send(*begun, *[BasicDeliver(place, "c", 1, False, "", "q", 1, 0, 1, 1, 1, record) for place in (1, 2, 3)])
        frames = FrameReader().feed(talk.socket.recv(1 << 20))
        read.extend(decode(number, payload, FROM_CLIENT) for number, payload in frames)
        talk.read_to_end()

    async def main() -> None:
        async with shardmq.aio.connect(peer(script), recovery=None) as connection:
            channels = [await connection.channel() for _ in range(3)]

            async def consume(channel: shardmq.aio.Channel) -> None:
                async for batch in channel.consume_batches("q"):
                    batch.ack()

            consumers = [asyncio.create_task(consume(channel)) for channel in channels]
            while not read:
                await asyncio.wait(consumers, timeout=0.01)
        await asyncio.gather(*consumers, return_exceptions=True)

    run(main())
    assert read == [BasicAck(place, [(1, 1)]) for place in (1, 2, 3)]


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opening"])
def test_a_connection_that_the_broker_resets_is_one_that_it_closed(peer: Peer, run: Run, is_open: bool) -> None:
    def script(talk: Conversation) -> None:
        if is_open:
            talk.open()
        talk.next(QueueDeclare if is_open else ConnectionOpen)
        talk.reset()

    url = peer(script)
    where = re.escape(url.removeprefix("shardmq://").rstrip("/"))
    sentence = f"the broker at {where} closed the connection" + ("" if is_open else " before it was open; if that is")

    async def main() -> None:
        with pytest.raises(errors.ConnectionLost, match=f"^{sentence}"):
            async with shardmq.aio.connect(url, recovery=None) as connection:
                await (await connection.channel()).queue_declare("q")

    run(main())


def test_timeouts_may_be_infinite(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with shardmq.aio.connect(broker.url, timeout=math.inf) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.basic_publish("", queue, b"1")
            message = await anext(channel.consume(queue, inactivity_timeout=math.inf))
            assert message.body == b"1"

    run(main())


def test_a_connection_that_has_no_channel_left_closes_as_any_other(peer: Peer, run: Run) -> None:
    def script(talk: Conversation) -> None:
        opening = talk.next(ConnectionOpen)
        talk.send(Ok(opening.request, 0, {"product": "peer", "heartbeat": 60, "channel_max": 1}))
        talk.answer(talk.next(ChannelOpen))
        talk.next(ConnectionClose)

    async def main() -> None:
        async with shardmq.aio.connect(peer(script)) as connection:
            await connection.channel()
            with pytest.raises(errors.ResourceLocked, match="close one, or open another connection"):
                await connection.channel()

    run(main())


def test_callbacks_may_be_functions_or_coroutines(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.queue_declare("calls")
            for kind in ("function", "coroutine"):
                seen: list[bytes] = []
                done = asyncio.Event()

                def note(message: shardmq.Message, seen: list[bytes] = seen, done: asyncio.Event = done) -> None:
                    seen.append(message.body)
                    message.ack()
                    if len(seen) == 20:
                        done.set()

                async def note_later(message: shardmq.Message, note: Callable[..., None] = note) -> None:
                    await asyncio.sleep(0)
                    note(message)

                tag = await channel.basic_consume("calls", note if kind == "function" else note_later, prefetch=5)
                for number in range(20):
                    await channel.basic_publish("", "calls", b"%d" % number)
                await done.wait()
                await channel.basic_qos(tag, 7)
                await channel.basic_cancel(tag)
                assert seen == [b"%d" % number for number in range(20)]
            await channel.queue_delete("calls")

    run(main())


def test_a_callback_that_raises_closes_its_channel(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.queue_declare("raises")

            async def callback(_: shardmq.Message) -> None:
                raise ZeroDivisionError("my own fault")

            await channel.basic_consume("raises", callback, on_error="close")

            async def publish() -> None:
                while True:
                    await channel.basic_publish("", "raises", b"x")

            with pytest.raises(errors.ChannelError, match="my own fault"):
                await publish()
            other = await connection.channel()
            await other.queue_delete("raises")

    run(main())


def test_errors_surface_where_they_do_with_threads(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            with pytest.raises(errors.NotFound):
                await channel.basic_publish("no such exchange", "k", b"")
            publisher = channel.publisher()
            await publisher.publish("no such exchange", "k", b"")
            with pytest.raises(errors.NotFound, match="no such exchange"):
                await publisher.flush()
            with pytest.raises(TypeError, match="bytes"):
                await publisher.publish("", "k", "text")  # type: ignore[arg-type]
            channel.basic_ack(7)
            with pytest.raises(errors.ChannelError, match="unknown delivery tag 7"):
                await channel.basic_get("whatever")
        with pytest.raises(errors.ConnectionLost):
            await connection.channel()
        with pytest.raises(errors.AuthenticationFailed):
            await shardmq.aio.connect(broker.url.replace("guest:guest", "guest:wrong"))

    run(main())


def test_what_the_broker_refuses_as_a_channel_is_left_is_raised(broker: Broker, run: Run) -> None:
    async def main() -> None:
        async with shardmq.aio.connect(broker.url, recovery=None) as connection:
            queue = (await (await connection.channel()).queue_declare(exclusive=True)).queue

            async def ack_twice(channel: shardmq.aio.Channel) -> None:
                await channel.basic_publish("", queue, b"x")
                message = await channel.basic_get(queue)
                assert message is not None
                message.ack()
                message.ack()

            with pytest.raises(errors.ChannelError, match=r"^PRECONDITION_FAILED - .*unknown delivery tag 1"):
                async with connection.channel() as channel:
                    await ack_twice(channel)
            with pytest.raises(ZeroDivisionError) as raised:  # noqa: PT012
                async with connection.channel() as channel:
                    await ack_twice(channel)
                    raise ZeroDivisionError
            assert "unknown delivery tag 1" in raised.value.__notes__[0]

    run(main())


def test_loss_reaches_every_task_that_waits(peer: Peer, run: Run) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        talk.next()
        talk.next()

    async def main() -> None:
        connection = await shardmq.aio.connect(peer(script), recovery=None)
        channel = await connection.channel()
        outcomes = await asyncio.gather(
            channel.queue_declare("q"), channel.basic_publish("", "q", b""), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [errors.ConnectionLost] * 2
        with pytest.raises(errors.ConnectionLost):
            await channel.queue_declare("q")
        await connection.close()

    run(main())


def test_a_full_window_and_a_silent_server_are_errors_in_time(peer: Peer, run: Run) -> None:
    def script(talk: Conversation) -> None:
        talk.open(heartbeat=1)
        talk.next(BasicPublish)
        talk.read_to_end()

    async def main() -> None:
        connection = await shardmq.aio.connect(peer(script), recovery=None, timeout=0.2, heartbeat=1)
        channel = await connection.channel()
        publisher = channel.publisher(window=3)
        for _ in range(3):
            await publisher.publish("", "q", b"")
        with pytest.raises(errors.Timeout, match="window"):
            await publisher.publish("", "q", b"")
        with pytest.raises(errors.ConnectionLost, match="nothing heard"):
            await publisher.flush(10)
        await connection.close()

    run(main())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x10\0\0\0\x01\xc1"])
def test_garbage_is_a_protocol_error(peer: Peer, run: Run, garbage: bytes) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        talk.next(QueueDeclare)
        talk.socket.sendall(garbage)
        talk.read_to_end()

    async def main() -> None:
        connection = await shardmq.aio.connect(peer(script), recovery=None)
        channel = await connection.channel()
        with pytest.raises(errors.ProtocolError):
            await channel.queue_declare("q")
        await connection.close()

    run(main())
