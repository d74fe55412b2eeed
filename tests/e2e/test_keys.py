"""Messages with keys of their own: they travel and lie in batches, and are as if each had come alone."""

import asyncio
import itertools
from collections import defaultdict

from msgspec.structs import replace

import shardmq
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.message import keyed_records
from shardmq.message.record import unpack
from shardmq.message.record_batch import KEYED, PERSISTENT
from shardmq.protocol.native.operations.basic import (
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicPublish,
    BasicRefused,
)
from shardmq.protocol.native.operations.codec import encode
from tests.conftest import StartBroker
from tests.gateway.rawclient import RawClient

from .traffic import PATIENCE_SECONDS, until

KEYS = 50
MESSAGES = 2000
FIRST = {"x-stream-offset": "first"}
Read = dict[str, list[int]]


def publish(publisher: shardmq.Publisher | shardmq.Transaction, exchange: str, first: int = 0) -> None:
    """Publish half of the numbers, each with the key of the rest it leaves."""
    for number in range(first, first + MESSAGES // 2):
        publisher.publish(exchange, f"key-{number % KEYS}", b"%d" % number)


def read(channel: shardmq.Channel, topic: str, partitions: int) -> Read:
    """The numbers of each key; a key is in one partition."""
    found: Read = defaultdict(list)
    for partition in range(partitions):
        queue = f"{topic}-{partition}"
        count = channel.queue_declare(queue, passive=True).messages
        messages = channel.consume(queue, auto_ack=True, arguments=FIRST, inactivity_timeout=PATIENCE_SECONDS)
        here = [message for _, message in zip(range(count), messages, strict=False)] if count else []
        messages.close()
        assert [message.offset for message in here] == list(range(count))
        assert not {message.routing_key for message in here} & set(found)
        for message in here:
            found[message.routing_key].append(int(message.body))
    return found


def expected(messages: int = MESSAGES) -> Read:
    return {f"key-{rest}": list(range(rest, messages, KEYS)) for rest in range(KEYS)}


def test_a_key_keeps_its_order_and_each_message_is_stored_once_whatever_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.topic_declare("orders", 4)
        with channel.publisher() as publisher:
            publish(publisher, "orders")
            broker.kill("gateway-0")
            publish(publisher, "orders", MESSAGES // 2)
        broker.restart()
        assert read(channel, "orders", 4) == expected()


def test_transactions_publish_all_of_it_or_nothing(channel: shardmq.Channel) -> None:
    channel.topic_declare("paid", 4)
    with channel.transaction("paid-1") as transaction:
        publish(transaction, "paid")
        publish(transaction, "paid", MESSAGES // 2)
    try:
        with channel.transaction("paid-2") as transaction:
            publish(transaction, "paid", MESSAGES // 2)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert read(channel, "paid", 4) == expected()


PAIRS = [(f"key-{number % KEYS}", b"%d" % number) for number in range(MESSAGES)]


def test_many_at_once_are_read_by_groups_pulled_and_peeked_with_their_keys(channel: shardmq.Channel) -> None:
    channel.topic_declare("bulk", 4)
    with channel.publisher() as publisher:
        publisher.publish_keyed("bulk", PAIRS)
    with channel.group_consumer("bulk", "g", start="first") as consumer:
        grouped: Read = defaultdict(list)
        while sum(map(len, grouped.values())) < MESSAGES:
            for message in consumer.poll(PATIENCE_SECONDS):
                grouped[message.routing_key].append(int(message.body))
    assert grouped == expected()
    partition = next(part for part in range(4) if channel.pull("bulk", part, "first", 1))
    pulled = channel.pull("bulk", partition, "first", 100)
    assert len(pulled) == 100
    assert all(int(message.body) % KEYS == int(message.routing_key[4:]) for message in pulled)
    [batch] = itertools.islice(channel.consume_batches(f"bulk-{partition}", auto_ack=True, arguments=FIRST), 1)
    assert batch.routing_keys == [message.routing_key for message in batch]
    assert batch.bodies == [message.body for message in batch]


def test_one_queue_gets_many_keys_and_each_message_its_own_dead_letter_and_return(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.exchange_declare("facts", "topic")
    channel.queue_declare("letters")
    channel.queue_declare("all", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"})
    channel.queue_bind("all", "facts", "a.*")
    returned: list[tuple[str, bytes]] = []
    connection.on_return(lambda message: returned.append((message.routing_key, message.body)))
    with channel.publisher() as publisher:
        publisher.publish_keyed(
            "facts", [(f"{'ab'[n % 4 == 3]}.{n % 5}", b"%d" % n) for n in range(40)], mandatory=True
        )
    until(lambda: len(returned) == 10, "what no queue took comes back")
    assert returned == [(f"b.{n % 5}", b"%d" % n) for n in range(3, 40, 4)]
    taken = [channel.basic_get("all") for _ in range(30)]
    kept = [n for n in range(40) if n % 4 != 3]
    assert [(got.routing_key, got.body) for got in taken if got] == [(f"a.{n % 5}", b"%d" % n) for n in kept]
    for got in taken:
        assert got is not None
        got.reject()
    letters = channel.consume("letters", auto_ack=True, inactivity_timeout=PATIENCE_SECONDS)
    for n, letter in zip(kept, letters, strict=False):
        assert letter.properties.headers is not None
        assert letter.body == b"%d" % n
        assert letter.properties.headers["x-death"][0]["routing-keys"] == [f"a.{n % 5}"]


def test_what_is_sent_again_is_stored_once_and_clients_that_know_no_keys_get_one_key_at_a_time(
    broker: Broker, channel: shardmq.Channel
) -> None:
    channel.topic_declare("again", 3)
    records = keyed_records.pack([(None, body, key) for key, body in PAIRS[:200]])
    frame = BasicPublish(7, 1, "again", "", PERSISTENT | KEYED, 200, records, 0, FRAMED_PRODUCERS + 9, 0)
    with RawClient(broker).open() as client:
        for request in (7, 8):
            client.send(replace(frame, request=request))
            assert client.receive() == BasicConfirm(1, [(request, request)])
        rows = channel.topic_info("again")["partitions"]
        assert sum(row["messages"] for row in rows) == 200
        partition = next(number for number, row in enumerate(rows) if row["messages"])
        client.ask(BasicConsume, f"again-{partition}", "c", True, 0, FIRST)
        seen: list[tuple[int | None, str, bytes]] = []
        while len(seen) < rows[partition]["messages"]:
            came = client.receive()
            assert isinstance(came, BasicDeliver)
            assert not came.flags & KEYED
            for place, record in enumerate(unpack(came.records, came.count)):
                assert came.tag + place == len(seen) + 1
                seen.append((came.offset, came.routing_key, record.body))
        assert all(int(body) % KEYS == int(key[4:]) for _, key, body in seen)
        client.send(replace(frame, request=9, producer=5))
        said = client.receive()
        assert isinstance(said, BasicRefused)
        assert said.code == 406
    with RawClient(broker).open() as client:
        client.socket.sendall(encode(replace(frame, flags=0)).replace(b"again\xa0\x00", b"again\xa0\x04", 1))
        assert "flags 4" in client.expect_close(ReplyCode.SYNTAX_ERROR)


def test_asyncio_publishes_with_keys_too(broker: Broker, channel: shardmq.Channel) -> None:
    async def publish_both_ways() -> None:
        async with await aio.connect(broker.url) as connection, (await connection.channel()).publisher() as publisher:
            for key, body in PAIRS[: MESSAGES // 2]:
                await publisher.publish("awaited", key, body)
            await publisher.publish_keyed("awaited", PAIRS[MESSAGES // 2 :])

    channel.topic_declare("awaited", 4)
    asyncio.run(publish_both_ways())
    assert read(channel, "awaited", 4) == expected()
