"""Remote procedure calls over direct reply-to, natively and with whoever speaks AMQP."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pika
import pytest

import shardmq
from shardmq import Properties, aio, errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack, unpack
from shardmq.protocol.native.operations.basic import BasicConsume, BasicDeliver, BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionBlocked, ConnectionUnblocked
from tests.client.peers import PATIENCE_SECONDS, Conversation, Script


@pytest.fixture
def service(connection: shardmq.Connection) -> Iterator[str]:
    """The queue of a program that answers with the request in capitals, and never to b"silence"."""
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=False, auto_delete=True).queue

    def answer(request: shardmq.Message) -> None:
        asked = request.properties
        if request.body != b"silence":
            channel.basic_publish(
                "", asked.reply_to or "", request.body.upper(), Properties(correlation_id=asked.correlation_id)
            )
        request.ack()

    channel.basic_consume(queue, answer)
    yield queue
    channel.close()


def test_a_call_returns_the_answer(channel: shardmq.Channel, service: str) -> None:
    assert channel.call("", service, b"one").body == b"ONE"
    assert channel.call("", service, b"two", Properties(content_type="text/plain")).body == b"TWO"


def test_calls_of_many_threads_share_a_channel(channel: shardmq.Channel, service: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda number: channel.call("", service, b"n%d" % number).body, range(100))
        assert list(answers) == [b"N%d" % number for number in range(100)]


def test_a_call_that_nobody_serves_says_so_at_once(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.Unroutable):
        channel.call("", "nobody-serves-this", b"")


def test_a_call_that_is_not_answered_times_out_and_names_where_it_went(channel: shardmq.Channel, service: str) -> None:
    with pytest.raises(errors.Timeout, match=rf"calling exchange '' with routing key '{service}': no answer in 0.3 s"):
        channel.call("", service, b"silence", timeout=0.3)
    assert channel.call("", service, b"later").body == b"LATER"


def test_a_call_ends_with_its_channel(connection: shardmq.Connection, service: str) -> None:
    channel = connection.channel()
    closing = threading.Timer(0.3, channel.close)
    closing.start()
    with pytest.raises(errors.ChannelError):
        channel.call("", service, b"silence", timeout=20)
    closing.join()


def test_a_program_that_speaks_amqp_answers_a_native_call(broker: Broker, channel: shardmq.Channel) -> None:
    ready, stop = threading.Event(), threading.Event()

    def serve() -> None:
        with pika.BlockingConnection(pika.URLParameters(broker.url.replace("shardmq://", "amqp://"))) as connection:
            serving = connection.channel()
            serving.queue_declare("pikas", auto_delete=True)

            def answer(_channel: object, _method: object, asked: pika.BasicProperties, body: bytes) -> None:
                known = pika.BasicProperties(correlation_id=asked.correlation_id)
                serving.basic_publish("", asked.reply_to, body[::-1], known)

            serving.basic_consume("pikas", answer, auto_ack=True)
            ready.set()
            while not stop.is_set():
                connection.process_data_events(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(10)
        assert channel.call("", "pikas", b"abc").body == b"cba"
    finally:
        stop.set()
        thread.join(10)


def test_a_queue_of_answers_is_consumed_under_a_long_name_and_without_acks_only(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.PreconditionFailed, match="auto_ack"):
        channel.basic_consume("amq.rabbitmq.reply-to." + "x" * 30, print)
    with pytest.raises(errors.InvalidRequest, match="22 random characters"):
        channel.basic_consume("amq.rabbitmq.reply-to.x", print, auto_ack=True)


def test_calls_of_asyncio_overlap(broker: Broker, service: str) -> None:
    async def run() -> None:
        async with aio.connect(broker.url) as connection, connection.channel() as channel:
            answers = await asyncio.gather(*(channel.call("", service, b"n%d" % number) for number in range(100)))
            assert [answer.body for answer in answers] == [b"N%d" % number for number in range(100)]
            with pytest.raises(errors.Unroutable):
                await channel.call("", "nobody-serves-this", b"")
            with pytest.raises(errors.Timeout):
                await channel.call("", service, b"silence", timeout=0.2)

    asyncio.run(run())


def blocked(talk: Conversation, is_over: threading.Event) -> None:
    """Begin a consumer of answers, and take no publish until it is over; then there is one."""
    talk.open()
    talk.send(ConnectionBlocked("the disk is full"))
    talk.answer(talk.next(BasicConsume), {"consumer": "t"})
    assert is_over.wait(PATIENCE_SECONDS)
    talk.send(ConnectionUnblocked())
    publish = talk.next(BasicPublish)
    assert publish.records == pack(None, b"later")
    talk.confirm(publish)
    talk.read_to_end()


def late(talk: Conversation, is_over: threading.Event) -> None:
    """Begin a consumer of answers when it is over, and answer one request."""
    talk.open()
    consume = talk.next(BasicConsume)
    assert is_over.wait(PATIENCE_SECONDS)
    talk.answer(consume, {"consumer": "t"})
    request = talk.next(BasicPublish)
    talk.confirm(request)
    [asked] = unpack(request.records, 1)
    assert asked.properties is not None
    known = pack(Properties(correlation_id=asked.properties.correlation_id), b"answer")
    talk.send(BasicDeliver(1, "t", 1, False, "", consume.queue, 1, 0, 1, 1, 1, known))
    talk.read_to_end()


OVER_IN_TIME = r"^calling exchange '' with routing key 'q': no answer in 0.3 s.*; the message was not sent"


def test_a_call_takes_no_longer_than_it_may_while_publishes_are_held(peer: Callable[[Script], str]) -> None:
    is_over = threading.Event()
    with shardmq.connect(peer(lambda talk: blocked(talk, is_over)), recovery=None) as connection:
        channel = connection.channel()
        for _ in range(2):
            with pytest.raises(errors.Timeout, match=OVER_IN_TIME):
                channel.call("", "q", b"never", timeout=0.3)
        is_over.set()
        channel.basic_publish("", "q", b"later")


def test_a_call_takes_no_longer_than_it_may_while_its_answers_cannot_be_consumed(peer: Callable[[Script], str]) -> None:
    is_over = threading.Event()
    with shardmq.connect(peer(lambda talk: late(talk, is_over)), recovery=None) as connection:
        channel = connection.channel()

        def call(_: int) -> str:
            with pytest.raises(errors.Timeout, match=OVER_IN_TIME) as caught:
                channel.call("", "q", b"never", timeout=0.3)
            return caught.value.text

        with ThreadPoolExecutor(4) as pool:
            assert len(list(pool.map(call, range(8)))) == 8
        is_over.set()
        assert channel.call("", "q", b"now").body == b"answer"


def test_a_call_of_asyncio_takes_no_longer_than_it_may(peer: Callable[[Script], str]) -> None:
    are_over = threading.Event(), threading.Event()

    async def never(channel: aio.Channel) -> None:
        with pytest.raises(errors.Timeout, match=OVER_IN_TIME):
            await channel.call("", "q", b"never", timeout=0.3)

    async def run() -> None:
        async with aio.connect(peer(lambda talk: blocked(talk, are_over[0])), recovery=None) as connection:
            channel = await connection.channel()
            await asyncio.gather(*[never(channel) for _ in range(4)])
            are_over[0].set()
            await channel.basic_publish("", "q", b"later")
        async with aio.connect(peer(lambda talk: late(talk, are_over[1])), recovery=None) as connection:
            channel = await connection.channel()
            await asyncio.gather(*[never(channel) for _ in range(4)])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(channel.call("", "q", b"never"), 0.1)
            are_over[1].set()
            assert (await channel.call("", "q", b"now")).body == b"answer"

    asyncio.run(run())


def test_calls_work_after_the_connection_was_lost(broker: Broker, connection: shardmq.Connection, service: str) -> None:
    back = threading.Event()
    others = {row["name"] for row in connection.topology("connections")}
    with shardmq.connect(broker.url) as calling:
        calling.on_recovery(lambda _: back.set())
        channel = calling.channel()
        assert channel.call("", service, b"before").body == b"BEFORE"
        [own] = {row["name"] for row in connection.topology("connections")} - others
        connection.connection_expel(own, "a test")
        assert back.wait(20)
        assert channel.call("", service, b"after").body == b"AFTER"


def test_handlers_of_asyncio_run_side_by_side_up_to_their_prefetch(broker: Broker) -> None:
    async def run() -> None:
        async with aio.connect(broker.url) as connection, connection.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue
            at_once = most = done = 0
            finished = asyncio.Event()

            async def handle(message: aio.Message) -> None:
                nonlocal at_once, most, done
                at_once += 1
                most = max(most, at_once)
                await asyncio.sleep(0.02)
                at_once -= 1
                done += 1
                message.ack()
                if done == 40:
                    finished.set()

            publisher = channel.publisher()
            await publisher.publish_many("", queue, [b""] * 40)
            await publisher.flush()
            await channel.basic_consume(queue, handle, prefetch=8)
            await asyncio.wait_for(finished.wait(), 20)
            assert most == 8

    asyncio.run(run())


def test_a_connection_of_asyncio_is_awaited_or_entered(broker: Broker) -> None:
    async def run() -> None:
        connection = await aio.connect(broker.url)
        async with connection, connection.channel() as channel:
            assert channel.is_open
        assert not connection.is_open
        task = asyncio.create_task(aio.connect(broker.url))
        await (await task).close()
        async with aio.connect(broker.url) as other, await other.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue
            async with channel.transaction("entered") as transaction:
                await transaction.publish("", queue, b"1")
            assert await channel.basic_get(queue, auto_ack=True)
        assert not other.is_open

    asyncio.run(run())
