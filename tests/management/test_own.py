"""Endpoints that RabbitMQ does not have, over real processes."""

import base64
import gzip
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

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


def test_a_changed_copy_is_published_and_the_original_stays_or_goes(channel: shardmq.Channel, admin: Browser) -> None:
    channel.queue_declare("draft", durable=True)
    at = datetime(2001, 2, 3, tzinfo=UTC)
    headers = {"at": at, "raw": b"\0\xff", "keep": 1, "drop": 2}
    properties = shardmq.Properties(headers=headers, content_type="text/plain", app_id="shop", user_id="guest")
    channel.basic_publish("", "draft", b"\0first", properties)
    path = "/shardmq/queues/%2F/draft/republish"
    position = admin.get("/shardmq/queues/%2F/draft/messages")["messages"][0]["position"]
    patch = {"headers": {"drop": None, "keep": 3, "new": "x"}, "content_type": None, "priority": 4}
    asked = {"position": position, "properties": patch}
    assert admin.post(path, asked) == {"routed": True, "removed": False}
    assert admin.post(path, {**asked, "payload": "changed", "remove": True}) == {"routed": True, "removed": True}
    copies = channel.queue_peek("draft", 0, 9)
    assert [bytes(copy.body) for copy in copies] == [b"\0first", b"changed"]
    for copy in copies:
        assert copy.properties.headers == {"at": at, "raw": b"\0\xff", "keep": 3, "new": "x"}
        assert (copy.properties.content_type, copy.properties.app_id, copy.properties.priority) == (None, "shop", 4)
    position += 1
    with pytest.raises(Refused, match="not 'another'"):
        admin.post(path, {"position": position, "id": "another", "remove": True})
    with pytest.raises(Refused, match="not 'another'"):
        admin.post(path, {"position": position, "id": "another"})
    lost = {
        "position": position,
        "id": admin.get("/shardmq/queues/%2F/draft/messages")["messages"][0]["id"],
        "exchange": "amq.direct",
        "routing_key": "nobody",
        "remove": True,
    }
    assert admin.post(path, lost) == {"routed": False, "removed": False}
    assert [bytes(copy.body) for copy in channel.queue_peek("draft", 0, 9)] == [b"\0first", b"changed"]
    refused = [
        ({"position": 999}, 404),
        ({"position": 999, "remove": True}, 404),
        ({"position": position, "exchange": "nowhere"}, 404),
        ({"position": position, "exchange": "nowhere", "remove": True}, 404),
        ({"position": position, "properties": {"colour": None}}, 400),
        ({"position": position, "payload": "?", "payload_encoding": "base64"}, 400),
        ({}, 400),
    ]
    for body, status in refused:
        with pytest.raises(Refused) as error:
            admin.post(path, body)
        assert error.value.status == status, body
    assert len(channel.queue_peek("draft", 0, 9)) == 2


def test_a_message_of_a_topic_is_copied_and_stays(channel: shardmq.Channel, admin: Browser) -> None:
    channel.topic_declare("drafts", 1)
    channel.queue_declare("copied", durable=True)
    channel.basic_publish("", "drafts-0", b"x" * 40_000)
    found = admin.get("/shardmq/topics/%2F/drafts/messages?count=1&body_bytes=100000")["messages"][0]
    assert (found["is_truncated"], len(base64.b64decode(found["payload_base64"]))) == (False, 40_000)
    body = {"position": 0, "exchange": "", "routing_key": "copied"}
    path = "/shardmq/topics/%2F/drafts/republish"
    assert admin.post(path, body) == {"routed": True, "removed": False}
    (copy,) = channel.queue_peek("copied", 0, 9)
    assert copy.body == b"x" * 40_000
    with pytest.raises(Refused, match="a topic keeps its messages"):
        admin.post(path, {**body, "remove": True})
    with pytest.raises(Refused, match="404"):
        admin.post(path, {**body, "position": 1})
    channel.topic_delete("drafts")


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
    reader = channel.consume("events", prefetch=20, arguments={"x-group": "readers"})
    assert len([next(reader) for _ in range(10)]) == 10
    found = [admin.get(f"/queues/%2F/events-{number}")["consumer_details"] for number in range(2)]
    assert [(each["arguments"], each["prefetch_count"]) for (each,) in found] == [({"x-group": "readers"}, 20)] * 2
    assert {row["partition"]: each["unacked"] for row, (each,) in zip(topic["partitions"], found, strict=True)} == ends
    assert [row["queue"]["name"] for row in admin.get("/consumers/%2F")] == ["events"]
    del reader
    admin.ask("DELETE", "/shardmq/topics/%2F/events")
    assert admin.get("/shardmq/topics") == []


def test_processes_are_listed_with_their_shares(admin: Browser) -> None:
    roles = [row["role"] for row in admin.get("/shardmq/processes")]
    assert sorted(roles) == ["coordinator", "gateway", "shard", "shard"]
    for row in admin.get("/shardmq/processes"):
        assert "cpu_percent" in row
        assert row["host"] == socket.gethostname()
