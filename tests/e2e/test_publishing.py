"""What a publisher hears: confirms, returns, refusals; and that sending again stores once."""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest

import shardmq
from shardmq import aio, errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, numbers, until


def test_a_mandatory_message_that_no_queue_takes_comes_back(channel: shardmq.Channel) -> None:
    with pytest.raises(errors.Unroutable) as returned:
        channel.basic_publish("amq.direct", "nobody", b"back", mandatory=True)
    assert returned.value.code == errors.ReplyCode.NO_ROUTE
    channel.basic_publish("amq.direct", "nobody", b"dropped")


def test_a_publisher_without_a_hook_hears_of_returns_when_it_flushes(channel: shardmq.Channel, queue: str) -> None:
    publisher = channel.publisher()
    publisher.publish("", queue, b"taken", mandatory=True)
    publisher.publish("", "no-such-queue", b"returned", mandatory=True)
    with pytest.raises(errors.Unroutable):
        publisher.flush()
    publisher.close()
    assert bodies(channel, queue) == [b"taken"]


def test_nobody_publishes_in_anothers_name(channel: shardmq.Channel, queue: str) -> None:
    with pytest.raises(errors.PreconditionFailed, match=r"user_id.*'mallory'.*'guest'"):
        channel.basic_publish("", queue, b"", shardmq.Properties(user_id="mallory"))
    with pytest.raises(errors.PreconditionFailed, match="user_id"), channel.publisher() as publisher:
        publisher.publish("", queue, b"", shardmq.Properties(user_id="mallory"))
    channel.basic_publish("", queue, b"signed", shardmq.Properties(user_id="guest"))
    assert bodies(channel, queue) == [b"signed"]


def test_alternating_priorities_keep_one_order_in_a_plain_queue_and_one_each_where_they_count(
    channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_declare("urgent", arguments={"x-max-priority": 3}, durable=True)
    turns = [None, *[shardmq.Properties(priority=priority) for priority in (0, 1, 3, 200)]]
    levels = [0, 0, 1, 3, 3]  # without a priority, and above the highest
    try:
        for name in (queue, "urgent"):
            with channel.publisher() as publisher:
                for number in range(2000):
                    publisher.publish("", name, b"%d" % number, turns[number % 5])
        assert [int(body) for body in bodies(channel, queue)] == list(range(2000))
        assert [int(body) for body in bodies(channel, "urgent")] == sorted(
            range(2000), key=lambda number: (-levels[number % 5], number)
        )
    finally:
        channel.queue_delete("urgent")


def test_unconfirmed_publishes_are_sent_again_and_stored_once(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for name in ("one", "two"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
        with channel.publisher(window=5000) as publisher:
            for number in range(60_000):
                publisher.publish("amq.fanout", "", b"%d" % number)
                if number in (10_000, 30_000):
                    broker.kill("gateway-0")
        for name in ("one", "two"):
            stored: list[bytes] = []
            for batch in channel.consume_batches(name, inactivity_timeout=2):
                stored += batch.bodies
                batch.ack()
            assert sorted(map(int, stored)) == list(range(60_000))


def test_a_sequence_is_remembered_over_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    for _ in range(2):
        with shardmq.connect(broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            with channel.publisher(producer="loader") as publisher:
                for number in range(100):
                    publisher.publish("", "q", b"%d" % number, sequence=number + 1)
        broker.kill_everything()
        broker.start()
    with shardmq.connect(broker.url) as connection:
        assert bodies(connection.channel(), "q") == numbers(0, 100)


def test_publishers_wait_while_the_broker_runs_short_and_consumers_go_on(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, timeout=2) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "q", numbers(0, 10))
    broker.stop()
    tight = Broker(broker.data_dir, shards=1, options=["--disk-free-limit", "1000TB"])
    try:
        tight.start()
        reasons: list[str] = []
        with shardmq.connect(tight.url, timeout=2) as connection:
            connection.on_blocked(reasons.append)
            channel = connection.channel()
            with pytest.raises(errors.Timeout, match="disk"):
                channel.basic_publish("", "q", b"blocked")
            until(lambda: reasons, "the hook was called")
            assert bodies(channel, "q")[:10] == numbers(0, 10)
    finally:
        tight.close()


Headers = dict[str, Any]
ROUTES = {"a queue": [("", 0)], "two queues": [("", 0), ("", 1)], "an exchange": [("amq.topic", 0), ("amq.topic", 1)]}


def changes() -> Iterator[tuple[shardmq.Properties, Headers]]:
    """Properties whose headers change from message to message, or do not, and what the headers are at the time."""
    headers: Headers = {}
    properties, others = shardmq.Properties(headers=headers), shardmq.Properties(headers={"n": "of another"})
    for number in range(120):
        if number % 3:
            headers["n"] = number
        if number % 10 == 5:
            headers["is"] = True
        elif number % 10 == 6:
            headers["is"] = 1
        elif number % 10 == 8:
            del headers["is"]
        if 40 <= number < 80:
            headers.setdefault("way", []).append(number)
        elif number == 80:
            headers.clear()
        chosen = others if number % 13 > 10 else properties
        yield chosen, copy.deepcopy(chosen.headers or {})


def stored(channel: shardmq.Channel, queues: list[str]) -> dict[int, str]:
    """By the number that is its body, the headers of each message, as they are written: 1 is not True."""
    found: dict[int, str] = {}
    for queue in queues:
        while (message := channel.basic_get(queue, auto_ack=True)) is not None:
            found[int(message.body)] = repr(message.properties.headers or {})
    return found


@pytest.fixture
def queues(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Two queues, which amq.topic leads to by their names."""
    names = [f"{request.node.name[:200]}-{number}" for number in range(2)]
    for name in names:
        channel.queue_declare(name)
        channel.queue_bind(name, "amq.topic", name)
    yield names
    for name in names:
        channel.queue_delete(name)


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("mandatory", [False, True])
def test_each_message_has_the_headers_of_the_moment_in_which_it_was_published(
    channel: shardmq.Channel, queues: list[str], route: list[tuple[str, int]], mandatory: bool
) -> None:
    expected = []
    with channel.publisher() as publisher:
        for number, (properties, headers) in enumerate(changes()):
            exchange, place = route[number % len(route)]
            publisher.publish(exchange, queues[place], b"%d" % number, properties, mandatory)
            expected.append(repr(headers))
    found = stored(channel, queues)
    assert [found[number] for number in range(len(expected))] == expected


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_with_asyncio_each_message_has_the_headers_of_its_moment(
    broker: Broker, channel: shardmq.Channel, queues: list[str], route: list[tuple[str, int]]
) -> None:
    expected = []

    async def run() -> None:
        async with (
            aio.connect(broker.url) as connection,
            connection.channel() as own,
            own.publisher() as publisher,
        ):
            for number, (properties, headers) in enumerate(changes()):
                exchange, place = route[number % len(route)]
                await publisher.publish(exchange, queues[place], b"%d" % number, properties)
                expected.append(repr(headers))

    asyncio.run(run())
    found = stored(channel, queues)
    assert [found[number] for number in range(len(expected))] == expected


def test_a_header_that_cannot_be_written_costs_its_own_message_alone(channel: shardmq.Channel, queue: str) -> None:
    headers: Headers = {"n": 1}
    properties = shardmq.Properties(headers=headers)
    with channel.publisher() as publisher:
        for _ in range(10):
            publisher.publish("", queue, b"x", properties)
        headers["n"] = object()
        with pytest.raises(TypeError):
            publisher.publish("", queue, b"never", properties)
        headers["n"] = 2
        publisher.publish("", queue, b"x", properties)
    assert bodies(channel, queue) == [b"x"] * 11
