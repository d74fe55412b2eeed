"""The largest message: what is over it is refused, by either side, and what is not goes everywhere that messages go."""

import asyncio
import hashlib
import os
import random
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

import shardmq
import shardmq.aio
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ContentTooLarge, ShardmqError

MIB = 1 << 20
PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"kept": 1})
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "size.dead"}
SECONDS = 120.0
WHOLE = os.environ.get("SHARDMQ_MESSAGE_SIZES")


def body_of(size: int) -> bytes:
    """Bytes of which none is like another part of them."""
    return random.Random(size).randbytes(MIB) * (size // MIB) + bytes(range(256)) * ((size % MIB) // 256 + 1)


def digest(body: bytes) -> str:
    return hashlib.blake2b(body).hexdigest()


def amqp(broker: Broker) -> pika.BlockingConnection:
    url = broker.url.replace("shardmq://", "amqp://").rstrip("/") + "/%2F?heartbeat=0"
    return pika.BlockingConnection(pika.URLParameters(url))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that takes 128 MiB."""
    options = ("--message-size-max", "128MiB", "--memory-watermark", "8GiB")
    with Broker(tmp_path_factory.mktemp("size") / "broker", shards=1, options=options) as broker:
        yield broker


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        channel.queue_declare("size.q", durable=True, arguments=DEAD)
        channel.queue_declare("size.dead", durable=True)
        yield channel
        channel.queue_delete("size.q")
        channel.queue_delete("size.dead")


@pytest.fixture
def amqp_channel(broker: Broker) -> Iterator[BlockingChannel]:
    with amqp(broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def test_128_mib_pass_from_amqp_to_a_native_client_past_a_restart(broker: Broker) -> None:
    body = body_of(128 * MIB)[: 128 * MIB]
    with amqp(broker) as amqp_connection:
        amqp_channel = amqp_connection.channel()
        amqp_channel.queue_declare("size.kept", durable=True)
        amqp_channel.confirm_delivery()
        amqp_channel.basic_publish("", "size.kept", body, PERSISTENT)
    broker.stop()
    broker.start()
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        message = channel.basic_get("size.kept", auto_ack=True)
        assert message is not None
        assert (message.properties.headers, digest(message.body)) == ({"kept": 1}, digest(body))
        channel.queue_delete("size.kept")


@pytest.mark.skipif(WHOLE is None, reason="takes long; SHARDMQ_MESSAGE_SIZES=all runs it")
def test_512_mib_pass_from_a_native_client_to_amqp(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, options=("--message-size-max", "512MiB", "--memory-watermark", "16GiB"))
    body = body_of(512 * MIB)[: 512 * MIB]
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", body)
    broker.stop()
    broker.start()
    with amqp(broker) as amqp_connection:
        found = amqp_connection.channel().basic_get("q", auto_ack=True)[2]
        assert digest(found) == digest(body)


def test_a_large_message_goes_everywhere_natively(channel: shardmq.Channel) -> None:
    body = body_of(25_000_000)[:25_000_000]
    expected = digest(body)
    with channel.publisher() as publisher:
        publisher.publish("", "size.q", body)
        publisher.publish_many("", "size.q", [b"small", body])
    (peeked,) = channel.queue_peek("size.q", 0, 1)
    assert digest(peeked.body) == expected
    for number, message in enumerate(channel.consume("size.q", inactivity_timeout=SECONDS)):
        assert digest(message.body) == (digest(b"small") if number == 1 else expected)
        if number:
            message.ack()
        else:
            message.nack(requeue=False)
        if number == 2:
            break
    for message in channel.consume("size.dead", inactivity_timeout=SECONDS):
        assert digest(message.body) == expected
        message.ack()
        break
    channel.basic_publish("", "size.q", body, delay_ms=1)
    with channel.transaction("size.t") as transaction:
        transaction.publish("", "size.dead", body)
    assert [digest(message.body) for message in taken(channel, "size.q", 1)] == [expected]
    assert [digest(message.body) for message in taken(channel, "size.dead", 1)] == [expected]


def taken(channel: shardmq.Channel, queue: str, count: int) -> list[shardmq.Message]:
    found = []
    for message in channel.consume(queue, auto_ack=True, inactivity_timeout=SECONDS):
        found.append(message)
        if len(found) == count:
            break
    return found


@pytest.mark.usefixtures("channel")
def test_a_large_message_goes_everywhere_over_amqp(amqp_channel: BlockingChannel) -> None:
    body = body_of(25_000_000)[:25_000_000]
    expected = digest(body)
    for _ in range(2):
        amqp_channel.basic_publish("", "size.q", body, PERSISTENT)
    method, _, found = amqp_channel.basic_get("size.q")
    assert digest(found) == expected
    amqp_channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, found = next(iter(amqp_channel.consume("size.dead", auto_ack=True)))
    assert (properties.headers["x-death"][0]["reason"], digest(found)) == ("rejected", expected)
    amqp_channel.cancel()
    with amqp_channel.connection.channel() as tx:
        tx.tx_select()
        method, _, _ = tx.basic_get("size.q")
        tx.basic_ack(method.delivery_tag)
        tx.basic_publish("", "size.dead", body, PERSISTENT)
        tx.tx_commit()
    assert amqp_channel.basic_get("size.q")[0] is None
    assert digest(amqp_channel.basic_get("size.dead", auto_ack=True)[2]) == expected


def test_one_byte_more_is_refused_in_rabbitmqs_words_and_closes_the_channel_alone(
    amqp_channel: BlockingChannel,
) -> None:
    size = 128 * MIB + 1
    with pytest.raises(ChannelClosedByBroker) as closed:
        amqp_channel.basic_publish("", "size.q", bytes(size))
    assert closed.value.reply_code == 406
    text = f"PRECONDITION_FAILED - message size {size} is larger than configured max size {128 * MIB}"
    assert closed.value.reply_text == text
    other = amqp_channel.connection.channel()
    assert other.queue_declare("", exclusive=True).method.queue


def test_the_sdk_refuses_it_before_it_sends_it(broker: Broker) -> None:
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        assert connection.server_properties["message_max"] == 128 * MIB
        body, text = bytes(128 * MIB + 1), rf"a message of {128 * MIB + 1} bytes was not sent: .* {128 * MIB} at most"
        with channel.publisher() as publisher:
            for publish in (
                lambda: channel.basic_publish("", "size.none", body),
                lambda: publisher.publish("", "size.none", body),
                lambda: publisher.publish_many("", "size.none", [body]),
            ):
                with pytest.raises(ContentTooLarge, match=text):
                    publish()


def test_the_asyncio_client_refuses_it_before_it_sends_it(broker: Broker) -> None:
    async def publish() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            publisher = channel.publisher()
            body = bytes(128 * MIB + 1)
            for publishing in (channel.basic_publish, publisher.publish):
                with pytest.raises(ContentTooLarge, match="was not sent"):
                    await publishing("", "size.none", body)

    asyncio.run(publish())


def test_a_broker_takes_16_mib_unless_it_is_told_otherwise_not_counting_properties(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker(shards=1)
    headers = {"long": "x" * 100_000}
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("q")
        channel.basic_publish("", "q", bytes(16 * MIB), shardmq.Properties(headers=headers))
        with pytest.raises(ContentTooLarge, match=str(16 * MIB)):
            channel.basic_publish("", "q", bytes(16 * MIB + 1))
        with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is 131072"):
            channel.basic_publish("", "q", b"", shardmq.Properties(headers={"long": "x" * 140_000}))
    with amqp(broker) as amqp_connection:
        amqp_channel = amqp_connection.channel()
        amqp_channel.confirm_delivery()
        amqp_channel.basic_publish("", "q", bytes(16 * MIB), pika.BasicProperties(headers=headers))
        assert amqp_channel.queue_declare("q", passive=True).method.message_count == 2


def test_what_was_taken_is_delivered_after_the_limit_is_lowered(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, options=("--message-size-max", "40MiB"))
    body = body_of(36 * MIB)[: 36 * MIB]
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", body)
    broker.stop()
    broker.options = ("--message-size-max", "1000B")
    broker.start()
    with shardmq.connect(broker.url, timeout=SECONDS) as connection, connection.channel() as channel:
        message = channel.basic_get("q")
        assert message is not None
        assert digest(message.body) == digest(body)
        with pytest.raises(ContentTooLarge, match="1000 at most"):
            channel.basic_publish("", "q", bytes(1001))
        channel.basic_publish("", "q", bytes(1000))


@pytest.mark.parametrize("size", ["0", "513MiB", "much"])
def test_a_limit_that_can_not_be_is_refused(start_broker: Callable[..., Broker], size: str) -> None:
    with pytest.raises(ShardmqError, match="message-size-max"):
        start_broker(shards=1, options=("--message-size-max", size))
