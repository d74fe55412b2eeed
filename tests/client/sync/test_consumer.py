"""Handlers on worker threads: what one of them does costs nobody else anything."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest

import shardmq
from shardmq import errors
from shardmq.client.api.defaults import UNDELIVERED_BYTES_MAX
from shardmq.client.core.dispatch import FrameDispatcher
from shardmq.client.sync.workers import SerialExecutor, WorkerPool
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url, heartbeat=1) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    with connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel: shardmq.Channel) -> str:
    return channel.queue_declare(exclusive=True).queue


def test_a_handler_that_blocks_starves_neither_heartbeats_nor_other_channels(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    lost: list[errors.ShardmqError] = []
    connection.on_lost(lost.append)
    release, blocked, others = threading.Event(), threading.Event(), threading.Semaphore(0)

    def block(message: shardmq.Message) -> None:
        blocked.set()
        release.wait(20)
        message.ack()

    channel.basic_consume(queue, block)
    channel.basic_publish("", queue, b"")
    assert blocked.wait(10)
    with connection.channel() as other:
        elsewhere = other.queue_declare(exclusive=True).queue
        other.basic_consume(elsewhere, lambda message: (message.ack(), others.release()))
        until = time.monotonic() + 3  # three heartbeats, of which two are fatal
        while time.monotonic() < until:
            other.basic_publish("", elsewhere, b"x")
            assert others.acquire(timeout=1)
    release.set()
    assert lost == []


def test_a_channels_handlers_run_one_at_a_time_and_in_order(channel: shardmq.Channel) -> None:
    queues = [channel.queue_declare(exclusive=True).queue for _ in range(2)]
    inside = threading.Lock()
    seen: list[bytes] = []
    done = threading.Event()

    def handle(message: shardmq.Message) -> None:
        assert inside.acquire(blocking=False)
        seen.append(message.body)
        message.ack()
        inside.release()
        if len(seen) == 600:
            done.set()

    for queue in queues:
        channel.basic_consume(queue, handle, prefetch=20)
    with channel.publisher() as publisher:
        for number in range(300):
            for queue in queues:
                publisher.publish("", queue, b"%s %d" % (queue.encode(), number))
    assert done.wait(20)
    for queue in queues:
        mine = [int(body.split()[1]) for body in seen if body.startswith(queue.encode())]
        assert mine == list(range(300))


def test_a_handler_that_raises_when_its_connection_is_closed_is_logged_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    handling, closed = threading.Event(), threading.Event()

    def handle(_message: shardmq.Message) -> None:
        handling.set()
        closed.wait(10)
        raise ValueError("too late")

    before = set(threading.enumerate())
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.basic_publish("", queue, b"1")
        channel.basic_consume(queue, handle)
        assert handling.wait(10)
        workers = set(threading.enumerate()) - before
    closed.set()
    for worker in workers:
        worker.join(10)
    said = [record.getMessage() for record in caplog.records if record.name == "shardmq.client"]
    assert len(said) == 1
    assert said[0].endswith("it returns to its queue, as its channel is closed")


def test_a_message_whose_handler_raised_comes_again_after_a_pause_and_is_logged(
    channel: shardmq.Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []
    again = threading.Event()

    def handle(message: shardmq.Message) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ZeroDivisionError("once")
        message.ack()
        again.set()

    channel.basic_consume(queue, handle, consumer_tag="failing")
    channel.basic_publish("", queue, b"x", shardmq.Properties(message_id="number-7"))
    assert again.wait(10)
    assert 0.9 < times[1] - times[0] < 5
    assert "message number-7" in caplog.text
    assert "consumer 'failing'" in caplog.text
    assert queue in caplog.text
    assert "ZeroDivisionError: once" in caplog.text


def test_rejecting_is_a_policy_and_what_was_acked_before_is_left_alone(channel: shardmq.Channel, queue: str) -> None:
    seen: list[bytes] = []
    done = threading.Event()

    def handle(message: shardmq.Message) -> None:
        seen.append(message.body)
        if message.body == b"acked":
            message.ack()
        if message.body == b"last":
            message.ack()
            done.set()
            return
        raise ZeroDivisionError

    channel.basic_consume(queue, handle, on_error="reject")
    for body in (b"rejected", b"acked", b"last"):
        channel.basic_publish("", queue, body)
    assert done.wait(10)
    assert seen == [b"rejected", b"acked", b"last"]
    assert channel.queue_declare(queue, passive=True).messages == 0


def test_a_policy_that_does_not_exist_is_refused(channel: shardmq.Channel, queue: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="on_error is 'requeue', 'reject' or 'close'"):
        channel.basic_consume(queue, print, on_error="ignore")  # type: ignore[arg-type]


def test_close_returns_though_a_handler_does_not(broker: Broker) -> None:
    release, blocked = threading.Event(), threading.Event()
    connection = shardmq.connect(broker.url)
    channel = connection.channel()
    queue = channel.queue_declare(exclusive=True).queue

    def block(_: shardmq.Message) -> None:
        blocked.set()
        release.wait(20)

    channel.basic_consume(queue, block)
    channel.basic_publish("", queue, b"")
    assert blocked.wait(10)
    began = time.monotonic()
    connection.close()
    assert time.monotonic() - began < 3
    release.set()


def test_a_handler_may_close_its_connection(broker: Broker) -> None:
    closed = threading.Event()
    connection = shardmq.connect(broker.url)
    channel = connection.channel()
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_consume(queue, lambda _: (connection.close(), closed.set()))
    channel.basic_publish("", queue, b"")
    assert closed.wait(10)
    assert not connection.is_open


def test_a_job_waits_for_no_other_while_there_may_be_more_threads() -> None:
    workers = WorkerPool(8, "worker")
    over = threading.Event()
    try:
        for _ in range(200):
            ran = threading.Event()
            workers.do(ran.set)  # its thread is about to be idle, or on its way to
            assert ran.wait(10)
            busy, released = threading.Event(), threading.Event()
            workers.do(lambda busy=busy, released=released: (busy.set(), released.wait(10)))  # type: ignore[misc]
            workers.do(over.set)
            assert over.wait(10)
            assert busy.wait(10)
            over.clear()
            released.set()
    finally:
        workers.stop()


def test_a_strand_goes_on_after_what_it_does_when_idle_has_raised(caplog: pytest.LogCaptureFixture) -> None:
    workers = WorkerPool(1, "worker")
    done = threading.Semaphore(0)

    def raise_fault() -> None:
        raise asyncio.CancelledError("the channel is gone")

    strand = SerialExecutor(workers, raise_fault)
    with caplog.at_level(logging.CRITICAL):
        for _ in range(3):
            strand.do(done.release)
            assert done.acquire(timeout=10)
    workers.stop()


def test_strands_share_few_threads_and_keep_their_order(caplog: pytest.LogCaptureFixture) -> None:
    workers = WorkerPool(3, "worker")
    strands = [SerialExecutor(workers) for _ in range(10)]
    seen: list[list[int]] = [[] for _ in strands]
    names: set[str] = set()
    done = threading.Semaphore(0)

    def job(strand: int, number: int) -> None:
        names.add(str(threading.get_ident()))
        seen[strand].append(number)
        done.release()
        if number == 50:
            raise ZeroDivisionError("one of many")

    with caplog.at_level(logging.CRITICAL):
        for number in range(200):
            for place, strand in enumerate(strands):
                strand.do(lambda place=place, number=number: job(place, number))  # type: ignore[misc]
        for _ in range(2000):
            assert done.acquire(timeout=10)
    assert seen == [list(range(200))] * 10
    assert 1 <= len(names) <= 3
    workers.stop()


def test_an_iterator_that_the_garbage_collector_ends_under_a_lock_of_the_library_holds_nobody_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did when it ran out in the thread that reads: that waited for a lock that it had itself."""
    receive = FrameDispatcher.receive
    is_due = False

    def collect_and_receive(dispatcher: FrameDispatcher, data: memoryview) -> None:
        nonlocal is_due
        if is_due:
            is_due = False
            gc.collect()
        receive(dispatcher, data)

    monkeypatch.setattr(FrameDispatcher, "receive", collect_and_receive)
    with shardmq.connect(broker.url, timeout=10) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.basic_publish("", queue, b"seen")
        channel.basic_publish("", queue, b"unseen")
        gc.disable()
        try:
            cycle: list[object] = [channel.consume(queue, prefetch=10)]
            assert next(cast("Iterator[shardmq.Message]", cycle[0])).body == b"seen"
            cycle.append(cycle)
            del cycle
            is_due = True
            assert channel.queue_declare(queue, passive=True).consumers == 1
            assert not is_due
        finally:
            gc.enable()
        deadline = time.monotonic() + 10
        while (found := channel.queue_declare(queue, passive=True)).consumers or not found.messages:
            assert time.monotonic() < deadline, found
            time.sleep(0.01)
        assert (message := channel.basic_get(queue)) is not None
        assert message.body == b"unseen"


def test_channels_that_end_with_messages_nobody_took_do_not_stop_other_consumers(
    connection: shardmq.Connection, queue: str
) -> None:
    """So much is taken in advance, and no more: what an ended channel had does not count."""
    body = bytes(4 << 20)
    count = UNDELIVERED_BYTES_MAX // len(body) + 2
    left = connection.channel()
    messages = left.consume(queue, prefetch=count)
    with connection.channel().publisher() as publisher:
        publisher.publish_many("", queue, [body] * count)
    while connection._core.state.undelivered < UNDELIVERED_BYTES_MAX:
        time.sleep(0.005)
    left.close()
    all_there, got = threading.Event(), [0]

    def handle(message: shardmq.Message) -> None:
        message.ack()
        got[0] += 1
        if got[0] == count:
            all_there.set()

    connection.channel().basic_consume(queue, handle, prefetch=2)
    assert all_there.wait(20), f"{got[0]} of {count} came"
    messages.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_a_handler_raises_the_next_message_is_handled(
    channel: shardmq.Channel, queue: str, caplog: pytest.LogCaptureFixture, fault: BaseException
) -> None:
    handled = threading.Event()

    def handle(message: shardmq.Message) -> None:
        if message.body == b"first":
            raise fault
        message.ack()
        handled.set()

    channel.basic_consume(queue, handle, on_error="reject")
    channel.basic_publish("", queue, b"first")
    channel.basic_publish("", queue, b"second")
    assert handled.wait(10)
    assert "a handler raised" in caplog.text
