"""Streams by the SDK: read from anywhere, by many, and read on after whatever was lost."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import PATIENCE_SECONDS, numbers, publish_all, until

STREAM = {"x-queue-type": "stream"}
QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
PORTION = 400
MESSAGES = 5 * PORTION


@pytest.fixture
def stream(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream with a hundred messages."""
    name = f"stream-{request.node.name}"
    channel.queue_declare(name, durable=True, arguments=STREAM)
    publish_all(channel, name, numbers(0, 100))
    yield name
    channel.queue_delete(name)


def read(channel: shardmq.Channel, stream: str, seconds: float = 1.0, **arguments: Any) -> list[tuple[int, bytes]]:
    """All that is there from an offset on."""
    told = {"x-stream-offset": "first", **{name.replace("_", "-"): value for name, value in arguments.items()}}
    found = []
    for message in channel.consume(stream, arguments=told, inactivity_timeout=seconds):
        assert message.offset is not None
        found.append((message.offset, message.body))
        message.ack()
    return found


def test_messages_tell_their_offsets(channel: shardmq.Channel, stream: str) -> None:
    assert read(channel, stream) == list(enumerate(numbers(0, 100)))
    assert read(channel, stream, x_stream_offset=90) == list(enumerate(numbers(90, 100), 90))
    message = next(iter(channel.consume(stream, arguments={"x-stream-offset": 7})))
    assert message.properties.headers == {"x-stream-offset": 7}


def test_many_readers_with_windows_of_any_size_get_all_of_it(
    connection: shardmq.Connection, channel: shardmq.Channel, stream: str
) -> None:
    rounds, sizes = 40, (10, 100, 3000, 40_000)
    bodies = numbers(0, 100)
    for number in range(rounds):
        portion = [b"%d " % number + bytes([place]) * sizes[(number + place) % 4] for place in range(25)]
        publish_all(channel, stream, portion)
        bodies += portion
    found: dict[int, list[tuple[int, bytes]]] = {}

    def read_some(prefetch: int) -> None:
        own = connection.channel()
        begin, got = prefetch % 50, []
        for batch in own.consume_batches(stream, prefetch=prefetch, arguments={"x-stream-offset": begin}):
            assert batch.offset is not None
            got += list(enumerate(batch.bodies, batch.offset))
            batch.ack()
            if got[-1][0] + 1 >= len(bodies):
                break
        found[prefetch] = got
        own.close()

    prefetches = (0, 1, 7, 60, 300, 1000)
    threads = [threading.Thread(target=read_some, args=(prefetch,)) for prefetch in prefetches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    for prefetch in prefetches:
        begin = prefetch % 50
        assert found[prefetch] == list(enumerate(bodies))[begin:], f"the reader with a prefetch of {prefetch}"


def test_batches_are_read_without_acknowledgements(channel: shardmq.Channel, stream: str) -> None:
    bodies: list[bytes] = []
    arguments = {"x-stream-offset": 10}
    for batch in channel.consume_batches(stream, auto_ack=True, arguments=arguments, inactivity_timeout=1.0):
        assert batch.offset == 10 + len(bodies)
        bodies += batch.bodies
    assert bodies == numbers(10, 100)


def test_queues_have_no_offsets(channel: shardmq.Channel, queue: str) -> None:
    channel.basic_publish("", queue, b"x")
    message = channel.basic_get(queue)
    assert message is not None
    assert message.offset is None
    message.ack()


def test_messages_are_filtered_by_their_tags(channel: shardmq.Channel, stream: str) -> None:
    for tag in ("a", "b", "c") * 10:
        channel.basic_publish("", stream, tag.encode(), shardmq.Properties(headers={"x-stream-filter-value": tag}))
    assert [body for _, body in read(channel, stream, x_stream_filter=["a", "c"])] == [b"a", b"c"] * 10
    everything = read(channel, stream, x_stream_filter="b", x_stream_match_unfiltered=True)
    assert [body for _, body in everything] == [*numbers(0, 100), *[b"b"] * 10]


def test_what_would_take_messages_out_is_refused(channel: shardmq.Channel, stream: str) -> None:
    for attempt in (
        lambda: channel.basic_get(stream),
        lambda: channel.queue_purge(stream),
        lambda: channel.queue_reserve(stream, "mine"),
    ):
        with pytest.raises(errors.RequestError, match="not supported by stream queues") as refused:
            attempt()
        assert refused.value.code == 540
    with pytest.raises(errors.PreconditionFailed, match="x-stream-offset"):
        channel.basic_consume(stream, lambda _: None, arguments={"x-stream-offset": "begin"})
    assert len(read(channel, stream)) == 100


def test_a_stream_is_looked_at_and_read_in_slices(channel: shardmq.Channel, stream: str) -> None:
    assert [message.body for message in channel.queue_peek(stream, 3, 5)] == numbers(3, 8)
    slices = channel.queue_slices(stream, 4)
    assert [each.messages for each in slices] == [25] * 4
    bodies = []
    for each in slices:
        messages, following = channel.queue_read(stream, each.first, each.end)
        assert following is None
        assert [message.position for message in messages] == list(range(each.first, each.end))
        bodies += [message.body for message in messages]
    assert bodies == numbers(0, 100)


def test_transactions_append_to_streams(channel: shardmq.Channel, stream: str) -> None:
    with channel.transaction(f"of-{stream}") as transaction:
        for body in numbers(100, 110):
            transaction.publish("", stream, body)
        assert len(read(channel, stream, 0.5)) == 100
    assert read(channel, stream, x_stream_offset=100) == list(enumerate(numbers(100, 110), 100))


@pytest.mark.parametrize("victim", ["gateway-0", "shard-0"])
def test_a_reader_reads_on_after_a_process_was_killed(start_broker: StartBroker, victim: str) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, recovery=QUICK, timeout=40) as connection:
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments=STREAM)
        publishing = threading.Thread(target=_publish_numbered, args=(broker, victim))
        offsets: list[int] = []
        bodies: list[bytes] = []
        messages = channel.consume("s", prefetch=50, inactivity_timeout=60, arguments={"x-stream-offset": "next"})
        publishing.start()
        for message in messages:
            assert message.offset is not None
            offsets.append(message.offset)
            bodies.append(message.body)
            message.ack()
            if len(bodies) == MESSAGES:
                break
        publishing.join()
    assert offsets == list(range(MESSAGES)), "something was skipped, or came twice"
    # What was refused while the process was away, and published again, is behind what was published meanwhile.
    assert sorted(bodies, key=int) == numbers(0, MESSAGES)


def _publish_numbered(broker: Broker, victim: str) -> None:
    """Publish numbered messages, which the stream takes once each, and kill a process twice meanwhile."""
    with shardmq.connect(broker.url, recovery=QUICK, timeout=40) as connection:
        channel = connection.channel()
        for start in range(0, MESSAGES, PORTION):
            if start in (2 * PORTION, 4 * PORTION):
                broker.kill(victim)
            while not _is_published(channel, start):
                time.sleep(0.05)


def _is_published(channel: shardmq.Channel, start: int) -> bool:
    """Publish a portion; returns whether all of it is confirmed."""
    try:
        with channel.publisher(producer="numbered") as publisher:
            for number, body in enumerate(numbers(start, start + PORTION), start):
                publisher.publish("", "s", body, sequence=number)
    except (errors.PublishRefused, errors.Unavailable):
        return False
    return True


def test_coroutines_read_on_after_their_gateway_was_killed(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)

    async def run() -> list[int | None]:
        async with await shardmq.aio.connect(broker.url, recovery=QUICK, timeout=40) as connection:
            channel = await connection.channel()
            await channel.queue_declare("s", durable=True, arguments=STREAM)
            for body in numbers(0, 60):
                await channel.basic_publish("", "s", body)
            offsets: list[int | None] = []
            async for message in channel.consume("s", prefetch=10, arguments={"x-stream-offset": "first"}):
                offsets.append(message.offset)
                message.ack()
                if len(offsets) == 30:
                    broker.kill("gateway-0")
                if len(offsets) == 60:
                    return offsets
            return offsets

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS)) == list(range(60))


def test_definitions_carry_streams(broker: Broker, start_broker: StartBroker) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.channel().queue_declare("carried", durable=True, arguments={**STREAM, "x-max-age": "7D"})
        exported = connection.definitions_export()
        connection.channel().queue_delete("carried")
    other = start_broker(shards=1)
    with shardmq.connect(other.url) as connection:
        report = connection.definitions_import(exported)
        assert not [sentence for sentence in report["skipped"] if "carried" in sentence]
        channel = connection.channel()
        channel.basic_publish("", "carried", b"x", mandatory=True)
        until(lambda: read(channel, "carried", 0.3) == [(0, b"x")], "the imported stream is one")
