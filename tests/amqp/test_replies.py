"""Direct reply-to: answers to requests without a queue of one's own, from any client at any gateway."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import NotFound, ShardmqError

from .conftest import amqp_url

SECONDS = 30.0
REPLY_TO = "amq.rabbitmq.reply-to"


class Requester:
    """A channel that asks, and takes answers directly."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.came: list[tuple[str, bytes, pika.BasicProperties]] = []
        self.tag = channel.basic_consume(REPLY_TO, self._note, auto_ack=True)

    def _note(self, _: object, method: pika.spec.Basic.Deliver, found: pika.BasicProperties, body: bytes) -> None:
        self.came.append((method.routing_key, body, found))

    def ask(self, queue: str, body: bytes, **properties: str) -> None:
        self.channel.basic_publish("", queue, body, pika.BasicProperties(reply_to=REPLY_TO, **properties))

    def answers(self, count: int) -> list[bytes]:
        deadline = time.monotonic() + SECONDS
        while len(self.came) < count:
            assert time.monotonic() < deadline, f"only {self.came} came"
            self.channel.connection.process_data_events(1)
        return [body for _, body, _ in self.came]


@pytest.fixture
def other(url: str) -> Iterator[BlockingChannel]:
    """A channel of another connection."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def requester(url: str) -> Iterator[Requester]:
    """On a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield Requester(connection.channel())
    if connection.is_open:
        connection.close()


def request_of(channel: BlockingChannel, queue: str) -> tuple[str, bytes]:
    """Take a request: where to answer to, and what was asked."""
    deadline = time.monotonic() + SECONDS
    while (got := channel.basic_get(queue, auto_ack=True))[0] is None:
        assert time.monotonic() < deadline, "no request came"
    return got[1].reply_to, got[2]


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ChannelClosedByBroker) as caught:
        call()
    return caught.value.reply_code, caught.value.reply_text


def test_answers_come_to_the_channel_that_asked(
    requester: Requester, url: str, channel: BlockingChannel, queue: str
) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        second = Requester(connection.channel())
        requester.ask(queue, b"one", correlation_id="c1")
        name, body = request_of(channel, queue)
        assert (body, name.startswith(REPLY_TO + ".")) == (b"one", True)
        channel.basic_publish("", name, b"answer to one", pika.BasicProperties(correlation_id="c1"))
        second.ask(queue, b"two")
        other_name, _ = request_of(channel, queue)
        channel.basic_publish("", other_name, b"answer to two")
        assert requester.answers(1) == [b"answer to one"]
        assert requester.came[0][0] == name
        assert requester.came[0][2].correlation_id == "c1"
        assert second.answers(1) == [b"answer to two"]
        assert name != other_name
        assert len(name) > len(REPLY_TO) + 30, "nobody guesses it"


def test_other_properties_of_a_request_stay_as_they_are(
    requester: Requester, channel: BlockingChannel, queue: str
) -> None:
    sent = pika.BasicProperties(
        content_type="text/plain",
        headers={"deep": [1, {"er": True}]},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to=REPLY_TO,
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    requester.channel.basic_publish("", queue, b"ask", sent)
    _, found, _ = channel.basic_get(queue, auto_ack=True)
    assert found.reply_to.startswith(REPLY_TO + ".")
    assert {**vars(found), "reply_to": REPLY_TO} == vars(sent)


def test_another_reply_to_is_left_alone(requester: Requester, channel: BlockingChannel, queue: str) -> None:
    properties = pika.BasicProperties(reply_to="my-answers")
    requester.channel.basic_publish("", queue, b"ask", properties)
    assert channel.basic_get(queue, auto_ack=True)[1].reply_to == "my-answers"


def test_native_clients_answer_too(requester: Requester, native: shardmq.Connection, queue: str) -> None:
    requester.ask(queue, b"ask")
    with native.channel() as channel:
        message = next(iter(channel.consume(queue, inactivity_timeout=SECONDS)))
        message.ack()
        assert message.properties.reply_to is not None
        channel.basic_publish("", message.properties.reply_to, b"native answer")
    assert requester.answers(1) == [b"native answer"]


def test_answers_find_their_way_through_another_gateway(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=2, gateways=2)
    url = amqp_url(broker)
    connections = [pika.BlockingConnection(pika.URLParameters(url)) for _ in range(12)]  # on both, or it is a miracle
    try:
        requesters = [Requester(connection.channel()) for connection in connections]
        server = connections[0].channel()
        server.queue_declare("requests")
        for number, requester in enumerate(requesters):
            requester.ask("requests", b"%d" % number)
        for _ in requesters:
            name, body = request_of(server, "requests")
            server.basic_publish("", name, b"answer to " + body, mandatory=True)
        for number, requester in enumerate(requesters):
            assert requester.answers(1) == [b"answer to %d" % number]
    finally:
        for connection in connections:
            connection.close()


def test_many_answers_come_in_order(requester: Requester, channel: BlockingChannel, queue: str) -> None:
    requester.ask(queue, b"count")
    name, _ = request_of(channel, queue)
    for number in range(500):
        channel.basic_publish("", name, b"%d" % number)
    assert requester.answers(500) == [b"%d" % number for number in range(500)]


def test_answers_are_not_acknowledged(other: BlockingChannel) -> None:
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    assert refused(lambda: other.basic_consume(REPLY_TO, lambda *_: None)) == (406, text)


def test_a_channel_takes_answers_once(requester: Requester) -> None:
    channel = requester.channel
    text = "PRECONDITION_FAILED - reply consumer already set"
    assert refused(lambda: channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)) == (406, text)


def test_a_tag_is_not_used_twice(url: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_consume(queue, lambda *_: None, consumer_tag="mine")
        channel._consumer_infos.clear()  # pika would not ask
        channel._impl._consumers.clear()
        with pytest.raises(ConnectionClosedByBroker) as caught:
            channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True, consumer_tag="mine")
        assert (caught.value.reply_code, caught.value.reply_text) == (
            530,
            "NOT_ALLOWED - attempt to reuse consumer tag 'mine'",
        )


def test_asking_before_one_takes_answers_is_refused(other: BlockingChannel, queue: str) -> None:
    other.basic_publish("", queue, b"ask", pika.BasicProperties(reply_to=REPLY_TO))
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert refused(lambda: other.queue_declare(queue, passive=True)) == (406, text)


def test_asking_after_cancelling_is_refused_and_consuming_again_gives_another_name(
    requester: Requester, channel: BlockingChannel, queue: str
) -> None:
    requester.ask(queue, b"ask")
    first, _ = request_of(channel, queue)
    requester.channel.basic_cancel(requester.tag)
    again = Requester(requester.channel)
    again.ask(queue, b"ask again")
    second, _ = request_of(channel, queue)
    channel.basic_publish("", second, b"answer")
    assert again.answers(1) == [b"answer"]
    assert first != second
    requester.channel.basic_cancel(again.tag)
    requester.ask(queue, b"ask once more")
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert refused(lambda: requester.channel.queue_declare(queue, passive=True)) == (406, text)


def test_another_consumer_of_the_same_tag_takes_no_answers(requester: Requester, queue: str) -> None:
    channel = requester.channel
    channel.basic_cancel(requester.tag)
    channel.basic_consume(queue, lambda *_: None, consumer_tag=requester.tag)
    again = Requester(channel)  # is not refused
    channel.basic_cancel(again.tag)
    channel.basic_consume(queue, lambda *_: None, consumer_tag=again.tag)
    requester.ask(queue, b"ask")
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    assert refused(lambda: channel.queue_declare(queue, passive=True)) == (406, text)


def gone(channel: BlockingChannel, name: str) -> None:
    """Wait until nobody takes answers under a name; the channel is closed by that."""
    while True:
        try:
            channel.queue_declare(name, passive=True)
        except ChannelClosedByBroker as closed:
            assert (closed.reply_code, closed.reply_text) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
            return


@pytest.mark.parametrize("what", ["consumer", "channel", "connection"])
def test_answers_nobody_waits_for_come_back(
    what: str, requester: Requester, channel: BlockingChannel, other: BlockingChannel, queue: str
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    if what == "consumer":
        requester.channel.basic_cancel(requester.tag)
    elif what == "channel":
        requester.channel.close()
    else:
        requester.channel.connection.close()
    gone(other, name)
    came: list[tuple[str, bytes]] = []
    channel.add_on_return_callback(lambda _channel, method, _found, body: came.append((method.reply_text, body)))
    channel.basic_publish("", name, b"too late", mandatory=True)
    channel.queue_declare(queue, passive=True, durable=True)
    channel.connection.process_data_events(0)
    assert came == [("NO_ROUTE", b"too late")]


def test_declaring_tells_whether_somebody_waits_and_deleting_does_nothing(
    requester: Requester, channel: BlockingChannel, queue: str
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    for asked in (REPLY_TO, name):
        for passive in (True, False):
            found = channel.queue_declare(asked, passive=passive).method
            assert (found.queue, found.message_count, found.consumer_count) == (asked, 0, 1)
        assert channel.queue_delete(asked).method.message_count == 0
    channel.basic_publish("", name, b"still there")
    assert requester.answers(1) == [b"still there"]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda channel, name: channel.basic_consume(name, lambda *_: None, auto_ack=True),
        lambda channel, name: channel.basic_get(name),
        lambda channel, name: channel.queue_purge(name),
        lambda channel, name: channel.queue_bind(name, "amq.fanout"),
    ],
    ids=["consume", "get", "purge", "bind"],
)
@pytest.mark.parametrize("whose", ["theirs", "another's"])
def test_nothing_but_publishing_is_done_with_such_a_name(
    misuse: Callable[[BlockingChannel, str], object],
    whose: str,
    requester: Requester,
    channel: BlockingChannel,
    other: BlockingChannel,
    queue: str,
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    misused = requester.channel.connection.channel() if whose == "theirs" else other
    assert refused(lambda: misuse(misused, name)) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
    channel.basic_publish("", name, b"answer")
    assert requester.answers(1) == [b"answer"]


def test_native_clients_can_not_take_others_answers(
    requester: Requester, channel: BlockingChannel, native: shardmq.Connection, queue: str
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    assert name not in [row["name"] for row in native.topology("queues")]
    with native.channel() as thief:
        with pytest.raises(NotFound):
            thief.basic_get(name)
        with pytest.raises(NotFound):
            thief.queue_delete(name)
    with native.channel() as thief, pytest.raises(ShardmqError, match="reserved prefix"):
        thief.queue_declare(name + "x")


def test_who_may_declare_nothing_may_ask(native: shardmq.Connection, broker: Broker, queue: str) -> None:
    native.user_put("asker", "secret")
    native.permission_put("asker", "/", configure="", write=r"^amq\.default$", read="")
    url = amqp_url(broker).replace("guest:guest", "asker:secret")
    with pika.BlockingConnection(pika.URLParameters(url)) as connection, native.channel() as channel:
        requester = Requester(connection.channel())
        requester.channel.basic_publish("", queue, b"ask", pika.BasicProperties(reply_to=REPLY_TO))
        message = next(iter(channel.consume(queue, inactivity_timeout=SECONDS)))
        message.ack()
        channel.basic_publish("", str(message.properties.reply_to), b"answer")
        assert requester.answers(1) == [b"answer"]


def test_requests_in_a_transaction_have_their_answers_after_the_commit(
    requester: Requester, channel: BlockingChannel, queue: str
) -> None:
    requester.channel.tx_select()
    requester.ask(queue, b"ask")
    assert channel.basic_get(queue)[0] is None
    requester.channel.tx_commit()
    name, _ = request_of(channel, queue)
    channel.basic_publish("", name, b"answer")
    assert requester.answers(1) == [b"answer"]


@contextlib.contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    """While this lasts, shards do nothing."""
    shards = [pid for name, pid in broker.pids.items() if name.startswith("shard")]
    for pid in shards:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in shards:
            os.kill(pid, signal.SIGCONT)


def test_an_answer_to_a_client_of_the_same_gateway_goes_by_no_shard(
    requester: Requester, channel: BlockingChannel, queue: str, broker: Broker
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    channel.confirm_delivery()
    with frozen(broker):
        channel.basic_publish("", name, b"answer", pika.BasicProperties(correlation_id="c"), mandatory=True)
        assert requester.answers(1) == [b"answer"]
    assert requester.came[0][2].correlation_id == "c"


def test_answers_that_a_requester_is_slow_to_read_come_in_order_and_the_next_directly_again(
    requester: Requester, channel: BlockingChannel, queue: str, broker: Broker
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    count, size = 2000, 20_000
    for number in range(count):
        channel.basic_publish("", name, b"%d " % number + bytes(size))
        if number % 100 == 99:  # all in one pass would go directly: it is read in the next
            channel.connection.process_data_events(0)
    assert [int(body.split()[0]) for body in requester.answers(count)] == list(range(count))
    with frozen(broker):
        channel.basic_publish("", name, b"last")
        assert requester.answers(count + 1)[-1] == b"last"


def test_an_answer_that_goes_to_other_queues_too_is_not_overtaken(
    requester: Requester, channel: BlockingChannel, queue: str
) -> None:
    requester.ask(queue, b"ask")
    name, _ = request_of(channel, queue)
    copied = pika.BasicProperties(headers={"CC": [queue]})
    for number in range(100):
        channel.basic_publish("", name, b"%d" % number, copied if number % 3 == 0 else None)
    assert requester.answers(100) == [b"%d" % number for number in range(100)]
    for number in range(0, 100, 3):
        assert request_of(channel, queue)[1] == b"%d" % number
