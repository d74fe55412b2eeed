"""What clients did, counted at gateways by channel, exchange and virtual host; what stays. Real processes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.adapters.blocking_connection
import pika.exceptions
import pytest

import shardmq
from shardmq import ListQuery
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def amqp(broker: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))) as connection:
        yield connection.channel()


def told(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def of_channel(admin: shardmq.Connection, protocol: str) -> dict[str, int]:
    """What is counted of the newest channel of a protocol."""
    connections = admin.stats_list("connections", ListQuery(sort="connected_at", reverse=True))["items"]
    newest = next(row["name"] for row in connections if row["protocol"] == protocol)
    channels = admin.stats_list("channels", ListQuery(name=newest))["items"]
    return told(channels[-1]["counts"])


def overall(admin: shardmq.Connection) -> dict[str, int]:
    counts: dict[str, int] = admin.stats_overview()["counts"]
    return counts


def test_channels_count_what_their_clients_did_over_amqp(admin: shardmq.Connection, amqp: Any) -> None:
    amqp.queue_declare("amqp")
    for _ in range(3):
        amqp.basic_publish("", "amqp", b"unconfirmed")
    amqp.confirm_delivery()
    for _ in range(7):
        amqp.basic_publish("", "amqp", b"x")
    amqp.basic_publish("", "nowhere", b"x")
    with pytest.raises(pika.exceptions.UnroutableError):
        amqp.basic_publish("", "nowhere", b"x", mandatory=True)
    method, *_ = amqp.basic_get("amqp")
    amqp.basic_nack(method.delivery_tag)
    method, *_ = amqp.basic_get("amqp")
    amqp.basic_ack(method.delivery_tag)
    method, *_ = amqp.basic_get("amqp")
    amqp.basic_reject(method.delivery_tag, requeue=False)
    amqp.basic_get("amqp", auto_ack=True)
    amqp.queue_purge("amqp")
    amqp.basic_get("amqp")
    assert of_channel(admin, "AMQP 0-9-1") == {
        "publish": 12,
        "confirm": 9,
        "publish_confirmed": 9,
        "return_unroutable": 1,
        "drop_unroutable": 1,
        "get": 3,
        "get_no_ack": 1,
        "get_empty": 1,
        "ack": 1,
        "redeliver": 1,
        "reject": 1,
    }


def test_channels_count_messages_where_several_travel_together(broker: Broker, admin: shardmq.Connection) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for queue in ("together-1", "together-2", "together-3"):
            channel.queue_declare(queue)
            channel.queue_bind(queue, "amq.fanout", "")
        with channel.publisher() as publisher:
            publisher.publish_many("amq.fanout", "", [b"x"] * 100)
            publisher.publish_many("", "together-1", [b"x"] * 50)
        consumed = channel.consume("together-1", auto_ack=True)
        for _ in range(150):
            next(consumed)
        counts = of_channel(admin, "shardmq")
        assert counts == {"publish": 150, "confirm": 150, "publish_confirmed": 150, "deliver_no_ack": 150}
        exchanges = {row["name"]: row["counts"] for row in admin.stats_list("exchanges")["items"]}
        assert exchanges["amq.fanout"] == {"publish_in": 100, "publish_out": 300}
        consumed.close()


def test_what_clients_did_is_kept_when_they_leave(broker: Broker, admin: shardmq.Connection) -> None:
    before, churn = overall(admin), admin.stats_overview()["churn"]["counts"]
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("left")
        for _ in range(5):
            channel.basic_publish("", "left", b"x")
        message = channel.basic_get("left")
        assert message is not None
        message.ack()
    after, later = overall(admin), admin.stats_overview()["churn"]["counts"]
    assert told({name: after[name] - before[name] for name in after}) == {
        "publish": 5,
        "confirm": 5,
        "publish_confirmed": 5,
        "get": 1,
        "ack": 1,
    }
    assert told({name: later[name] - churn[name] for name in later}) == {
        "connections_opened": 1,
        "connections_closed": 1,
        "channels_opened": 1,
        "channels_closed": 1,
        "queues_declared": 1,
        "queues_created": 1,
    }


def test_a_transaction_counts_when_it_is_committed(admin: shardmq.Connection, amqp: Any) -> None:
    amqp.queue_declare("tx")
    amqp.tx_select()
    before = admin.stats_list("exchanges", ListQuery(name=""))["items"][0]["counts"]["publish_in"]
    amqp.basic_publish("", "tx", b"x")
    amqp.tx_rollback()
    amqp.basic_publish("", "tx", b"x")
    amqp.tx_commit()
    method, *_ = amqp.basic_get("tx")
    amqp.basic_ack(method.delivery_tag)
    amqp.tx_commit()
    assert of_channel(admin, "AMQP 0-9-1")["ack"] == 1
    assert admin.stats_list("exchanges", ListQuery(name=""))["items"][0]["counts"]["publish_in"] == before + 1


def test_histograms_count_messages(admin: shardmq.Connection) -> None:
    gateway = next(row for row in admin.stats_overview(is_detailed=True)["processes"] if row["role"] == "gateway")
    measures = gateway["measures"]
    assert sum(measures["message_bytes"]["counts"]) > 100
    for name in ("confirm_seconds", "delivery_seconds"):
        assert sum(measures[name]["counts"]) > 0
        assert measures[name]["sum"] > 0


def test_other_processes_keep_their_counters_when_one_starts_again(start_broker: Callable[..., Broker]) -> None:
    """A shard's queues begin anew, a gateway's channels and exchanges do, and nobody else's."""
    broker = start_broker(shards=1, gateways=2)
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(shardmq.connect(broker.url))
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        for _ in range(4):
            channel.basic_publish("", "kept", b"x")
        broker.kill_and_wait("shard-0")
        while connection.stats_get("queues", "/", "kept")["state"] != "running":
            pass
        channel.basic_publish("", "kept", b"x")
        assert connection.stats_get("queues", "/", "kept")["counts"]["publish"] == 1
        assert connection.stats_overview()["counts"]["publish"] == 5
        own = connection.stats_list("connections")["items"][0]["gateway"]
        broker.kill_and_wait(next(name for name in ("gateway-0", "gateway-1") if name != own))
        assert connection.stats_overview()["counts"]["publish"] == 5
        broker.kill_and_wait(own)
    with shardmq.connect(broker.url) as connection:
        assert connection.stats_get("queues", "/", "kept")["counts"]["publish"] == 1
        assert connection.stats_overview()["counts"]["publish"] == 0
