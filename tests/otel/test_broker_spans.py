"""Spans of a broker that was started with --otlp-endpoint."""

import subprocess
import sys

import pika
import pytest

import shardmq
from tests.conftest import StartBroker
from tests.otel.receiver import Receiver, attributes

NATIVE, AMQP, UNSAMPLED = (f"{number:032x}" for number in (0xA, 0xB, 0xC))
QUEUES = ("one", "two", "three", "four")  # on both shards
PARENT = "b7ad6b7169203331"


def headers(trace_id: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace_id}-{PARENT}-{flags}"}


def test_messages_that_are_sampled_have_spans_from_route_to_settle(
    start_broker: StartBroker, receiver: Receiver
) -> None:
    endpoint = receiver.endpoint.removesuffix("/v1/traces")
    broker = start_broker(shards=2, options=["--otlp-endpoint", endpoint])
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("work", durable=True, arguments=terms)
        for trace_id, flags in ((UNSAMPLED, "00"), (NATIVE, "01")):
            channel.basic_publish("", "work", b"x", shardmq.Properties(headers=headers(trace_id, flags)))
        with pika.BlockingConnection(pika.URLParameters(f"amqp://127.0.0.1:{broker.port}/")) as amqp:
            sent = pika.BasicProperties(headers=headers(AMQP), delivery_mode=2)
            amqp.channel().basic_publish("", "work", b"x", sent)
        for name in QUEUES:
            channel.queue_declare(name)
            channel.queue_bind(name, "amq.fanout")
        for trace_id in (NATIVE, AMQP):
            channel.basic_publish("amq.fanout", "k", b"x", shardmq.Properties(headers=headers(trace_id)))
        work = channel.consume("work")
        for _ in range(3):
            next(work).reject()
        dead = channel.consume("dead")
        for _ in range(3):
            next(dead).ack()
    broker.stop()
    whole = [f"{what} {queue}" for queue in ("work", "dead") for what in ("store", "queued", "deliver", "settle")]
    routes = ["route amq.default"] * 2  # of what is published, and of what is dead
    fanned = ["route amq.fanout", *(f"store {name}" for name in QUEUES)]
    for trace_id in (NATIVE, AMQP):
        assert sorted(receiver.of_trace(trace_id)) == sorted([*whole, "dead-letter work", *routes, *fanned])
    assert receiver.of_trace(UNSAMPLED) == []
    settled, died, acked = receiver.wait_for("settle work", "dead-letter work", "settle dead")
    assert {span.parent_span_id.hex() for span in receiver.spans} == {PARENT}
    assert attributes(settled)["shardmq.outcome"] == "reject"
    assert attributes(died)["shardmq.reason"] == "rejected"
    assert attributes(acked)["shardmq.outcome"] == "ack"
    assert attributes(acked)["messaging.destination.name"] == "dead"
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in receiver.spans)
    assert receiver.services == {"shardmq"}


def test_a_receiver_that_is_away_holds_up_nothing(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1, options=["--otlp-endpoint", "http://127.0.0.1:9"])
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("busy")
        with channel.publisher() as publisher:
            publisher.publish_many("", "busy", [b"x"] * 20_000, shardmq.Properties(headers=headers(NATIVE)))
        received = 0
        for batch in channel.consume_batches("busy", prefetch=0, auto_ack=True):
            received += len(batch)
            if received == 20_000:
                break


@pytest.mark.parametrize("endpoint", ["collector:4318", "http://", "ftp://collector"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    command = [sys.executable, "-m", "shardmq", "up", "--otlp-endpoint", endpoint]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 2
    assert "is no http:// or https:// URL" in refused.stderr
