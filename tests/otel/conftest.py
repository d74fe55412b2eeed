"""A receiver of spans, and a program whose SDK is instrumented."""

from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import shardmq.otel
from shardmq.cmd.run.broker import Broker
from tests.otel.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def provider(receiver: Receiver) -> Iterator[TracerProvider]:
    """Sends spans to the receiver: `provider.force_flush()` does so at once."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(receiver.endpoint)))
    yield provider
    provider.shutdown()


@pytest.fixture
def instrumented(provider: TracerProvider) -> Iterator[TracerProvider]:
    with shardmq.otel.instrument(provider):
        yield provider


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection:
        yield connection.channel()
