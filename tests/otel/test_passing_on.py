"""What becomes of a trace's context in a message's headers on its way through the broker: nothing."""

import asyncio
import json
import subprocess
import sys
from functools import partial

import shardmq
import shardmq.otel
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.management.moving import Mover, copy_to
from tests.e2e.traffic import until

CONTEXT = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
    "baggage": "user=alice",
}
MADE = shardmq.Properties(headers=CONTEXT)


def context_of(message: shardmq.Message) -> dict[str, str]:
    """The headers of a context that a message has, alone or among others."""
    headers = message.properties.headers or {}
    return {name: value for name, value in headers.items() if name in CONTEXT}


def take(channel: shardmq.Channel, queue: str) -> shardmq.Message:
    """The next message of a queue, once there is one."""
    return until(lambda: channel.basic_get(queue), f"there is one in '{queue}'")


def test_delays_requeues_retries_and_dead_letters_keep_it(channel: shardmq.Channel) -> None:
    channel.queue_declare("dead", durable=True)
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-retry-delays": "10ms"}
    channel.queue_declare("tried", durable=True, arguments=terms)
    channel.basic_publish("", "tried", b"x", MADE, delay_ms=20)
    for requeue in (True, False, False):  # at once, after the retry's delay, to the dead letters
        message = take(channel, "tried")
        assert context_of(message) == CONTEXT
        message.nack(requeue=requeue)
    letter = take(channel, "dead")
    assert letter.properties.headers is not None
    assert letter.properties.headers["x-death"][0]["reason"] == "rejected"
    assert context_of(letter) == CONTEXT
    letter.ack()


def test_expired_and_dropped_messages_keep_it(channel: shardmq.Channel) -> None:
    channel.queue_declare("over", durable=True)
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "over"}
    channel.queue_declare("short", durable=True, arguments={**terms, "x-max-length": 1})
    with channel.publisher() as publisher:  # together: the first must not expire before the second comes
        publisher.publish_many("", "short", [b"x", b"x"], shardmq.Properties(headers=CONTEXT, expiration="20"))
    for reason in ("maxlen", "expired"):
        letter = take(channel, "over")
        assert letter.properties.headers is not None
        assert letter.properties.headers["x-death"][0]["reason"] == reason
        assert context_of(letter) == CONTEXT
        letter.ack()


def test_replays_of_topics_and_streams_keep_it(channel: shardmq.Channel) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "log", b"x", MADE)
    for _ in range(2):
        (message,) = channel.reader("log", start="earliest", inactivity_timeout=2.0)
        assert context_of(message) == CONTEXT
    channel.topic_declare("events", 1)
    channel.basic_publish("events", "key", b"y", MADE)
    for _ in range(2):
        with channel.group_consumer("events", "replaying", start="earliest", inactivity_timeout=5) as consumer:
            message = next(consumer)
            assert context_of(message) == CONTEXT
        channel.group_reset("events", "replaying", "earliest")


async def move(url: str) -> int:
    async with aio.connect(url) as connection:
        mover = Mover(await connection.channel(), "here", "guest")
        return await mover.move_all(10, partial(copy_to, "", "there"))


def test_moved_messages_keep_it(broker: Broker, channel: shardmq.Channel) -> None:
    for queue in ("here", "there"):
        channel.queue_declare(queue, durable=True)
    channel.basic_publish("", "here", b"x", MADE)
    assert asyncio.run(move(broker.url)) == 1
    message = take(channel, "there")
    assert context_of(message) == CONTEXT
    message.ack()


def test_a_transaction_keeps_it(channel: shardmq.Channel) -> None:
    channel.queue_declare("whole", durable=True)
    with channel.transaction("tracing") as transaction:
        transaction.publish("", "whole", b"x", MADE)
    message = take(channel, "whole")
    assert context_of(message) == CONTEXT
    message.ack()


PIKA = """
import json, sys
import pika
from opentelemetry import trace
from opentelemetry.instrumentation.pika import PikaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
PikaInstrumentor.instrument_channel(channel, tracer_provider=provider)
def answer(channel, method, properties, body):
    channel.basic_ack(method.delivery_tag)
    channel.basic_publish("", "to-shardmq", body)
    channel.stop_consuming()
channel.basic_consume("to-pika", answer)
channel.start_consuming()
connection.close()
print(json.dumps([[span.name, f"{span.context.trace_id:032x}"] for span in spans.get_finished_spans()]))
"""


def test_a_trace_goes_through_a_program_with_instrumented_pika(
    broker: Broker, channel: shardmq.Channel, instrumented: object
) -> None:
    assert instrumented
    for queue in ("to-pika", "to-shardmq"):
        channel.queue_declare(queue)
    channel.basic_publish("", "to-pika", b"x")
    (sent,) = channel.queue_peek("to-pika")
    url = broker.url.replace("shardmq://", "amqp://").rstrip("/") + "/%2F"
    command = [sys.executable, "-W", "ignore", "-c", PIKA, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    spans = json.loads(done.stdout.splitlines()[-1])
    trace_id = context_of(sent)["traceparent"].split("-")[1]
    assert {each for _, each in spans} == {trace_id}
    assert len(spans) == 2
    with shardmq.otel.processing(take(channel, "to-shardmq")) as span:
        assert f"{span.get_span_context().trace_id:032x}" == trace_id
