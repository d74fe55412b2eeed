"""Exchanges, queues, bindings and who is connected, on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.faults.saboteur import until

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]

Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


def named(parsed: Parsed, noun: str, name: str) -> dict[str, object]:
    (row,) = [row for row in parsed(noun, "list") if row["name"] == name]
    assert isinstance(row, dict)
    return row


def test_exchanges_are_declared_listed_and_deleted(printed: Printed, parsed: Parsed) -> None:
    assert parsed("exchange", "declare", "prices", "--type", "topic") == {"ok": True}
    row = named(parsed, "exchange", "prices")
    assert (row["type"], row["durable"], row["internal"], row["auto_delete"]) == ("topic", True, False, False)
    assert b"prices" in printed("exchange", "list")
    printed("exchange", "delete", "prices")
    assert "prices" not in {row["name"] for row in parsed("exchange", "list")}


def test_exchanges_can_be_internal_and_have_arguments(printed: Printed, parsed: Parsed, refused: Refused) -> None:
    printed("exchange", "declare", "spill", "--type", "fanout", "--internal", "--auto-delete")
    printed("exchange", "declare", "orders", "--argument", "alternate-exchange=spill")
    row = named(parsed, "exchange", "spill")
    assert (row["internal"], row["auto_delete"]) == (True, True)
    assert named(parsed, "exchange", "orders")["arguments"] == {"alternate-exchange": "spill"}
    assert "internal" in refused("publish", "key", "x", "--exchange", "spill")


def test_a_used_exchange_is_not_deleted_if_unused(printed: Printed, refused: Refused) -> None:
    printed("exchange", "declare", "used")
    printed("queue", "declare", "user-of-it")
    printed("binding", "declare", "used", "user-of-it")
    assert "in use" in refused("exchange", "delete", "used", "--if-unused")
    printed("exchange", "delete", "used")


def test_bindings_are_declared_listed_and_deleted(printed: Printed, parsed: Parsed) -> None:
    printed("exchange", "declare", "news", "--type", "topic", "--transient")
    printed("queue", "declare", "sports", "--transient")
    printed("binding", "declare", "news", "sports", "sports.#")
    (row,) = [row for row in parsed("binding", "list") if row["source"] == "news"]
    assert (row["destination"], row["destination_type"], row["routing_key"]) == ("sports", "queue", "sports.#")
    printed("publish", "sports.tennis", "0:6", "--exchange", "news")
    assert printed("consume", "sports", "--count", "1") == b"0:6\n"
    printed("binding", "delete", "news", "sports", "sports.#")
    assert "news" not in {row["source"] for row in parsed("binding", "list")}


def test_exchanges_are_bound_to_exchanges_and_by_headers(printed: Printed, parsed: Parsed) -> None:
    printed("exchange", "declare", "all", "--type", "fanout")
    printed("exchange", "declare", "tagged", "--type", "headers")
    printed("queue", "declare", "red")
    printed("binding", "declare", "all", "tagged", "--to-exchange")
    printed("binding", "declare", "tagged", "red", "-a", "x-match=all", "-a", "color=red", "-a", "size=3")
    (row,) = [row for row in parsed("binding", "list") if row["source"] == "tagged"]
    assert row["arguments"] == {"x-match": "all", "color": "red", "size": 3}
    assert b"exchange tagged" in printed("binding", "list")
    for color in ("red", "blue"):
        printed("publish", "", color, "--exchange", "all", "--header", f"color={color}", "--header", "size=3")
    assert printed("consume", "red", "--wait", "0.2") == b"red\n"
    printed("binding", "delete", "all", "tagged", "--to-exchange")
    assert "all" not in {row["source"] for row in parsed("binding", "list")}


def test_queues_are_declared_purged_listed_and_deleted(printed: Printed, parsed: Parsed) -> None:
    assert b"Declared queue 'jobs' (0 messages)" in printed("queue", "declare", "jobs")
    printed("publish", "jobs", "x", "--count", "5")
    row = named(parsed, "queue", "jobs")
    assert (row["ready"], row["unacked"], row["consumers"]) == (5, 0, 0)
    assert parsed("queue", "purge", "jobs", "--yes") == {"ok": True, "messages": 5}
    printed("publish", "jobs", "x", "--count", "3")
    assert parsed("queue", "delete", "jobs", "--yes") == {"ok": True, "messages": 3}
    assert "jobs" not in {row["name"] for row in parsed("queue", "list")}


def test_queues_have_arguments_and_unknown_ones_are_refused(printed: Printed, parsed: Parsed, refused: Refused) -> None:
    printed("queue", "declare", "short", "-a", "x-max-length=2", "-a", "x-overflow=reject-publish", "--auto-delete")
    row = named(parsed, "queue", "short")
    assert (row["arguments"], row["auto_delete"]) == ({"x-max-length": 2, "x-overflow": "reject-publish"}, True)
    assert b"auto delete" in b" ".join(printed("queue", "list").split())
    assert "x-max-length" in refused("queue", "declare", "odd", "--argument", "x-maximum=2")
    assert "NAME=VALUE" in refused("queue", "declare", "odd", "--argument", "x-max-length", code=2)


def test_a_queue_without_a_name_is_given_one(parsed: Parsed) -> None:
    name = parsed("queue", "declare")["queue"]
    assert name.startswith("amq.gen-")
    parsed("queue", "delete", name, "--yes")


def test_a_queue_that_is_not_empty_is_not_deleted_if_empty(printed: Printed, refused: Refused) -> None:
    printed("queue", "declare", "full")
    printed("publish", "full", "x")
    assert "not empty" in refused("queue", "delete", "full", "--yes", "--if-empty")
    printed("queue", "delete", "full", "--yes", "--if-unused")


def test_declaring_it_otherwise_fails_and_says_how_it_differs(printed: Printed, refused: Refused) -> None:
    printed("queue", "declare", "settled")
    assert "durable" in refused("queue", "declare", "settled", "--transient")


def test_who_is_connected_is_listed_and_can_be_sent_away(
    at: Broker, printed: Printed, parsed: Parsed, refused: Refused
) -> None:
    connection = shardmq.connect(at.url, recovery=None)
    channel = connection.channel()
    channel.queue_declare("watched", durable=True)
    channel.basic_consume("watched", lambda message: message.ack(), prefetch=7)
    channel.basic_publish("", "watched", b"")
    (consumer,) = parsed("consumer", "list")
    assert (consumer["queue"], consumer["prefetch"], consumer["user"]) == ("watched", 7, "guest")
    until(lambda: parsed("consumer", "list", "--queue", "watched")[0]["ack_latency_ms"] is not None, "an ack is timed")
    (held,) = parsed("consumer", "list", "--queue", "watched")
    assert (held["tag"], held["prefetch"], held["unacked"], held["oldest_unacked_ms"]) == (consumer["tag"], 7, 0, None)
    assert 0 < held["ack_latency_ms"] <= held["ack_latency_ms_max"]
    assert "no queue 'nowhere'" in refused("consumer", "list", "--queue", "nowhere")
    name = consumer["connection"]
    assert any(row["connection"] == name and row["consumers"] == 1 for row in parsed("channel", "list"))
    assert any(row["name"] == name and row["channels"] >= 1 for row in parsed("connection", "list"))
    for noun in ("consumer", "channel", "connection"):
        assert b"guest" in printed(noun, "list") or noun == "consumer"
    printed("connection", "close", name, "--reason", "go away")
    assert name not in {row["name"] for row in parsed("connection", "list")}
    connection.close()
