"""Shovels inside one broker over real processes: each message arrives once, whatever is killed."""

import os
import signal
from collections import Counter

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .moving import fill, messages, put, ready, shovel, taken, until, until_none

pytestmark = pytest.mark.usefixtures("resident")

KILLS = ("shovels", "gateway-0", "shard-0", "shovels", "shard-1")


def left(connection: shardmq.Connection, queue: str) -> int | None:
    """Messages of a queue that are ready or reserved; None while nobody can say."""
    try:
        row = connection.stats_get("queues", "/", queue)
    except errors.ShardmqError:
        return None
    return None if row["ready"] is None else row["ready"] + row["reserved"]


def pid_of(broker: Broker, process: str) -> int:
    """The newest of a process."""
    if process in broker.pids:
        return broker.pids[process]
    return [notice.pid for notice in broker.notices if notice.process == process and notice.pid][-1] or 0


def arrived(connection: shardmq.Connection, queue: str) -> Counter[bytes]:
    with connection.channel() as channel:
        batches = channel.consume_batches(queue, auto_ack=True, inactivity_timeout=2.0)
        return Counter(body for batch in batches for body in batch.bodies)


def test_each_message_arrives_once_whatever_is_killed(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    bodies = [b"%d" % number for number in range(10_000)]
    fill(channel, "work", bodies)
    put(connection, "once", "work", "worked", src_prefetch_count=100)
    for kill in KILLS:
        before = until(lambda: left(connection, "work"), f"there is something left before {kill} is killed")
        until(lambda before=before: (left(connection, "work") or before) < before - 200, "it moves")
        os.kill(pid_of(here, kill), signal.SIGKILL)
    assert left(connection, "work") != 0, "the kills came while it moved"
    until_none(lambda: left(connection, "work"), "in 'work'")
    until(lambda: ready(connection, "worked") >= len(bodies), "all is there")
    assert arrived(connection, "worked") == Counter(bodies)
    connection.parameter_delete("/", "shovel", "once")


def test_as_many_move_as_were_to_move_whatever_is_killed(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "many", [b"%d" % number for number in range(2400)])
    put(connection, "some", "many", "few", src_prefetch_count=50, src_delete_after=1789)
    for kill in ("shovels", "gateway-0", "coordinator", "shovels"):
        before = until(lambda: left(connection, "many"), f"there is something left before {kill} is killed")
        until(lambda before=before: (left(connection, "many") or before) < before - 200, "it moves")
        assert shovel(connection, "some"), "the kills come while it moves"
        os.kill(pid_of(here, kill), signal.SIGKILL)
    until(lambda: not shovel(connection, "some"), "all that was to move is moved")
    assert (left(connection, "many"), ready(connection, "few")) == (2400 - 1789, 1789)
    assert set(arrived(connection, "few")) == {b"%d" % number for number in range(1789)}


def test_a_shovel_that_is_deleted_leaves_nothing_reserved(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "cut", [b"%d" % number for number in range(5000)])
    put(connection, "short", "cut", "short", src_prefetch_count=50)
    until(lambda: ready(connection, "short") > 200, "it moves")
    connection.parameter_delete("/", "shovel", "short")
    until(lambda: connection.stats_get("queues", "/", "cut")["reserved"] == 0, "it has let go")
    until(lambda: ready(connection, "cut") + ready(connection, "short") == 5000, "each is here or there")


def test_a_stream_is_consumed(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    put(connection, "stream", "log", "plenty")
    until(lambda: shovel(connection, "stream").get("state") == "running", "nothing is reserved, and it runs")
    for number in range(3):
        channel.basic_publish("", "log", b"%d" % number)
    until(lambda: ready(connection, "plenty") == 3, "what comes is moved")
    assert messages(connection, "log") == 3
    connection.parameter_delete("/", "shovel", "stream")


def test_large_messages_go_in_smaller_transactions(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    bodies = [bytes([number]) * (1 << 20) for number in range(12)]
    fill(channel, "large", bodies)
    put(connection, "large", "large", "larger", src_delete_after=12)
    until(lambda: not shovel(connection, "large"), "all are moved")
    assert [message.body for message in taken(channel, "larger")] == bodies


@pytest.mark.parametrize("name", ["amq.tx.other", "amq.tx.shovel.x"])
def test_names_of_shovels_transactions_are_for_administrators(
    here: Broker, connection: shardmq.Connection, name: str
) -> None:
    connection.user_put("plain", "plain-pw")
    connection.permission_put("plain", "/", ".*", ".*", ".*")
    refused = pytest.raises(errors.AccessRefused, match="reserved prefix")
    with (
        shardmq.connect(here.url.replace("guest:guest", "plain:plain-pw")) as plain,
        plain.channel() as channel,
        refused,
    ):
        channel.transaction(name)
