"""Endpoints that RabbitMQ does not have, over real processes."""

import base64
import gzip
from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused


@pytest.fixture(scope="module")
def channel(managed: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(managed.url) as connection:
        yield connection.channel()


def test_messages_are_looked_at_without_a_trace(channel: shardmq.Channel, admin: Browser) -> None:
    channel.queue_declare("looked", durable=True)
    for number in range(300):
        headers = {"tenant": "acme" if number % 100 == 7 else "other"}
        channel.basic_publish("", "looked", b"number %d" % number, shardmq.Properties(headers=headers))
    path = "/shardmq/queues/%2F/looked/messages"
    first = admin.get(f"{path}?count=2")
    assert [base64.b64decode(each["payload_base64"]) for each in first["messages"]] == [b"number 0", b"number 1"]
    assert (first["next"], first["looked_at"]) == (2, 2)
    found = admin.get(f"{path}?header=tenant%3Dacme")
    assert [each["position"] for each in found["messages"]] == [7, 107, 207]
    assert (found["next"], found["looked_at"]) == (None, 300)
    assert [each["position"] for each in admin.get(f"{path}?text=299")["messages"]] == [299]
    assert admin.get(f"{path}?key=nothing")["messages"] == []
    assert [each["position"] for each in admin.get(f"{path}?key=loo*&regex=20%24")["messages"]] == [20, 120, 220]
    assert [each["position"] for each in admin.get(f"{path}?header=tenant&start=298")["messages"]] == [298, 299]
    wanted = admin.get(f"{path}?start=8&count=1")["messages"][0]["id"]
    assert [each["position"] for each in admin.get(f"{path}?id={wanted}")["messages"]] == [8]
    for words in ("regex=(", "json=order", "since=now", f"text={'x' * 2000}"):
        with pytest.raises(Refused) as error:
            admin.get(f"{path}?{words}")
        assert error.value.status == 400, words
    message = channel.basic_get("looked", auto_ack=True)
    assert message is not None
    assert (message.body, message.redelivered) == (b"number 0", False)


def test_topics_are_searched_and_hold_traces(channel: shardmq.Channel, admin: Browser) -> None:
    channel.topic_declare("kept", 2)
    body = gzip.compress(b'{"order": {"id": 7}}')
    properties = shardmq.Properties(message_id="traced", content_encoding="gzip")
    for partition in range(2):
        channel.basic_publish("", f"kept-{partition}", b"{}")
    channel.basic_publish("", "kept-1", body, properties)
    path = "/shardmq/topics/%2F/kept/messages?json=%24.order.id%20%3D%3D%207&json=%24.order"
    assert (admin.get(path)["messages"], admin.get(path)["partitions"]) == ([], 2)
    page = admin.get(f"{path}&partition=1")
    (row,) = page["messages"]
    assert (row["position"], row["id"], row["payload_bytes"]) == (1, "traced", len(body))
    assert base64.b64decode(row["unpacked_base64"]) == b'{"order": {"id": 7}}'
    assert (page["looked_at"], page["left"], page["next"], page["cut"]) == (2, 0, None, 0)
    (held,) = admin.get("/shardmq/traces/%2F/traced")["held"]
    assert (held["queue"], held["is_stream"], held["position"]) == ("kept-1", True, 1)
    channel.topic_delete("kept")


def test_messages_are_moved_in_order(channel: shardmq.Channel, admin: Browser) -> None:
    for name in ("source", "target"):
        channel.queue_declare(name, durable=True)
    for number in range(10):
        channel.basic_publish("", "source", b"%d" % number)
    assert admin.ask("POST", "/shardmq/queues/%2F/source/move", {"to": "target", "limit": 4}) == {"moved": 4, "left": 6}
    assert admin.ask("POST", "/shardmq/queues/%2F/source/move", {"to": "target"}) == {"moved": 6, "left": 0}
    assert [message.body for message in channel.queue_peek("target", 0, 20)] == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"to": "nowhere"}, 404), ({"to": "source"}, 400), ({}, 400), ({"to": "target", "limit": 0}, 400)],
)
def test_what_cannot_be_moved_stays(
    channel: shardmq.Channel, admin: Browser, body: dict[str, object], status: int
) -> None:
    channel.queue_declare("source", durable=True)
    with pytest.raises(Refused) as error:
        admin.ask("POST", "/shardmq/queues/%2F/source/move", body)
    assert error.value.status == status


def test_transactions_are_listed_and_given_up(channel: shardmq.Channel, admin: Browser) -> None:
    channel.queue_declare("target", durable=True)
    transaction = channel.transaction("a/b")
    transaction.publish("", "target", b"staged")
    (row,) = admin.get("/shardmq/transactions")
    assert (row["name"], row["vhost"], row["user"]) == ("a/b", "/", "guest")
    admin.delete("/shardmq/transactions/%2F/a%2Fb")
    assert admin.get("/shardmq/transactions") == []
    with pytest.raises(Refused) as error:
        admin.delete("/shardmq/transactions/%2F/a%2Fb")
    assert error.value.status == 404


def test_a_key_is_tried_on_the_topology(channel: shardmq.Channel, admin: Browser) -> None:
    channel.exchange_declare("orders", "topic")
    channel.exchange_declare("audit", "fanout")
    channel.exchange_declare("lost", "fanout")
    channel.exchange_declare("strict", "direct", arguments={"alternate-exchange": "lost"})
    for queue, exchange, key in (("paid", "orders", "*.paid"), ("all", "audit", ""), ("lost", "lost", "")):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, key)
    channel.exchange_bind("audit", "orders", "eu.#")
    path = "/shardmq/exchanges/%2F/orders/route?routing_key="
    assert admin.get(path + "eu.paid") == {"exchanges": ["orders", "audit"], "queues": ["all", "paid"]}
    assert admin.get(path + "us.paid") == {"exchanges": ["orders"], "queues": ["paid"]}
    assert admin.get(path + "us.new")["queues"] == []
    assert admin.get("/shardmq/exchanges/%2F/strict/route?routing_key=x")["queues"] == ["lost"]
    assert admin.get("/shardmq/exchanges/%2F/amq.default/route?routing_key=all")["queues"] == ["all"]


def test_topics_and_groups_are_shown_and_reset(channel: shardmq.Channel, admin: Browser) -> None:
    admin.ask("PUT", "/shardmq/topics/%2F/events", {"partitions": 2})
    for number in range(10):
        channel.basic_publish("events", f"key-{number}", b"x")
    topic = admin.get("/shardmq/topics/%2F/events")
    ends = {row["partition"]: row["next"] for row in topic["partitions"]}
    assert sum(ends.values()) == 10
    channel.group_commit("events", "readers", ends)
    assert [row["lag"] for row in admin.get("/shardmq/groups")] == [0]
    path = "/shardmq/groups/%2F/events/readers/reset"
    assert admin.ask("POST", path, {"to": "earliest", "dry_run": True})["messages"] == 10
    assert [row["lag"] for row in admin.get("/shardmq/groups")] == [0]
    assert admin.ask("POST", path, {"to": "earliest"})["messages"] == 10
    assert [row["lag"] for row in admin.get("/shardmq/groups")] == [10]
    admin.ask("DELETE", "/shardmq/topics/%2F/events")
    assert admin.get("/shardmq/topics") == []


def test_processes_are_listed_with_their_shares(admin: Browser) -> None:
    roles = [row["role"] for row in admin.get("/shardmq/processes")]
    assert sorted(roles) == ["coordinator", "gateway", "shard", "shard"]
    assert all("cpu_percent" in row for row in admin.get("/shardmq/processes"))
