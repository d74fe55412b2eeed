"""A receiver of OTLP over HTTP: an aiohttp server that decodes what exporters send."""

import asyncio
import threading
from typing import Any

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE_SECONDS = 60.0


class Receiver:
    """Keeps all spans of this library that it is sent.

    Attributes:
        spans: in the order they came.
        services: the `service.name` of those who sent some.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.endpoint = ""
        self._came = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)

    def wait_for(self, *names: str) -> list[Span]:
        """The first span of each name, in this order, once all have come."""

        def found() -> list[Span]:
            by_name = {span.name: span for span in reversed(self.spans)}
            return [by_name[name] for name in names if name in by_name]

        with self._came:
            there = self._came.wait_for(lambda: len(found()) == len(names), PATIENCE_SECONDS)
            assert there, f"no {set(names) - {span.name for span in self.spans}}"
            return found()

    def of_trace(self, trace_id: str) -> list[str]:
        """The names of the spans of a trace, in the order they began."""
        with self._came:
            found = [span for span in self.spans if span.trace_id.hex() == trace_id]
        return [span.name for span in sorted(found, key=lambda span: span.start_time_unix_nano)]

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        sent = ExportTraceServiceRequest.FromString(await request.read())
        with self._came:
            for resource in sent.resource_spans:
                self.services.add(attributes(resource.resource)["service.name"])
                for scope in resource.scope_spans:
                    if scope.scope.name == "shardmq":
                        self.spans.extend(scope.spans)
            self._came.notify_all()
        return web.Response(content_type="application/x-protobuf")

    def _run(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()


def attributes(thing: Any) -> dict[str, Any]:
    """Attributes of a span or resource, by their names; int64 is a str in protobuf's JSON."""
    found = {}
    for pair in thing.attributes:
        (kind, value), *_ = MessageToDict(pair.value).items()
        found[pair.key] = int(value) if kind == "intValue" else value
    return found
