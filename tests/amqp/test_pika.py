"""pika's blocking connection, the client most Python programs have: what its users do every day, against shardmq."""

import threading
import time
from decimal import Decimal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    NackError,
    UnroutableError,
)

SECONDS = 30.0
"""How long to wait for what must come; a busy machine may need some of it."""

BIG = bytes(range(256)) * (5 * 4096)
"""Five megabytes, in forty frames."""

EVERYTHING = pika.BasicProperties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={
        "bool": True,
        "int": -5,
        "long": 1 << 40,
        "decimal": Decimal("-1.25"),
        "text": "grün",
        "none": None,
        "bytes": b"\x00\xff",
        "table": {"deep": {"er": 1}},
        "list": [1, "two", [3], {"four": False}],
    },
    delivery_mode=2,
    priority=7,
    correlation_id="c-1",
    reply_to="answers",
    expiration="600000",
    message_id="m-1",
    timestamp=1_700_000_000,
    type="kind",
    user_id="guest",
    app_id="tests",
)


@pytest.fixture
def own(channel: BlockingChannel) -> str:
    """A queue the broker has named."""
    name: str = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    return name


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Get so many bodies by consuming, acknowledged."""
    bodies: list[bytes] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=SECONDS):
        assert method is not None, f"only {bodies} came"
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            break
    channel.cancel()
    return bodies


def get(channel: BlockingChannel, queue: str) -> tuple[pika.spec.Basic.GetOk, pika.BasicProperties, bytes]:
    """Get a message that may be still on its way."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue)
        if method is not None:
            return method, properties, body
    raise AssertionError("nothing came")


def test_what_is_published_arrives_with_its_properties(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    headers = {"a": 1, "b": [1, "x"]}
    properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id="m-1")
    channel.basic_publish("", queue, b"hello", properties, mandatory=True)
    method, got, body = next(iter(channel.consume(queue)))
    assert (body, got.headers, got.message_id, got.delivery_mode) == (b"hello", headers, "m-1", 2)
    channel.basic_ack(method.delivery_tag)


def test_every_property_and_every_type_of_header_comes_back_as_it_was(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", own, b"", EVERYTHING)
    _, properties, body = get(channel, own)
    assert body == b""
    assert properties == EVERYTHING
    assert type(properties.headers["bool"]) is bool


def test_bodies_of_five_megabytes_come_and_go(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish("", own, BIG)
    assert get(channel, own)[2] == BIG
    assert take(channel, own, 1) == [BIG]


@pytest.mark.parametrize(
    ("kind", "binding", "key", "headers"),
    [
        ("direct", "a", "a", {}),
        ("fanout", "", "whatever", {}),
        ("topic", "*.late.#", "EWR.late", {}),
        ("headers", "", "", {"carrier": "UA", "late": True}),
    ],
)
def test_exchanges_of_every_type_route(
    channel: BlockingChannel, own: str, kind: str, binding: str, key: str, headers: dict[str, object]
) -> None:
    channel.confirm_delivery()
    channel.exchange_declare(f"pika.{kind}", kind, auto_delete=True)
    channel.queue_bind(own, f"pika.{kind}", binding, {"x-match": "all", **headers} if headers else None)
    channel.basic_publish(f"pika.{kind}", key, b"1", pika.BasicProperties(headers=headers or None), mandatory=True)
    if kind != "fanout":
        with pytest.raises(UnroutableError):
            channel.basic_publish(f"pika.{kind}", "no.where", b"2", mandatory=True)
    assert take(channel, own, 1) == [b"1"]


def test_exchanges_are_bound_to_exchanges(channel: BlockingChannel, own: str) -> None:
    channel.exchange_declare("pika.first", "topic", auto_delete=True)
    channel.exchange_declare("pika.second", "fanout", auto_delete=True, internal=True)
    channel.exchange_bind("pika.second", "pika.first", "a.#")
    channel.queue_bind(own, "pika.second")
    channel.confirm_delivery()
    channel.basic_publish("pika.first", "a.b", b"through", mandatory=True)
    channel.exchange_unbind("pika.second", "pika.first", "a.#")
    assert take(channel, own, 1) == [b"through"]


def test_what_no_queue_takes_comes_back_whole(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as returned:
        channel.basic_publish("amq.direct", "nowhere", BIG, EVERYTHING, mandatory=True)
    (message,) = returned.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.exchange, message.method.routing_key) == ("amq.direct", "nowhere")
    assert (message.properties, message.body) == (EVERYTHING, BIG)


def test_without_confirms_returns_are_called_back(
    connection: pika.BlockingConnection, channel: BlockingChannel
) -> None:
    returned = []
    channel.add_on_return_callback(lambda _channel, method, _properties, body: returned.append((method, body)))
    channel.basic_publish("", "nowhere", b"back", mandatory=True)
    channel.basic_publish("", "nowhere", b"dropped")
    deadline = time.monotonic() + SECONDS
    while not returned and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert [(method.reply_code, body) for method, body in returned] == [(312, b"back")]


def test_a_full_queue_refuses_and_pika_says_so(channel: BlockingChannel) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", full, b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", full, b"2")


def test_get_counts_what_is_left(channel: BlockingChannel, own: str) -> None:
    assert channel.basic_get(own) == (None, None, None)
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", own, body)
    method, _, body = channel.basic_get(own, auto_ack=True)
    assert (body, method.message_count, method.redelivered, method.routing_key) == (b"1", 2, False, own)
    assert channel.queue_declare(own, passive=True).method.message_count == 2
    assert channel.queue_purge(own).method.message_count == 2


def test_nacked_and_rejected_messages_return_to_their_places_marked(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3", b"4"):
        channel.basic_publish("", own, body)
    tags = [get(channel, own)[0].delivery_tag for _ in range(4)]
    channel.basic_nack(tags[1], multiple=True)
    channel.basic_reject(tags[2], requeue=False)
    channel.basic_reject(tags[3])
    came = [get(channel, own) for _ in range(3)]
    assert [(body, method.redelivered) for method, _, body in came] == [(b"1", True), (b"2", True), (b"4", True)]


def test_prefetch_bounds_what_is_out(connection: pika.BlockingConnection, channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", own, str(number).encode())
    with connection.channel() as consumer:
        consumer.basic_qos(prefetch_count=3)
        came: list[int] = []
        consumer.basic_consume(own, lambda _channel, method, _properties, _body: came.append(method.delivery_tag))
        while len(came) < 3:
            connection.process_data_events(SECONDS)
        assert channel.queue_declare(own, passive=True).method.message_count == 7
        consumer.basic_ack(came[-1], multiple=True)
        while len(came) < 6:
            connection.process_data_events(SECONDS)
        assert channel.queue_declare(own, passive=True).method.message_count == 4
        assert len(came) == 6


def test_cancel_gives_back_what_was_prefetched(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", own, body)
    channel.basic_qos(prefetch_count=10)
    method, _, _ = next(channel.consume(own))
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    assert take(channel, own, 2) == [b"2", b"3"]


def test_the_generator_ends_its_turn_when_nothing_comes(channel: BlockingChannel, own: str) -> None:
    assert next(channel.consume(own, inactivity_timeout=0.2)) == (None, None, None)
    channel.cancel()


def test_a_consumer_is_told_when_its_queue_is_deleted(
    connection: pika.BlockingConnection, channel: BlockingChannel, own: str
) -> None:
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(own, lambda *_: None)
    with connection.channel() as other:
        other.queue_delete(own)
    deadline = time.monotonic() + SECONDS
    while not cancelled and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert cancelled == [tag]


def test_a_consumer_that_was_cancelled_hears_nothing_of_its_queues_end(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", own, b"held")
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(own, lambda *_: channel.stop_consuming())
    channel.start_consuming()  # cancels, holding what it was given
    channel.basic_cancel(tag)
    channel.queue_delete(own)
    channel.queue_declare("", exclusive=True)
    channel.connection.process_data_events(0)
    assert cancelled == []


def test_start_consuming_runs_until_stopped(channel: BlockingChannel, own: str) -> None:
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", own, str(number).encode())
    came: list[bytes] = []

    def on_message(
        consumer: BlockingChannel, method: pika.spec.Basic.Deliver, _properties: pika.BasicProperties, body: bytes
    ) -> None:
        came.append(body)
        consumer.basic_ack(method.delivery_tag)
        if len(came) == 100:
            consumer.stop_consuming()

    channel.basic_qos(prefetch_count=7)
    channel.basic_consume(own, on_message)
    channel.start_consuming()
    assert came == [str(number).encode() for number in range(100)]
    assert channel.queue_declare(own, passive=True).method.consumer_count == 0


def test_threads_acknowledge_through_the_connections_own(connection: pika.BlockingConnection, own: str) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", own, str(number).encode())
    done: list[bytes] = []

    def acknowledge(tag: int, body: bytes) -> None:
        channel.basic_ack(tag)
        done.append(body)
        if len(done) == 50:
            channel.stop_consuming()

    def work(tag: int, body: bytes) -> None:
        connection.add_callback_threadsafe(lambda: acknowledge(tag, body))

    workers: list[threading.Thread] = []

    def on_message(
        _channel: BlockingChannel, method: pika.spec.Basic.Deliver, _properties: pika.BasicProperties, body: bytes
    ) -> None:
        workers.append(threading.Thread(target=work, args=(method.delivery_tag, body)))
        workers[-1].start()

    channel.basic_qos(prefetch_count=8)
    channel.basic_consume(own, on_message)
    channel.start_consuming()
    for worker in workers:
        worker.join()
    assert sorted(done, key=int) == [str(number).encode() for number in range(50)]
    assert channel.queue_declare(own, passive=True).method.message_count == 0
    channel.close()
