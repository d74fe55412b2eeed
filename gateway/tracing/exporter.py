"""Where spans go: a receiver of OTLP over HTTP, such as an OpenTelemetry collector."""

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext

from shardmq.version import VERSION

WAITING_MAX: Final = 8192
"""Spans that wait to be sent, some kB each; what comes beyond is dropped, as where the receiver is away."""

EXPORT_MS: Final = 1000
"""Spans wait for others so long."""

EXPORT_SECONDS: Final = 5
"""How long a receiver may take."""


class SpanExporter:
    """Sends spans, from a thread of its own.

    Args:
        name: of the gateway.
        endpoint: the receiver's URL, such as http://127.0.0.1:4318; /v1/traces is added.
    """

    def __init__(self, name: str, endpoint: str) -> None:
        resource = Resource.create({"service.name": "shardmq", "service.instance.id": name, "service.version": VERSION})
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=WAITING_MAX, schedule_delay_millis=EXPORT_MS)
        )
        self._tracer = self._provider.get_tracer("shardmq", VERSION)
        self._last: object = None

    def is_first(self, publish: object) -> bool:
        """Whether it is told here for the first time that this publish goes to several shards, one after the other."""
        is_first, self._last = publish is not self._last, publish
        return is_first

    def export(
        self,
        name: str,
        parent: SpanContext,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, str | int],
    ) -> None:
        """Export one span.

        Args:
            name: of the span.
            parent: the context that came with the message.
            began_ns: nanoseconds since 1970.
            ended_ns: the same.
            attributes: of the span, beside `messaging.system`.
        """
        context = trace.set_span_in_context(NonRecordingSpan(parent))
        said = {"messaging.system": "shardmq", **attributes}
        span = self._tracer.start_span(name, context, attributes=said, start_time=began_ns)
        span.end(max(began_ns, ended_ns))

    def close(self) -> None:
        """Send what waits, and end the thread."""
        self._provider.shutdown()
