"""Messages with keys of their own: they travel and lie in batches, and are as if each had come alone."""

from collections import defaultdict

import shardmq
from tests.conftest import StartBroker

from .traffic import PATIENCE_SECONDS

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
