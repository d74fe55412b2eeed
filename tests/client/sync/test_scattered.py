"""Messages that go back and forth between queues: real brokers."""

import asyncio
import threading
from collections.abc import Callable

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.properties import Properties
from shardmq.message.record import unpack
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from tests.client.peers import Conversation, Script

StartBroker = Callable[..., Broker]
Peer = Callable[[Script], str]

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
QUEUES = [f"scattered-{number}" for number in range(30)]


def stored(channel: shardmq.Channel, queue: str) -> list[int]:
    """The numbers in a queue; they are gone then."""
    messages = channel.queue_declare(queue, durable=True).messages
    numbers: list[int] = []
    if messages:
        for batch in channel.consume_batches(queue, inactivity_timeout=10):
            numbers += map(int, batch.bodies)
            batch.ack()
            if len(numbers) >= messages:
                break
    channel.queue_delete(queue)
    return numbers


def declare(channel: shardmq.Channel) -> None:
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
    channel.exchange_declare("scattered", "direct", durable=True)
    channel.queue_bind(QUEUES[0], "scattered", "first")
    channel.queue_bind(QUEUES[0], "scattered", "also first")


def ways(number: int) -> tuple[str, str, Properties | None]:
    """How message `number` is published: to a queue by its name; every 7th by another way to the first queue."""
    if number % 7:
        return "", QUEUES[number % len(QUEUES)], None
    if number % 2:
        return "scattered", "first" if number % 4 == 1 else "also first", None
    return "", QUEUES[1], Properties(headers={"CC": [QUEUES[0]]})


def wanted(total: int) -> dict[str, list[int]]:
    queues: dict[str, list[int]] = {queue: [] for queue in QUEUES}
    for number in range(total):
        exchange, key, properties = ways(number)
        queues[QUEUES[0] if exchange else key].append(number)
        if properties is not None:
            queues[QUEUES[0]].append(number)
    return queues


def test_every_queue_has_its_messages_once_and_in_order_through_kills(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    total = 20_000
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        back = threading.Semaphore(0)
        connection.on_recovery(lambda _: back.release())
        channel = connection.channel()
        declare(channel)
        with channel.publisher(window=3000) as publisher:
            for number in range(total):
                exchange, key, properties = ways(number)
                publisher.publish(exchange, key, b"%d" % number, properties)
                if number in (6_000, 13_000):
                    broker.kill("gateway-0")
                    assert back.acquire(timeout=20)
        assert {queue: stored(channel, queue) for queue in QUEUES} == wanted(total)


def test_every_queue_has_its_messages_once_and_in_order_over_asyncio(broker: Broker) -> None:
    total = 5000

    async def publish() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            async with channel.publisher(window=700) as publisher:
                for number in range(total):
                    exchange, key, properties = ways(number)
                    await publisher.publish(exchange, key, b"%d" % number, properties)

    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        declare(channel)
        asyncio.run(publish())
        assert {queue: stored(channel, queue) for queue in QUEUES} == wanted(total)
        channel.exchange_delete("scattered")


def test_threads_that_share_a_publisher_keep_their_order_in_every_queue(channel: shardmq.Channel) -> None:
    declare(channel)
    each = 4000

    def publish(thread: int) -> None:
        for number in range(each):
            publisher.publish("", QUEUES[(number + thread) % 5], b"%d" % (thread * each + number))

    with channel.publisher(window=1000) as publisher:
        threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(3)]
        for each_thread in threads:
            each_thread.start()
        for each_thread in threads:
            each_thread.join()
    total = 0
    for place in range(5):
        numbers = stored(channel, QUEUES[place])
        for thread in range(3):
            own = [number for number in numbers if number // each == thread]
            assert own == [thread * each + number for number in range(each) if (number + thread) % 5 == place]
        total += len(numbers)
    assert total == 3 * each


def test_what_comes_back_and_what_is_refused_is_told_by_message(channel: shardmq.Channel) -> None:
    channel.queue_declare("full", arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    channel.queue_declare("roomy")
    publisher = channel.publisher()
    for _ in range(100):
        publisher.publish("", "full", b"x")
        publisher.publish("", "roomy", b"x")
        publisher.publish("", "missing", b"x", mandatory=True)
        publisher.publish("", "missing", b"x")
        publisher.publish("nowhere", "k", b"x")
    with pytest.raises(errors.ShardmqError) as told:
        publisher.flush()
    assert (told.value.refused, told.value.came_back) == (90 + 100, 100)
    assert channel.queue_declare("full", passive=True).messages == 10
    assert channel.queue_declare("roomy", passive=True).messages == 100
    publisher.close()
    for queue in ("full", "roomy"):
        channel.queue_delete(queue)


def test_what_is_collected_behind_more_that_is_unconfirmed_is_sent_all_the_same(peer: Peer) -> None:
    sent: list[BasicPublish] = []

    def script(talk: Conversation) -> None:
        talk.open()
        while sum(publish.count for publish in sent) < 900:  # none is confirmed meanwhile
            sent.append(talk.next(BasicPublish))
        talk.send(BasicConfirm(1, [(sent[0].request, sent[-1].request)]))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None) as connection, connection.channel().publisher() as publisher:
        for number in range(900):
            publisher.publish("", QUEUES[number % 3], b"%d" % number)
    bodies = [
        (publish.routing_key, record.body) for publish in sent for record in unpack(publish.records, publish.count)
    ]
    for place in range(3):
        own = [body for key, body in bodies if key == QUEUES[place]]
        assert own == [b"%d" % number for number in range(900) if number % 3 == place]
    assert len(sent) < 100
