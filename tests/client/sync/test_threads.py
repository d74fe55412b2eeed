"""The SDK for threads against a broker."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardmq
from shardmq import errors
from shardmq.client.core.batching import PublishBatch
from shardmq.client.core.interfaces import Confirms
from shardmq.client.core.publishing.sent import SentBatches
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def queue(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A durable queue of the test's own."""
    name = request.node.name[:200]
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)
    channel.close()


@pytest.fixture
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    with connection.channel() as channel:
        yield channel


def fill(channel: shardmq.Channel, queue: str, count: int) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"%d" % number for number in range(count)])


def test_a_message_brings_all_that_was_published_with_it(channel: shardmq.Channel, queue: str) -> None:
    channel.exchange_declare("flights", "topic", durable=True)
    channel.queue_bind(queue, "flights", "UA.*.late")
    properties = shardmq.Properties(content_type="text/csv", headers={"a": [1, None, "x"]}, message_id="mine")
    channel.basic_publish("flights", "UA.EWR.late", b"1", properties)
    channel.basic_publish("flights", "UA.EWR.late", b"2", shardmq.Properties(delivery_mode=1))
    channel.queue_unbind(queue, "flights", "UA.*.late")
    channel.basic_publish("flights", "UA.EWR.late", b"unbound")
    first, second = channel.basic_get(queue), channel.basic_get(queue)
    assert first is not None
    assert second is not None
    assert channel.basic_get(queue) is None
    assert (first.body, first.properties, first.exchange) == (b"1", properties, "flights")
    assert (first.routing_key, first.redelivered, first.message_id) == ("UA.EWR.late", False, "mine")
    assert first.persistent
    assert not second.persistent
    assert len(second.message_id) > 16
    assert second.timestamp_ms >= first.timestamp_ms > 1_600_000_000_000
    first.ack()
    second.ack()
    channel.exchange_delete("flights")


def test_a_nacked_message_comes_again_at_its_place_and_marked(channel: shardmq.Channel, queue: str) -> None:
    fill(channel, queue, 3)
    first = channel.basic_get(queue)
    assert first is not None
    first.nack()
    again = channel.basic_get(queue)
    assert again is not None
    assert (again.body, again.redelivered, again.message_id) == (b"0", True, first.message_id)
    again.nack(requeue=False)
    last = channel.basic_get(queue)
    assert last is not None
    assert (last.body, last.redelivered) == (b"1", False)


def test_threads_publish_and_ack_on_one_channel_and_each_keeps_its_order(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    threads, each = 6, 3000
    with channel.publisher(window=2000) as publisher:

        def publish(thread: int) -> None:
            kinds = (None, shardmq.Properties(type="a"), shardmq.Properties(delivery_mode=1))
            for number in range(each):
                if number % 500 == 499:
                    publisher.publish_many("", queue, [b"%d %d" % (thread, number)])
                else:
                    publisher.publish("", queue, b"%d %d" % (thread, number), kinds[number // 7 % 3])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(publish, range(threads)))
    assert channel.queue_declare(queue, durable=True).messages == threads * each

    seen: dict[int, list[int]] = {thread: [] for thread in range(threads)}
    with ThreadPoolExecutor(4) as pool:
        acks = []
        for message in channel.consume(queue, prefetch=700):
            thread, number = map(int, message.body.split())
            seen[thread].append(number)
            acks.append(pool.submit(message.ack))
            if len(acks) == threads * each:
                for ack in acks:
                    ack.result()
                break
    assert all(numbers == list(range(each)) for numbers in seen.values())
    channel.close()
    with connection.channel() as other:
        assert other.basic_get(queue) is None


class PausedBatches(SentBatches):
    """Batches that are counted as sent when `go` is set; `reached` is set before."""

    def __init__(self) -> None:
        super().__init__(lambda: False)
        self.reached, self.go = threading.Event(), threading.Event()

    def add(self, batch: PublishBatch) -> Confirms:
        self.reached.set()
        assert self.go.wait(10)
        return super().add(batch)


def test_close_waits_for_what_another_thread_has_taken_to_send_and_not_yet_counted_as_sent(
    channel: shardmq.Channel, queue: str
) -> None:
    """The I/O thread sends what is due, and a program may close its publisher in just that moment."""
    publisher = channel.publisher()
    publisher._sent = sent = PausedBatches()
    with ThreadPoolExecutor(2) as pool:
        published = pool.submit(publisher.publish, "", queue, b"taken")
        assert sent.reached.wait(10)
        assert publisher.unconfirmed == 0
        closed = pool.submit(publisher.close)
        while not publisher._is_closed:
            pass
        with pytest.raises(TimeoutError):
            closed.result(0.05)
        sent.go.set()
        published.result(10)
        closed.result(10)
    assert sent.unconfirmed == 0
    assert channel.queue_declare(queue, durable=True).messages == 1


def test_what_a_left_consumer_did_not_hand_out_is_there_for_the_next(channel: shardmq.Channel, queue: str) -> None:
    fill(channel, queue, 500)
    messages = channel.consume(queue, prefetch=200)
    handed = [next(messages) for _ in range(10)]
    messages.close()  # type: ignore[attr-defined]
    assert channel.queue_declare(queue, durable=True).messages == 490
    channel.basic_ack(multiple=True)
    rest = [message.body for message in channel.consume(queue, auto_ack=True, inactivity_timeout=2.0)]
    assert [message.body for message in handed] + rest == [b"%d" % number for number in range(500)]


def test_batches_hold_every_message_once(channel: shardmq.Channel, queue: str) -> None:
    fill(channel, queue, 5000)
    bodies: list[bytes] = []
    for batch in channel.consume_batches(queue, inactivity_timeout=2.0):
        assert len(batch) == len(batch.bodies) == len(batch.messages)
        assert batch.messages[0].delivery_tag == batch.delivery_tag
        bodies += batch.bodies
        batch.ack()
    assert bodies == [b"%d" % number for number in range(5000)]
    assert channel.queue_purge(queue) == 0


def test_a_callback_runs_off_the_io_thread_and_may_use_its_channel(channel: shardmq.Channel, queue: str) -> None:
    done, threads = threading.Event(), set()

    def callback(message: shardmq.Message) -> None:
        threads.add(threading.current_thread().name)
        message.ack()
        if int(message.body) < 50:
            channel.basic_publish("", queue, b"%d" % (int(message.body) + 100))
        if message.body == b"149":
            channel.basic_cancel(tag)
            done.set()

    fill(channel, queue, 50)
    tag = channel.basic_consume(queue, callback, prefetch=10, consumer_tag="mine")
    assert tag == "mine"
    assert done.wait(10)
    assert all(name.startswith("shardmq worker") for name in threads)
    assert channel.queue_declare(queue, durable=True).consumers == 0


def test_a_callback_that_raises_closes_its_channel_which_says_so(
    connection: shardmq.Connection, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = connection.channel()
    fill(channel, queue, 3)
    raised = threading.Event()

    def callback(_: shardmq.Message) -> None:
        raised.set()
        raise ZeroDivisionError("my own fault")

    channel.basic_consume(queue, callback, on_error="close")
    assert raised.wait(10)
    with pytest.raises(errors.ChannelError, match="my own fault"):
        list(iter(lambda: channel.queue_declare(queue, durable=True), None))
    assert "a handler raised: message" in caplog.text
    with connection.channel() as other:
        bodies = [message.body for message in other.consume(queue, auto_ack=True, inactivity_timeout=2.0)]
    assert bodies == [b"0", b"1", b"2"]


def test_refused_publishes_surface_at_flush_with_their_count_and_the_publisher_lives_on(
    channel: shardmq.Channel, queue: str
) -> None:
    publisher = channel.publisher()
    publisher.publish_many("no such exchange", "k", [b"1", b"2"])
    publisher.publish("", queue, b"good")
    with pytest.raises(errors.NotFound, match=r"2 messages were refused.*no such exchange"):
        publisher.flush()
    publisher.publish("", queue, b"better")
    publisher.close()
    assert channel.queue_declare(queue, durable=True).messages == 2
    with pytest.raises(errors.ChannelError, match="publisher is closed"):
        publisher.publish("", queue, b"late")
    with pytest.raises(errors.NotFound):
        channel.basic_publish("no such exchange", "k", b"")


def test_an_unknown_delivery_tag_closes_the_channel_and_no_other(connection: shardmq.Connection) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.basic_ack(7)
    with pytest.raises(errors.ChannelError, match="unknown delivery tag 7"):
        channel.basic_get("whatever")
    assert not channel.is_open
    assert connection.topology("exchanges")
    other.close()


def test_an_ack_without_another_request_reaches_the_broker_by_itself(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    fill(channel, queue, 2)
    message = channel.basic_get(queue)
    assert message is not None
    message.ack()
    for _ in range(500):
        [counts] = [table for table in connection.status()["queues"] if table["name"] == queue]
        if counts["unacked"] == 0:
            break
    assert counts["unacked"] == 0
    assert counts["ready"] == 1


def test_acking_what_came_with_auto_ack_is_refused_here(channel: shardmq.Channel, queue: str) -> None:
    fill(channel, queue, 1)
    message = channel.basic_get(queue, auto_ack=True)
    assert message is not None
    with pytest.raises(errors.PreconditionFailed, match="auto_ack"):
        message.ack()


def test_prefetch_bounds_what_is_unacked_and_can_be_changed(channel: shardmq.Channel, queue: str) -> None:
    fill(channel, queue, 100)
    arrived: Counter[str] = Counter()
    ten, thirty = threading.Event(), threading.Event()

    def callback(_: shardmq.Message) -> None:
        arrived["all"] += 1
        if arrived["all"] == 10:
            ten.set()
        if arrived["all"] == 30:
            thirty.set()

    tag = channel.basic_consume(queue, callback, prefetch=10)
    assert ten.wait(10)
    assert channel.queue_declare(queue, durable=True).messages == 90
    channel.basic_qos(tag, 30)
    assert thirty.wait(10)
    assert channel.queue_declare(queue, durable=True).messages == 70


def test_a_message_of_the_largest_size_travels(channel: shardmq.Channel, queue: str) -> None:
    body = bytes(16 << 20)
    channel.basic_publish("", queue, body)
    message = channel.basic_get(queue, auto_ack=True)
    assert message is not None
    assert message.body == body
    with pytest.raises(errors.ContentTooLarge):
        channel.basic_publish("", queue, body + b"x")


def test_wrong_credentials_and_hosts_are_refused(broker: Broker) -> None:
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(broker.url.replace("guest:guest", "guest:wrong"))
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(broker.url + "nowhere")


def test_a_program_that_ends_with_a_loop_left_half_way_ends_in_silence(
    broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    """The interpreter ends both iterators, with no frame of the program's below them."""
    fill(channel, queue, 10)
    program = (
        "import shardmq, sys\n"
        "iterators = []\n"
        "for is_closed in (True, False):\n"
        "    connection = shardmq.connect(sys.argv[1])\n"
        "    iterators.append(connection.channel().consume(sys.argv[2], prefetch=3))\n"
        "    next(iterators[-1]).ack()\n"
        "    if is_closed:\n"
        "        connection.close()\n"
    )
    run = [sys.executable, "-c", program, broker.url, queue]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
