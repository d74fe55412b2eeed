"""One thread publishes while another one flushes, closes or commits: what was taken is stored, or somebody is told."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from functools import partial
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.client.sync import publisher as publisher_module
from shardmq.client.sync.publisher import Publisher
from shardmq.cmd.run.broker import Broker
from tests.client.stepping import Step

TYPED, OTHER = shardmq.Properties(type="a"), shardmq.Properties(type="b")


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    with connection.channel() as channel:
        yield channel


def is_taken(
    line: int, publisher: Publisher, act: Callable[[], object], publish: Callable[[], None]
) -> tuple[bool, bool]:
    """Publish, while another thread does something before a line of it; returns whether it was taken, and it did."""
    step = Step([publisher_module], [publisher._lock, publisher._transport.lock], line, act)
    with step.tracing():
        try:
            publish()
        except (errors.ChannelError, errors.PreconditionFailed):
            return False, step.has_acted
    return True, step.has_acted


Publish = Callable[[Any, str], None]

PUBLISHES: dict[str, Publish] = {
    "like the one before": lambda publisher, queue: publisher.publish("", queue, b"late"),
    "with other properties": lambda publisher, queue: publisher.publish("", queue, b"late", OTHER),
    "mandatory": lambda publisher, queue: publisher.publish("", queue, b"late", mandatory=True),
    "many": lambda publisher, queue: publisher.publish_many("", queue, [b"late"]),
    "keyed": lambda publisher, queue: publisher.publish_keyed("", [(queue, b"late")]),
}


@pytest.mark.parametrize("name", PUBLISHES)
def test_what_is_published_while_another_thread_closes_the_publisher_is_confirmed_or_refused(
    channel: shardmq.Channel, name: str
) -> None:
    publish = PUBLISHES[name]
    queue = channel.queue_declare(exclusive=True).queue
    stored = line = taken = 0
    while True:
        line += 1
        publisher = channel.publisher()
        publisher.publish("", queue, b"first")
        was_taken, has_acted = is_taken(line, publisher, publisher.close, partial(publish, publisher, queue))
        publisher.close()
        taken += was_taken
        stored += 1 + was_taken
        assert channel.queue_declare(queue, passive=True).messages == stored, f"before line {line}"
        if not has_acted:
            break
    assert line > 5
    assert 0 < taken < line


@pytest.mark.parametrize("name", ["like the one before", "with other properties", "many"])
def test_what_is_published_while_another_thread_commits_is_committed_or_refused(
    channel: shardmq.Channel, name: str
) -> None:
    publish = PUBLISHES[name]
    queue = channel.queue_declare(exclusive=True).queue
    stored = line = 0
    while True:
        line += 1
        transaction = channel.transaction(f"{name} {line}")
        transaction.publish("", queue, b"first")
        was_taken, has_acted = is_taken(
            line, transaction._publisher, transaction.commit, partial(publish, transaction, queue)
        )
        assert transaction.commit()
        stored += 1 + was_taken
        assert channel.queue_declare(queue, passive=True).messages == stored, f"before line {line}"
        if not has_acted:
            break
    assert line > 5


def test_a_flush_waits_for_its_own_messages_however_many_others_are_confirmed_meanwhile(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    """A shard that answers late, and another one that does not."""
    names = [channel.queue_declare(f"queue-{number}", exclusive=True).queue for number in range(12)]
    shards = {row["name"]: row["shard"] for row in connection.topology("queues")}
    slow = next(name for name in names if shards[name] == 0)
    quick = next(name for name in names if shards[name] != 0)
    with channel.publisher() as publisher, ThreadPoolExecutor(1) as pool:
        publisher.publish("", quick, b"1")
        publisher.flush()
        broker.kill("shard-0", signal.SIGSTOP)
        try:
            publisher.publish("", slow, b"mine")
            flushed = pool.submit(publisher.flush, 20)
            while not publisher._sent._waiters:
                time.sleep(0.005)
            for number in range(5):
                publisher.publish("", quick, b"%d" % number)
            while channel.queue_declare(quick, passive=True).messages < 6:
                time.sleep(0.005)
            with pytest.raises(StillWaiting):
                flushed.result(0.05)
        finally:
            broker.kill("shard-0", signal.SIGCONT)
        flushed.result(20)
        assert channel.queue_declare(slow, passive=True).messages == 1
