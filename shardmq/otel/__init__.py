"""OpenTelemetry for programs that use the SDK: spans, and the trace's context in the messages' headers.

    import shardmq.otel

    shardmq.otel.instrument()

From then on each publish is a PRODUCER span whose context travels in the message, and each message that is handled is
a CONSUMER span linked to it. Needs the extra: `pip install 'shardmq[otel]'`.

instrumentation.py  instrument: which methods of the SDK are wrapped, and how that is undone.
publishing.py       Publishing methods with spans around them.
consuming.py        Methods, handlers and iterators that bring messages, with spans around what is done with them.
spans.py            Spans named and described as OpenTelemetry's messaging conventions say.
carrier.py          A trace's context in a message's headers.
"""

try:
    import opentelemetry.propagate
    import opentelemetry.trace  # noqa: F401
except ImportError as missing:
    raise ImportError("shardmq.otel needs OpenTelemetry's API: pip install 'shardmq[otel]'") from missing

from shardmq.otel.carrier import extract, inject
from shardmq.otel.instrumentation import Instrumentation, instrument
from shardmq.otel.spans import processing

__all__ = ["Instrumentation", "extract", "inject", "instrument", "processing"]
