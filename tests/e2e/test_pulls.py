"""Pulling from streams by the SDK: from anywhere, in portions, waiting for what comes."""

import asyncio
import datetime
import threading
import time
from collections.abc import Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import numbers, publish_all, until

STREAM = {"x-queue-type": "stream"}
QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


@pytest.fixture
def stream(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream with a hundred messages."""
    name = f"pulled-{request.node.name}"
    channel.queue_declare(name, durable=True, arguments=STREAM)
    publish_all(channel, name, numbers(0, 100))
    yield name
    channel.queue_delete(name)


def publish_at_last(channel: shardmq.Channel, stream: str, body: bytes) -> None:
    """Publish a message once, though its shard is away for a moment."""

    def attempt() -> bool:
        with channel.publisher(producer="once") as publisher:
            try:
                publisher.publish("", stream, body, sequence=len(body))
                publisher.flush()
            except errors.PublishRefused:
                return False
        return True

    until(attempt, "publishing")


def test_a_program_pulls_ten_messages_at_a_time_and_goes_on_where_it_was(channel: shardmq.Channel, stream: str) -> None:
    place, found = 0, []
    while (pulled := channel.pull(stream, 0, place)).messages:
        assert len(pulled) == 10
        found += [(message.offset, message.body) for message in pulled]
        place = pulled.next
    assert found == list(enumerate(numbers(0, 100)))
    assert (pulled.next, pulled.first, pulled.end) == (100, 0, 100)


def test_a_pull_begins_where_it_is_told(channel: shardmq.Channel, stream: str) -> None:
    assert [message.offset for message in channel.pull(stream, 0, "earliest", 2)] == [0, 1]
    assert channel.pull(stream, 0, "latest").next == 100
    time.sleep(0.01)
    now = datetime.datetime.now(datetime.UTC)
    time.sleep(0.01)
    publish_all(channel, stream, [b"late"])
    assert [message.body for message in channel.pull(stream, 0, now)] == [b"late"]
    hour_ago = now - datetime.timedelta(hours=1)
    assert channel.pull(stream, 0, hour_ago, 1).messages[0].offset == 0


def test_a_pull_filters_by_tags(channel: shardmq.Channel, stream: str) -> None:
    for tag in ("a", "b", "c") * 5:
        channel.basic_publish("", stream, tag.encode(), shardmq.Properties(headers={"x-stream-filter-value": tag}))
    assert [message.body for message in channel.pull(stream, 0, 0, tags=["a", "c"])] == [b"a", b"c"] * 5
    assert len(channel.pull(stream, 0, 95, 100, tags="b", has_untagged=True)) == 10


def test_offsets_out_of_range_are_an_error_that_has_the_range(channel: shardmq.Channel, stream: str) -> None:
    with pytest.raises(errors.OffsetOutOfRange, match=r"offset 101 of .* not published yet") as caught:
        channel.pull(stream, 0, 101)
    assert (caught.value.first, caught.value.end) == (0, 100)


def test_what_cannot_be_pulled_is_refused(channel: shardmq.Channel, stream: str, queue: str) -> None:
    with pytest.raises(errors.NotFound, match="no partition 1"):
        channel.pull(stream, 1, 0)
    with pytest.raises(errors.PreconditionFailed, match="neither topic nor stream"):
        channel.pull(queue, 0, 0)
    with pytest.raises(errors.NotFound):
        channel.pull("nothing-here", 0, 0)
    with pytest.raises(errors.InvalidRequest, match="not from 'middle'"):
        channel.pull(stream, 0, "middle")
    with pytest.raises(TypeError, match="no option colour"):
        channel.pull(stream, 0, 0, colour="red")  # type: ignore[call-arg]
    with pytest.raises(errors.InvalidRequest, match="wait_ms is 0 to 60000"):
        channel.pull(stream, 0, 0, wait_ms=60_001)
    with pytest.raises(errors.InvalidRequest, match="cannot be written as UTF-8"):
        channel.pull(stream, 0, 0, tags=["\ud800"])
    with pytest.raises(errors.InvalidRequest, match="a time since 1970, not from 0001-01-01"):
        channel.pull(stream, 0, datetime.datetime.min)
    message = channel.pull(stream, 0, 0).messages[0]
    with pytest.raises(errors.PreconditionFailed, match="leaves all as it is"):
        message.ack()


def test_a_message_larger_than_a_pull_comes_alone(channel: shardmq.Channel, stream: str) -> None:
    large = b"x" * 3_000_000
    publish_all(channel, stream, [large, b"small"])
    pulled = channel.pull(stream, 0, 100, bytes_max=1000)
    assert [message.body for message in pulled] == [large]
    assert [message.body for message in channel.pull(stream, 0, pulled.next, bytes_max=1000)] == [b"small"]


def test_who_waits_for_messages_holds_nobody_up_on_the_channel(channel: shardmq.Channel, stream: str) -> None:
    came: list[shardmq.Pulled] = []
    waiter = threading.Thread(target=lambda: came.append(channel.pull(stream, 0, 100, wait_ms=20_000)))
    waiter.start()
    assert not channel.pull(stream, 0, 100, wait_ms=50).messages
    channel.basic_publish("", stream, b"at last")
    waiter.join(20)
    assert [message.body for message in came[0]] == [b"at last"]


def test_a_pull_that_borrows_waits_too(channel: shardmq.Channel, stream: str) -> None:
    threading.Timer(0.2, lambda: channel.basic_publish("", stream, b"at last")).start()
    pulled = channel.pull(stream, 0, "latest", bytes_max=4_000_000, wait_ms=20_000)
    assert [(message.offset, message.body) for message in pulled] == [(100, b"at last")]


def test_a_pull_that_waits_is_carried_out_when_everything_is_back(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.queue_declare("log", durable=True, arguments=STREAM)
        came: list[shardmq.Pulled] = []
        for place, name in enumerate(("shard-0", "gateway-0")):
            waiter = threading.Thread(target=lambda at=place: came.append(channel.pull("log", 0, at, wait_ms=60_000)))
            waiter.start()
            assert not other.pull("log", 0, place, wait_ms=200).messages
            broker.kill(name)
            publish_at_last(other, "log", name.encode())
            waiter.join(60)
            assert [message.body for message in came[place]] == [name.encode()]


def test_asyncio_pulls_from_several_streams_at_once(stream: str, broker: Broker) -> None:
    async def pull() -> None:
        async with shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            waiting = [asyncio.create_task(own.pull(stream, 0, 100, wait_ms=20_000)) for _ in range(20)]
            assert len(await own.pull(stream, 0, "earliest", 1000)) == 100
            await own.basic_publish("", stream, b"at last")
            for each in waiting:
                assert [message.body for message in await each] == [b"at last"]

    asyncio.run(pull())


def test_a_channel_has_a_limit_of_pulls_that_wait(stream: str, broker: Broker) -> None:
    async def pull() -> None:
        async with shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            waiting = [asyncio.create_task(own.pull(stream, 0, 100, wait_ms=30_000)) for _ in range(1025)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await own.basic_publish("", stream, b"at last")
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            refused = [outcome for outcome in outcomes if not isinstance(outcome, shardmq.Pulled)]
            assert [type(outcome) for outcome in refused] == [errors.NotAllowed]
            assert "1024 pulls" in str(refused[0])

    asyncio.run(pull())
