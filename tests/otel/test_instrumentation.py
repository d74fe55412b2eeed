"""Programs whose SDK is instrumented: what spans arrive at a receiver, and what travels in messages."""

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

import shardmq
import shardmq.otel
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest
from tests.otel.receiver import Receiver, attributes

MADE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def assert_follows(processed: Span, sent: Span) -> None:
    """A CONSUMER span continues the trace of a PRODUCER span, and is linked to it."""
    assert (sent.kind, processed.kind) == (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER)
    assert processed.trace_id == sent.trace_id
    assert processed.parent_span_id == sent.span_id
    assert [link.span_id for link in processed.links] == [sent.span_id]


def test_a_handler_runs_in_a_span_that_follows_the_publish(
    channel: shardmq.Channel, instrumented: TracerProvider, receiver: Receiver
) -> None:
    queue = channel.queue_declare("handled", exclusive=True).queue
    channel.exchange_declare("orders", "topic")
    channel.queue_bind(queue, "orders", "new.#")
    seen: list[Any] = []
    handled = threading.Event()

    def handle(message: shardmq.Message) -> None:
        seen.append(trace.get_current_span().get_span_context())
        message.ack()
        if len(seen) == 2:  # the first one's span has ended
            handled.set()
        raise ValueError("nobody wants it")

    with instrumented.get_tracer("shop").start_as_current_span("checkout"):
        channel.basic_consume(queue, handle)
    channel.basic_publish("orders", "new.book", b"12345", shardmq.Properties(message_id="m-1"))
    channel.basic_publish("orders", "new.book", b"67")
    assert handled.wait(10)
    instrumented.force_flush()
    sent, processed = receiver.wait_for("publish orders", f"process {queue}")
    assert_follows(processed, sent)
    assert (processed.trace_id, processed.span_id) == (seen[0].trace_id.to_bytes(16), seen[0].span_id.to_bytes(8))
    assert attributes(sent) == {
        "messaging.system": "shardmq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders:new.book",
        "messaging.rabbitmq.destination.routing_key": "new.book",
        "messaging.message.id": "m-1",
        "messaging.message.body.size": 5,
    }
    assert attributes(processed) == {
        "messaging.system": "shardmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": f"orders:new.book:{queue}",
        "messaging.rabbitmq.destination.routing_key": "new.book",
        "messaging.message.id": "m-1",
        "messaging.message.body.size": 5,
    }
    assert processed.status.message == "ValueError: nobody wants it"
    assert [event.name for event in processed.events] == ["exception"]
    assert receiver.services == {"shop"}


def test_loops_batches_and_gets_have_spans(
    channel: shardmq.Channel, instrumented: TracerProvider, receiver: Receiver
) -> None:
    queue = channel.queue_declare("looped", exclusive=True).queue
    current = trace.get_current_span
    with channel.publisher() as publisher:
        for number in range(200):  # more than share their encoded properties
            publisher.publish("", queue, b"%d" % number)
    parents = set()
    for count, message in enumerate(channel.consume(queue), 1):
        assert message.body == b"%d" % (count - 1)
        parent = trace.get_current_span(shardmq.otel.extract(message, trace.context_api.Context()))
        parents.add(parent.get_span_context().span_id)
        assert current().get_span_context().trace_id == parent.get_span_context().trace_id
        message.ack()
        if count == 200:
            break
    assert not current().get_span_context().is_valid
    assert len(parents) == 200
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"x"] * 10)
    received = 0
    for batch in channel.consume_batches(queue):
        received += len(batch)
        batch.ack()
        if received == 10:
            break
    instrumented.force_flush()
    sent, processed = receiver.wait_for(f"publish_many {queue}", f"process {queue}")
    processed = receiver.spans[-1]
    assert attributes(sent)["messaging.batch.message_count"] == 10
    assert [link.span_id for link in processed.links] == [sent.span_id]
    assert not processed.parent_span_id
    channel.basic_publish("", queue, b"got")
    assert channel.basic_get(queue, auto_ack=True)
    assert channel.basic_get(queue) is None
    instrumented.force_flush()
    sent, got = receiver.spans[-2:]
    assert (got.name, got.kind, got.links[0].span_id) == (f"get {queue}", Span.SPAN_KIND_CLIENT, sent.span_id)


async def consume_group(url: str) -> None:
    async with aio.connect(url) as connection:
        channel = await connection.channel()
        await channel.topic_declare("clicks", 1)
        async with channel.publisher() as publisher:
            await publisher.publish_keyed("clicks", [("a", b"1"), ("b", b"2")])
        async with channel.group_consumer("clicks", "counters", start="earliest") as consumer:
            assert [(await anext(consumer)).body for _ in range(2)] == [b"1", b"2"]
            assert trace.get_current_span().get_span_context().is_valid
        assert not trace.get_current_span().get_span_context().is_valid
        await channel.queue_declare("later", exclusive=True)
        await channel.basic_publish("", "later", b"3")
        async for message in channel.consume("later", auto_ack=True):
            with shardmq.otel.processing(message, group="none") as span:
                assert trace.get_current_span() is span
            break
        assert not trace.get_current_span().get_span_context().is_valid
        handled = asyncio.Event()

        async def answer(request: aio.Message) -> None:
            asked = request.properties
            reply = shardmq.Properties(correlation_id=asked.correlation_id)
            await channel.basic_publish("", asked.reply_to or "", request.body, reply)
            request.ack()
            handled.set()

        await channel.queue_declare("served", exclusive=True)
        await channel.basic_consume("served", answer)
        assert (await channel.call("", "served", b"4")).body == b"4"
        await handled.wait()


def test_asyncio_programs_have_the_same_spans(broker: Broker, instrumented: TracerProvider, receiver: Receiver) -> None:
    asyncio.run(consume_group(broker.url))
    instrumented.force_flush()
    sent, processed = receiver.wait_for("publish_keyed clicks", "process clicks")
    assert_follows(processed, sent)
    assert attributes(processed)["messaging.consumer.group.name"] == "counters"
    assert attributes(processed)["messaging.destination.partition.id"] == "0"
    sent, processed = receiver.wait_for("publish later", "process later")
    assert_follows(processed, sent)
    called, served, answered = receiver.wait_for("publish served", "process served", "publish (anonymous)")
    assert_follows(served, called)
    assert answered.parent_span_id == served.span_id
    assert attributes(answered)["messaging.destination.anonymous"] is True


def test_a_context_that_is_there_is_kept_and_linked_to(
    channel: shardmq.Channel, instrumented: TracerProvider, receiver: Receiver
) -> None:
    queue = channel.queue_declare("kept", exclusive=True).queue
    made = {"traceparent": MADE, "tracestate": "vendor=1", "mine": 7}
    channel.basic_publish("", queue, b"", shardmq.Properties(headers=made))
    message = channel.basic_get(queue, auto_ack=True)
    assert message is not None
    assert message.properties.headers == made
    instrumented.force_flush()
    (sent,) = receiver.wait_for(f"publish {queue}")
    assert [link.span_id.hex() for link in sent.links] == ["b7ad6b7169203331"]


def test_what_ends_leaves_the_sdk_as_it_was(channel: shardmq.Channel) -> None:
    before = {name: getattr(shardmq.Channel, name) for name in dir(shardmq.Channel)}
    own = set(shardmq.Channel.__dict__)
    with shardmq.otel.instrument():
        with pytest.raises(InvalidRequest, match="instrumented already"):
            shardmq.otel.instrument()
        queue = channel.queue_declare("plain", exclusive=True).queue
        channel.basic_publish("", queue, b"nobody listens")  # there is no provider: no span, no header
    message = channel.basic_get(queue, auto_ack=True)
    assert message is not None
    assert message.properties.headers is None
    assert {name: getattr(shardmq.Channel, name) for name in dir(shardmq.Channel)} == before
    assert set(shardmq.Channel.__dict__) == own
