"""What is wrong is found in a real broker, of what the caller may see."""

import shlex
import threading
import time
from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused

from .looking import found, gathered, publish, told, until


@pytest.fixture(scope="module")
def connection(managed: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(managed.url) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    with connection.channel() as channel:
        yield channel


def test_queues_where_messages_stay_are_found(channel: shardmq.Channel, admin: Browser) -> None:
    publish(channel, "unread", 3)
    publish(channel, "left", 3)
    assert channel.basic_get("left", auto_ack=True)
    publish(channel, "full", 10, max_length=10, overflow="reject-publish")
    publish(channel, "work", 0, dead_letter_exchange="", dead_letter_routing_key="dead")
    publish(channel, "dead", 100)
    publish(channel, "short", 100, message_ttl=1)
    channel.exchange_declare("graves", "fanout", durable=True)
    publish(channel, "mortal", 0, dead_letter_exchange="graves")
    publish(channel, "grave", 100)
    channel.queue_bind("grave", "graves")
    publish(channel, "kept", 4)
    channel.queue_reserve("kept", "job", messages_max=3)
    publish(channel, "late", 1, consumer_timeout=50)
    late = channel.consume("late", prefetch=1)
    next(late)
    publish(channel, "much", 0)
    slow = channel.consume("much", prefetch=10)
    publish(channel, "much", 1500)
    next(slow)
    channel.topic_declare("events", 1)
    channel.group_commit("events", "readers", {0: 0})
    channel.basic_publish("events", "key", b"x")
    rows = gathered(
        admin,
        ("no-consumers", "unread"),
        ("consumers-gone", "left"),
        ("near-limit", "full"),
        ("dead-letters-wait", "dead"),
        ("dead-letters-wait", "grave"),
        ("expires-unread", "short"),
        ("group-without-members", "events/readers"),
        ("reservation-holds", "kept"),
        ("falls-behind", "much"),
        ("head-waits", "much"),
        ("unacked-waits", "much"),
        ("ack-timeout-loop", "late"),
    )
    assert rows["no-consumers", "unread"]["numbers"] == {"ready": 3, "consumers": 0}
    assert rows["consumers-gone", "left"]["command"] == "shardmq queue peek left"
    assert rows["near-limit", "full"]["severity"] == "error"
    assert rows["dead-letters-wait", "dead"]["numbers"] == {"ready": 100}
    assert rows["expires-unread", "short"]["numbers"]["expire"] == 100
    assert rows["group-without-members", "events/readers"]["numbers"]["lag"] == 1
    assert rows["reservation-holds", "kept"]["numbers"]["reserved"] == 3
    assert ("no-consumers", "kept") not in told(admin), "whoever reserves messages of a queue reads it"
    assert rows["falls-behind", "much"]["numbers"]["consumers"] == 1
    assert (
        rows["head-waits", "much"]["numbers"]["consumers"] == rows["unacked-waits", "much"]["numbers"]["unacked"] / 10
    )
    assert rows["unacked-waits", "much"]["numbers"]["same_seconds"] > 1
    much = admin.get("/queues/%2F/much")
    assert abs(time.time() - much["head_message_timestamp"]) < 60
    (consumer,) = much["consumer_details"]
    assert consumer["unacked"] == 10
    assert consumer["oldest_unacked_ms"] == much["oldest_unacked_ms"] > 1000
    assert rows["ack-timeout-loop", "late"]["numbers"]["timeout_ms"] == 50
    until(lambda: ("expires-unread", "short") not in told(admin), "nothing expires any more")
    del late, slow
    assert admin.get("/shardmq/findings?severity=error&after=0")[0]["name"] == "full"
    assert "no-consumers" not in [row["rule"] for row in admin.get("/shardmq/findings")]  # not for long enough


@pytest.mark.parametrize(("rule", "is_single"), [("prefetch-full", False), ("single-active-consumer-idle", True)])
def test_consumers_that_settle_nothing_are_named(
    managed: Broker, channel: shardmq.Channel, admin: Browser, rule: str, is_single: bool
) -> None:
    publish(channel, rule, 3, single_active_consumer=is_single)
    is_done = threading.Event()
    with shardmq.connect(managed.url) as other:
        other.channel().basic_consume(rule, lambda _message: is_done.wait(30), 1)
        finding = found(admin, rule, rule)
        is_done.set()
    assert len(finding["numbers"]["connections"]) == 1
    assert finding["command"] == f"shardmq connection close {finding['numbers']['connections'][0]}"


def test_messages_that_come_back_again_and_again_are_found(channel: shardmq.Channel, admin: Browser) -> None:
    publish(channel, "loop", 1)
    for _ in range(102):
        message = channel.basic_get("loop")
        assert message is not None
        channel.basic_nack(message.delivery_tag, requeue=True)
    assert found(admin, "redelivery-loop", "loop")["numbers"]["redeliver"] >= 100
    until(lambda: ("redelivery-loop", "loop") not in told(admin), "nobody gets it any more")


def test_command_lines_name_the_virtual_host(
    managed: Broker, connection: shardmq.Connection, admin: Browser, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    connection.vhost_put("ten ant")
    connection.permission_put("guest", "ten ant", ".*", ".*", ".*")
    with shardmq.connect(managed.url + "ten%20ant") as other:
        publish(other.channel(), "odd 'name'", 1)
    command = found(admin, "no-consumers", "odd 'name'")["command"]
    assert run(shlex.split(command)[1:]) == 0, command
    assert b"x" in capsysbinary.readouterr().out


def test_many_channels_of_one_connection_are_found(managed: Broker, admin: Browser) -> None:
    with shardmq.connect(managed.url) as wide:
        for _ in range(200):
            wide.channel()
        deadline = time.monotonic() + 10
        while "many-channels" not in [row["rule"] for row in admin.get("/shardmq/findings?after=0")]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.mark.parametrize("query", ["after=-1", "after=x", "severity=odd"])
def test_parameters_that_make_no_sense_are_refused(admin: Browser, query: str) -> None:
    with pytest.raises(Refused) as error:
        admin.get(f"/shardmq/findings?{query}")
    assert error.value.status == 400
