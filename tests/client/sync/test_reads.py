"""Queues read in parts, with and without a reservation."""

import asyncio
from collections.abc import Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A durable queue of the test's own."""
    name = request.node.name[:200]
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


def stored(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """The bodies in a queue; they are gone then. As many as it says it has come at once, any others one by one."""
    found: list[bytes] = []
    ready = channel.queue_declare(queue, passive=True).messages
    if ready:
        for message in channel.consume(queue, prefetch=ready):
            found.append(message.body)
            message.ack()
            if len(found) == ready:
                break
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.append(message.body)
    return found


def test_a_queue_is_read_in_parts_and_reserved_parts_are_acknowledged(channel: shardmq.Channel, queue: str) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"%d" % number for number in range(2500)])
    parts = channel.queue_slices(queue, 4)
    assert sum(part.messages for part in parts) == 2500
    channel.basic_publish("", queue, b"later")

    def read(parts: list[shardmq.QueueSlice], reservation: str = "") -> list[shardmq.Message]:
        found: list[shardmq.Message] = []
        for part in parts:
            first: int | None = part.first
            while first is not None:
                messages, first = channel.queue_read(queue, first, part.end, 700, reservation)
                found += messages
        return found

    found = read(parts)
    assert [message.body for message in found] == [b"%d" % number for number in range(2500)]
    positions = [message.position for message in found]
    assert positions == sorted(positions)  # type: ignore[type-var]
    assert not any(message.redelivered for message in found)
    with pytest.raises(errors.PreconditionFailed, match="queue_read"):
        found[0].ack()

    assert channel.queue_reserve(queue, "nightly", 1000) == shardmq.Reserved(1000, False)
    mine = channel.queue_slices(queue, 2, "nightly")
    assert [message.body for message in read(mine, "nightly")] == [b"%d" % number for number in range(1000)]
    assert channel.reservation_end(queue, "nightly", True, [tuple(mine[0][:2])]) == mine[0].messages  # type: ignore[list-item]
    assert channel.reservation_end(queue, "nightly", False) == 1000 - mine[0].messages
    with pytest.raises(errors.NotFound):
        channel.reservation_end(queue, "nightly", True)
    rest = stored(channel, queue)
    assert rest == [b"%d" % number for number in range(mine[0].messages, 2500)] + [b"later"]


def test_a_queue_is_read_and_reserved_with_asyncio(channel: shardmq.Channel, broker: Broker, queue: str) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"%d" % number for number in range(10)])

    async def run() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            assert (await own.queue_reserve(queue, "mine", 6)).messages == 6
            [part] = await own.queue_slices(queue, 1, "mine")
            messages, go_on = await own.queue_read(queue, part.first, part.end, reservation="mine")
            assert ([message.body for message in messages], go_on) == ([b"%d" % number for number in range(6)], None)
            assert await own.reservation_end(queue, "mine", True) == 6
            assert (await own.queue_reserve(queue, "mine")).is_acknowledged

    asyncio.run(run())
    assert stored(channel, queue) == [b"%d" % number for number in range(6, 10)]


def test_a_name_is_used_anew_when_all_it_had_was_acknowledged(channel: shardmq.Channel, queue: str) -> None:
    assert channel.queue_reserve(queue, "batch", again=True) == shardmq.Reserved(0, False)
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    assert channel.queue_reserve(queue, "batch", 2, again=True).messages == 2
    assert channel.queue_reserve(queue, "batch", 3, again=True).messages == 2
    assert [message.body for message in channel.queue_read(queue, 0, 2**63 - 1, reservation="batch")[0]] == [b"0", b"1"]
    assert channel.reservation_end(queue, "batch", True) == 2
    assert channel.queue_reserve(queue, "batch", 2) == shardmq.Reserved(0, True)
    assert channel.queue_reserve(queue, "batch", 2, again=True) == shardmq.Reserved(2, False)
    assert [message.body for message in channel.queue_read(queue, 0, 2**63 - 1, reservation="batch")[0]] == [b"2", b"3"]
    with pytest.raises(TypeError, match="use the name anew"):
        channel.queue_reserve(queue, "batch", again=1)  # type: ignore[arg-type]
