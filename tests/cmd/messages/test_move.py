"""Looking at messages and moving them, on the command line."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import shardmq
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.management.moving import BATCH, Mover, copy_to

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("at")


def lines(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_peeking_shows_everything_and_leaves_everything(at: Broker, printed: Printed) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("seen", durable=True)
        properties = shardmq.Properties(content_type="application/json", headers={"n": 1, "s": "t"}, message_id="m")
        channel.basic_publish("", "seen", b'{"a":[1,2]}', properties)
        channel.basic_publish("", "seen", b"\xff\x00", shardmq.Properties(delivery_mode=1))
        channel.basic_publish("", "seen", "größer".encode())
        shown = printed("queue", "peek", "seen").decode()
        assert 'header s: "t"' in shown
        assert "message_id: m" in shown
        assert '"a": [\n' in shown
        assert "base64: /wA=" in shown
        assert "größer" in shown
        table = lines(printed("queue", "peek", "seen", "--json"))
        assert [row.get("body") for row in table] == ['{"a":[1,2]}', None, "größer"]
        assert [row["persistent"] for row in table] == [True, False, True]
        assert not any(row["redelivered"] for row in table)
        (last,) = lines(printed("queue", "peek", "seen", "--offset", "2", "--count", "1", "--json"))
        assert last["body"] == "größer"
        assert b"no ready messages" in printed("queue", "peek", "seen", "--offset", "3")
        message = channel.basic_get("seen", auto_ack=True)
        assert message is not None
        assert not message.redelivered


def test_moving_keeps_order_properties_ids_and_durability(at: Broker, parsed: Parsed) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        for name in ("from", "to"):
            channel.queue_declare(name, durable=True)
        for number in range(20):
            properties = shardmq.Properties(headers={"n": number}, delivery_mode=1 + number % 2)
            channel.basic_publish("", "from", b"%d" % number, properties)
        before = channel.queue_peek("from", count=20)
        assert parsed("queue", "move", "from", "to") == {"ok": True, "messages": 20}
        assert channel.queue_declare("from", passive=True).messages == 0
        after = channel.queue_peek("to", count=100)
        assert [message.body for message in after] == [message.body for message in before]
        assert [message.message_id for message in after] == [message.message_id for message in before]
        assert [message.persistent for message in after] == [message.persistent for message in before]
        assert [message.properties.headers for message in after] == [{"n": number} for number in range(20)]


def test_moving_some_leaves_the_rest(printed: Printed, parsed: Parsed) -> None:
    for name in ("many", "few"):
        printed("queue", "declare", name)
    printed("publish", "many", "x", "--count", "50")
    assert parsed("queue", "move", "many", "few", "--count", "30")["messages"] == 30
    counts = {row["name"]: row["ready"] for row in parsed("queue", "list")}
    assert (counts["many"], counts["few"]) == (20, 30)


def test_moving_to_an_exchange_keeps_keys_or_takes_another(at: Broker, printed: Printed) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        for name in ("origin", "left", "right"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.direct", name)
        channel.queue_bind("left", "amq.direct", "origin-key")
        for body in (b"a", b"b"):
            channel.basic_publish("", "origin", body)
        printed("queue", "move", "origin", "amq.direct", "--to-exchange", "--routing-key", "right", "--count", "1")
        channel.queue_unbind("origin", "amq.direct", "origin")
        channel.queue_bind("left", "amq.direct", "origin")
        printed("queue", "move", "origin", "amq.direct", "--to-exchange")
        assert [message.body for message in channel.queue_peek("right", count=10)] == [b"a"]
        assert [message.body for message in channel.queue_peek("left", count=10)] == [b"b"]


def test_what_no_queue_takes_stays_where_it_is(printed: Printed, parsed: Parsed, refused: Callable[..., str]) -> None:
    printed("queue", "declare", "stuck")
    printed("publish", "stuck", "x", "--count", "3")
    assert "0 messages moved before" in refused("queue", "move", "stuck", "amq.fanout", "--to-exchange")
    assert "nowhere" in refused("queue", "move", "nowhere", "stuck")
    (row,) = [row for row in parsed("queue", "list") if row["name"] == "stuck"]
    assert row["ready"] == 3


def test_moving_a_queue_to_itself_ends(printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "ring")
    printed("publish", "ring", "x", "--count", "10")
    assert parsed("queue", "move", "ring", "ring")["messages"] == 10
    (row,) = [row for row in parsed("queue", "list") if row["name"] == "ring"]
    assert row["ready"] == 10


def test_many_are_moved_in_parts_and_progress_is_told(at: Broker) -> None:
    told: list[int] = []

    async def move() -> int:
        async with aio.connect(at.url) as connection:
            mover = Mover(await connection.channel(), "large", "guest")
            return await mover.move_all(3 * BATCH, partial(copy_to, "", "larger"), told.append)

    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        for name in ("large", "larger"):
            channel.queue_declare(name, durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "large", [b"%d" % number for number in range(3 * BATCH + 1)])
        assert asyncio.run(move()) == told[-1] == 3 * BATCH
        assert len(told) >= 3
        assert channel.queue_declare("larger", passive=True).messages == 3 * BATCH
        moved = channel.queue_peek("larger", count=3 * BATCH)
        assert [int(message.body) for message in moved] == list(range(3 * BATCH))


def test_what_goes_before_a_message_that_no_queue_takes_is_moved(at: Broker, refused: Callable[..., str]) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        for name in ("mixed", "taken"):
            channel.queue_declare(name, durable=True)
        channel.queue_bind("mixed", "amq.topic", "#")
        for number in range(20):
            channel.basic_publish("amq.topic", "lost" if number == 7 else "known", b"%d" % number)
        channel.queue_unbind("mixed", "amq.topic", "#")
        channel.queue_bind("taken", "amq.topic", "known")
        assert "7 messages moved before" in refused("queue", "move", "mixed", "amq.topic", "--to-exchange")
        assert [int(message.body) for message in channel.queue_peek("taken", count=20)] == list(range(7))
        assert [int(message.body) for message in channel.queue_peek("mixed", count=20)] == list(range(7, 20))


def test_a_move_to_nowhere_is_refused_also_from_an_empty_queue(printed: Printed, refused: Callable[..., str]) -> None:
    printed("queue", "declare", "empty")
    assert "no queue 'nowhere'" in refused("queue", "move", "empty", "nowhere")
    assert "no exchange 'nowhere'" in refused("queue", "move", "empty", "nowhere", "--to-exchange")
