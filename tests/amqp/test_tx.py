"""Transactions of AMQP channels: publishes and acknowledgements that become visible together, or not at all."""

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused

from .conftest import amqp_url
from .transacting import bodies, refused

SECONDS = 30.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def test_selecting_again_changes_nothing(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    tx.basic_publish("", queue, b"one", PERSISTENT)
    tx.tx_select()
    tx.tx_commit()
    assert bodies(channel, queue) == [b"one"]


def test_a_channel_confirms_or_is_transactional(connection: pika.BlockingConnection, tx: BlockingChannel) -> None:
    confirming = connection.channel()
    confirming.confirm_delivery()
    text = "PRECONDITION_FAILED - cannot switch from confirm to tx mode"
    assert refused(confirming.tx_select) == (406, text)
    text = "PRECONDITION_FAILED - cannot switch from tx to confirm mode"
    assert refused(tx.confirm_delivery) == (406, text)


@pytest.mark.parametrize("ending", ["tx_commit", "tx_rollback"])
def test_a_channel_that_is_not_transactional_has_nothing_to_end(
    connection: pika.BlockingConnection, ending: str
) -> None:
    channel = connection.channel()
    assert refused(getattr(channel, ending)) == (406, "PRECONDITION_FAILED - channel is not transactional")


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(
    tx: BlockingChannel, channel: BlockingChannel, queues: list[str], request: pytest.FixtureRequest
) -> None:
    for number in range(100):
        tx.basic_publish(request.node.name, "", b"%d" % number, PERSISTENT)
    assert [bodies(channel, queue) for queue in queues] == [[]] * len(queues)
    tx.tx_commit()
    assert [bodies(channel, queue) for queue in queues] == [[b"%d" % number for number in range(100)]] * len(queues)
    tx.tx_commit()
    assert [bodies(channel, queue) for queue in queues] == [[]] * len(queues)


def test_one_transaction_follows_the_other(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    for number in range(20):
        tx.basic_publish("", queue, b"%d" % number, PERSISTENT)
        if number % 3 == 0:
            tx.tx_commit()
        elif number % 3 == 1:
            tx.tx_rollback()
    tx.tx_commit()
    kept = [number for number in range(20) if number % 3 != 1]
    assert bodies(channel, queue) == [b"%d" % number for number in kept]


def test_messages_of_all_kinds_keep_their_order_and_properties(
    tx: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    kinds = [
        pika.BasicProperties(
            delivery_mode=1 + number % 2,
            message_id=str(number),
            priority=number % 4,
            type="t",
            expiration="600000" if number % 5 else None,
            headers={"n": number},
        )
        for number in range(300)
    ]
    for number, properties in enumerate(kinds):
        tx.basic_publish("", queue, b"x" * number, properties)
    tx.tx_commit()
    for number, properties in enumerate(kinds):
        _, found, body = channel.basic_get(queue, auto_ack=True)
        assert (body, vars(found)) == (b"x" * number, vars(properties))


def test_a_rollback_forgets_publishes_and_has_deliveries_outstanding_again_under_their_tags(
    tx: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    for number in range(6):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
    tags = [tx.basic_get(queue)[0].delivery_tag for _ in range(6)]
    tx.basic_ack(tags[0])
    tx.basic_ack(tags[4], multiple=True)
    tx.basic_publish("", queue, b"forgotten", PERSISTENT)
    tx.tx_rollback()
    tx.basic_nack(tags[1], multiple=True, requeue=False)
    tx.basic_reject(tags[5], requeue=True)
    tx.tx_commit()
    tx.basic_ack(tags[2])
    tx.tx_rollback()
    tx.close()
    assert sorted(bodies(channel, queue)) == [b"2", b"3", b"4", b"5"]


def test_acknowledgements_count_from_the_commit_on(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    for number in range(4):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
    tags = [tx.basic_get(queue)[0].delivery_tag for _ in range(4)]
    tx.basic_ack(tags[0])
    tx.basic_nack(tags[1], requeue=True)
    tx.basic_reject(tags[2], requeue=False)
    assert bodies(channel, queue) == []
    tx.tx_commit()
    assert bodies(channel, queue) == [b"1"]
    tx.close()
    assert bodies(channel, queue) == [b"3"]


def test_messages_move_from_queue_to_queue_once_each(
    tx: BlockingChannel, channel: BlockingChannel, queues: list[str]
) -> None:
    source, *targets = queues
    for number in range(60):
        channel.basic_publish("", source, b"%d" % number, PERSISTENT)
    tx.basic_qos(prefetch_count=10)
    for moved, (method, _, body) in enumerate(tx.consume(source, inactivity_timeout=SECONDS)):
        tx.basic_publish("", targets[moved % len(targets)], body, PERSISTENT)
        tx.basic_ack(method.delivery_tag)
        if moved % 7 == 0:
            tx.tx_commit()
        if moved == 59:
            break
    tx.tx_commit()
    tx.close()
    found = [bodies(channel, queue) for queue in queues]
    assert found[0] == []
    assert found[1:] == [
        [b"%d" % number for number in range(60) if number % len(targets) == place] for place in range(len(targets))
    ]


def test_the_prefetch_is_used_up_until_the_commit(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    for number in range(4):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
    tx.basic_qos(prefetch_count=2)
    came: list[bytes] = []
    tags: list[int] = []

    def note(_channel: object, method: pika.spec.Basic.Deliver, _properties: object, body: bytes) -> None:
        came.append(body)
        tags.append(method.delivery_tag)

    tx.basic_consume(queue, note)
    while len(came) < 2:
        tx.connection.process_data_events(SECONDS)
    for tag in tags:
        tx.basic_ack(tag)
    assert channel.queue_declare(queue, passive=True).method.message_count == 2
    tx.connection.process_data_events(0)
    assert came == [b"0", b"1"]
    tx.tx_commit()
    while len(came) < 4:
        tx.connection.process_data_events(SECONDS)
    assert came == [b"0", b"1", b"2", b"3"]


def test_what_can_not_be_published_is_refused_when_it_comes(
    tx: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    tx.basic_publish("", queue, b"not committed", PERSISTENT)
    tx.basic_publish("no such exchange", "", b"", PERSISTENT)
    text = "NOT_FOUND - no exchange 'no such exchange' in vhost '/'"
    assert refused(lambda: tx.queue_declare(queue, passive=True)) == (404, text)
    assert bodies(channel, queue) == []


def test_an_unknown_tag_is_refused_when_it_comes(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"one", PERSISTENT)
    tag = tx.basic_get(queue)[0].delivery_tag
    tx.basic_ack(tag)
    tx.basic_ack(tag)
    text = f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    assert refused(lambda: tx.queue_declare(queue, passive=True)) == (406, text)
    assert bodies(channel, queue) == [b"one"]


def test_mandatory_messages_come_back_with_the_commit(tx: BlockingChannel) -> None:
    came: list[tuple[str, bytes]] = []
    tx.add_on_return_callback(lambda _channel, method, _properties, body: came.append((method.reply_text, body)))
    tx.basic_publish("", "no such queue", b"lost", PERSISTENT)
    tx.basic_publish("", "no such queue", b"back", PERSISTENT, mandatory=True)
    tx.queue_declare("", exclusive=True)
    tx.connection.process_data_events(0)
    assert came == []
    tx.tx_rollback()
    tx.basic_publish("", "no such queue", b"again", PERSISTENT, mandatory=True)
    tx.tx_commit()
    tx.connection.process_data_events(0)
    assert came == [("NO_ROUTE", b"again")]


Returned = tuple[int, str, str, bytes, pika.BasicProperties]


@pytest.fixture
def returned(tx: BlockingChannel) -> list[Returned]:
    """What comes back on the transactional channel."""
    came: list[Returned] = []

    def note(_channel: object, method: pika.spec.Basic.Return, properties: pika.BasicProperties, body: bytes) -> None:
        came.append((method.reply_code, method.reply_text, method.routing_key, body, properties))

    tx.add_on_return_callback(note)
    return came


def test_mandatory_messages_whose_queue_was_deleted_meanwhile_come_back_with_the_commit_in_order(
    tx: BlockingChannel, channel: BlockingChannel, queue: str, returned: list[Returned]
) -> None:
    channel.queue_declare("tx.brief", durable=True)
    rich = pika.BasicProperties(delivery_mode=2, headers={"n": 1}, message_id="m", expiration="60000")
    tx.basic_publish("", "tx.brief", b"one", rich, mandatory=True)
    tx.basic_publish("", "tx.brief", b"not asked for", rich)
    tx.basic_publish("", "no such queue", b"two", PERSISTENT, mandatory=True)
    tx.basic_publish("", queue, b"kept", PERSISTENT, mandatory=True)
    tx.basic_publish("", "tx.brief", b"three", PERSISTENT, mandatory=True)
    channel.queue_delete("tx.brief")
    tx.connection.process_data_events(0)
    assert returned == []
    tx.tx_commit()
    tx.connection.process_data_events(0)
    found = [(code, text, key, body) for code, text, key, body, _ in returned]
    assert found == [
        (312, "NO_ROUTE", "tx.brief", b"one"),
        (312, "NO_ROUTE", "no such queue", b"two"),
        (312, "NO_ROUTE", "tx.brief", b"three"),
    ]
    assert vars(returned[0][4]) == vars(rich)
    assert bodies(channel, queue) == [b"kept"]


def test_a_mandatory_message_that_one_queue_is_left_for_does_not_come_back(
    tx: BlockingChannel,
    channel: BlockingChannel,
    queues: list[str],
    request: pytest.FixtureRequest,
    returned: list[Returned],
) -> None:
    tx.basic_publish(request.node.name, "", b"x", PERSISTENT, mandatory=True)
    for gone in queues[1:]:
        channel.queue_delete(gone)
    tx.tx_commit()
    tx.connection.process_data_events(0)
    assert (returned, bodies(channel, queues[0])) == ([], [b"x"])
    tx.basic_publish(request.node.name, "", b"y", PERSISTENT, mandatory=True)
    channel.queue_delete(queues[0])
    tx.tx_commit()
    tx.connection.process_data_events(0)
    assert [body for *_, body, _ in returned] == [b"y"]


@pytest.mark.parametrize("what", ["channel", "connection"])
def test_what_is_open_when_it_closes_is_forgotten(
    url: str, what: str, channel: BlockingChannel, queues: list[str]
) -> None:
    channel.basic_publish("", queues[0], b"kept", PERSISTENT)
    other = pika.BlockingConnection(pika.URLParameters(url))
    tx = other.channel()
    tx.tx_select()
    method, _, _ = tx.basic_get(queues[0])
    tx.basic_ack(method.delivery_tag)
    tx.basic_publish("", queues[1], b"forgotten", PERSISTENT)
    (tx if what == "channel" else other).close()
    assert bodies(channel, queues[0]) == [b"kept"]
    assert bodies(channel, queues[1]) == []
    if other.is_open:
        other.close()


def test_a_transaction_that_is_too_large_is_refused(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    for _ in range(5):
        tx.basic_publish("", queue, bytes(14 << 20), PERSISTENT)
    code, text = refused(tx.tx_commit)
    assert code == 406
    assert "transaction too large" in text
    assert bodies(channel, queue) == []


def test_large_transactions_arrive(tx: BlockingChannel, channel: BlockingChannel, queue: str) -> None:
    for number in range(3):
        tx.basic_publish("", queue, bytes([number]) * (14 << 20), PERSISTENT)
    tx.tx_commit()
    assert bodies(channel, queue) == [bytes([number]) * (14 << 20) for number in range(3)]


def test_a_full_queue_refuses_the_commit_and_nothing_of_it_is_visible(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    with pika.BlockingConnection(pika.URLParameters(amqp_url(broker))) as connection:
        channel = connection.channel()
        channel.queue_declare("source", durable=True)
        channel.queue_declare("open", durable=True)
        full = {"x-max-length": 3, "x-overflow": "reject-publish"}
        channel.queue_declare("full", durable=True, arguments=full)
        channel.basic_publish("", "source", b"kept", PERSISTENT)
        tx = connection.channel()
        tx.tx_select()
        for number in range(3):
            tx.basic_publish("", "full", b"%d" % number, PERSISTENT)
        tx.tx_commit()
        tx.basic_ack(tx.basic_get("source")[0].delivery_tag)
        tx.basic_publish("", "open", b"one", PERSISTENT)
        tx.basic_publish("", "full", b"too much", PERSISTENT)
        tx.basic_publish("", "open", b"two", PERSISTENT)
        code, text = refused(tx.tx_commit)
        assert (code, text.partition(";")[0]) == (
            406,
            "PRECONDITION_FAILED - not committed: queue 'full' in vhost '/' is full",
        )
        assert [bodies(channel, queue) for queue in ("open", "full", "source")] == [[], [b"0", b"1", b"2"], [b"kept"]]


def test_what_has_returned_to_its_queue_meanwhile_refuses_the_commit(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    with pika.BlockingConnection(pika.URLParameters(amqp_url(broker))) as connection:
        channel, tx = connection.channel(), connection.channel()
        for name in ("source", "target"):
            channel.queue_declare(name, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "source", b"kept", PERSISTENT)
        tx.tx_select()
        tx.basic_ack(tx.basic_get("source")[0].delivery_tag)
        tx.basic_publish("", "target", b"made of it", PERSISTENT)
        broker.kill_and_wait("shard-0")
        code, text = refused(tx.tx_commit)
        assert code == 406
        assert "not committed: a delivery that was settled in it has returned to its queue" in text
        assert [bodies(channel, queue) for queue in ("source", "target")] == [[b"kept"], []]


def test_queues_that_are_deleted_before_the_commit_do_not_stand_in_its_way(
    tx: BlockingChannel, channel: BlockingChannel, queues: list[str], request: pytest.FixtureRequest
) -> None:
    channel.basic_publish("", queues[0], b"gone with its queue", PERSISTENT)
    tx.basic_ack(tx.basic_get(queues[0])[0].delivery_tag)
    tx.basic_publish(request.node.name, "", b"kept", PERSISTENT)
    tx.basic_publish("", queues[0], b"gone", PERSISTENT)
    channel.queue_delete(queues[0])
    tx.tx_commit()
    assert [bodies(channel, queue) for queue in queues[1:]] == [[b"kept"]] * (len(queues) - 1)


def test_transactions_of_channels_have_names_that_nobody_else_may_use(native: shardmq.Connection) -> None:
    with pytest.raises(AccessRefused, match="reserved prefix"):
        native.channel().transaction("amq.tx.mine")


@pytest.mark.usefixtures("queues")
def test_nothing_stays_behind_in_the_coordinator(
    native: shardmq.Connection, tx: BlockingChannel, request: pytest.FixtureRequest
) -> None:
    for _ in range(3):
        tx.basic_publish(request.node.name, "", b"x", PERSISTENT)
        tx.tx_commit()
    assert native.topology("transactions") == []
