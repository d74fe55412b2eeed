"""The gateway process: options, start, clean stop."""

import asyncio
import functools
import logging
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import uvloop

from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.bus.dialer import Dialer
from shardmq.errors import StartupRefused
from shardmq.gateway.handlers.dead_letters import DeadLetterPublisher
from shardmq.gateway.loop import GatewayLoop
from shardmq.gateway.server import Server
from shardmq.gateway.state.gateway import GatewayState
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.runtime.tls import TlsOptions
from shardmq.runtime.waiting import WaitingReport

DRAIN_SECONDS: Final = 5.0
"""How long a gateway that stops waits for the answers to publishes."""

RECURSION_MAX: Final = 400
"""Bounds how deep tables in headers may nest. Well below Python's own limit (1000), which clients meet with a stack of
their own below it: what is let in here can be decoded there."""

READY_CHECK_SECONDS: Final = 0.01
"""Time between two looks whether the coordinator and the shards are there."""

SHARDS_SECONDS: Final = 3.0
"""For shards of several hosts, once the coordinator is there. An election takes about as long. A shard whose replicas
are all away may not come back for hours, and keeps nobody from the others."""

if TYPE_CHECKING:
    from shardmq.gateway.links.shard import ShardLink
    from shardmq.gateway.state.primaries import PrimaryFinder
    from shardmq.gateway.tracing.exporter import SpanExporter
    from shardmq.replication.directory import PrimaryDirectory

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The options of a gateway.

    Attributes:
        name: unique among gateways, such as "gateway-0".
        host: TCP address clients connect to.
        port: TCP port; gateways of one broker share it.
        coordinator: the coordinator's bus address.
        shards: the shards' bus addresses, by number.
        security: of the bus, where it is TCP.
        tls: another port for clients, with TLS, or the only one.
        rss_bytes_max: resident memory above which publishers are blocked; None for the default.
        message_bytes_max: of a message's body.
        otlp_endpoint: URL of a receiver of spans; None for no spans.
        join: URL of etcd, where a broker on several hosts is registered, which tells where coordinator and shards are;
            "" for the addresses above.
    """

    name: str
    host: str
    port: int
    coordinator: str
    shards: tuple[str, ...]
    security: CurveKeys = NO_KEYS
    tls: TlsOptions | None = None
    rss_bytes_max: int | None = None
    message_bytes_max: int = MESSAGE_BYTES_MAX
    otlp_endpoint: str | None = None
    join: str = ""


def run(options: GatewayOptions) -> None:
    """Serve until SIGTERM or SIGINT, then drain and stop.

    Raises:
        StartupRefused: nothing can listen at a port, or a file for TLS or the bus cannot be used.
    """
    sys.setrecursionlimit(RECURSION_MAX)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # one for each client; shells often give no more than 1024
    uvloop.run(_serve(options))


async def _serve(options: GatewayOptions) -> None:
    stop = asyncio.Event()
    crashes: list[BaseException] = []

    def end_on_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Half of what arrived was applied and half was not: only a new start is right, with new sessions on all links.
        crashes.append(context.get("exception") or RuntimeError(context["message"]))
        stop.set()

    asyncio.get_running_loop().set_exception_handler(end_on_error)
    StopSignal.on_loop(asyncio.get_running_loop(), stop.set)
    found = await _find(options.join, options.name, stop)
    if stop.is_set():
        return
    exporter, make_link = _tracing(options)
    directory, shards = found or (None, options.shards)
    state = GatewayState(options.name, options.coordinator, shards, options.security, options.rss_bytes_max, make_link)
    loop = GatewayLoop(state)
    finder = None if directory is None else _finder(state, directory)
    DeadLetterPublisher(state)
    state.on_tick(WaitingReport(lambda: _missing(state)).look)
    state.on_tick(notify.Heartbeat(lambda: _wrong(state)).beat)
    ticking = asyncio.create_task(loop.run())
    stopped = asyncio.create_task(stop.wait())
    try:
        await _ready(state, ticking, stopped, SHARDS_SECONDS if options.join else float("inf"))
        server = Server(state, options.host, options.port, options.tls, options.message_bytes_max)
        if not stop.is_set():
            await server.listen()
            _log.info("ready for clients at %s", " and ".join(_ports(options)))
            exempt_startup()
            notify.ready()
        await asyncio.wait((ticking, stopped), return_when=asyncio.FIRST_COMPLETED)
        _raise_crash(ticking, crashes)
        notify.stopping()
        await server.drain(DRAIN_SECONDS)
        _raise_crash(ticking, crashes)
    finally:
        ticking.cancel()
        stopped.cancel()
        await asyncio.gather(ticking, stopped, return_exceptions=True)
        if finder is not None:
            finder.close()
        loop.close()
        if exporter is not None:
            exporter.close()


async def _ready(
    state: GatewayState, ticking: "asyncio.Task[None]", stopped: "asyncio.Task[bool]", shards_seconds: float
) -> None:
    """Wait until clients may come, or this process is to stop.

    Args:
        state: of the gateway.
        ticking: what turns its loop.
        stopped: done when it is to stop.
        shards_seconds: to wait for shards once the coordinator has told what there is.
    """
    loop = asyncio.get_running_loop()
    end = float("inf")
    while not state.is_ready and not stopped.done() and loop.time() < end:
        if state.coordinator.is_synced and end == float("inf"):
            end = loop.time() + shards_seconds
        await asyncio.wait((ticking, stopped), timeout=READY_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if ticking.done():
            ticking.result()


async def _find(join: str, name: str, stop: asyncio.Event) -> "tuple[PrimaryDirectory, tuple[str, ...]] | None":
    """Wait until the broker on several hosts is known, or this process is to stop; None where there is none.

    Returns:
        What knows the primaries, and an address for each shard that is still to be named.
    """
    if not join:
        return None
    from shardmq.gateway.state.primaries import find_broker  # brings along what a broker on one host does without

    finding = asyncio.ensure_future(find_broker(join, name))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((finding, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (finding, stopping):
        task.cancel()
    outcomes = await asyncio.gather(finding, stopping, return_exceptions=True)
    if isinstance(outcomes[0], asyncio.CancelledError):
        return None
    if isinstance(outcomes[0], BaseException):
        raise outcomes[0]
    directory, shards = outcomes[0]
    if stop.is_set():
        directory.close()
    return directory, ("",) * shards


def _finder(state: GatewayState, directory: "PrimaryDirectory") -> "PrimaryFinder":
    from shardmq.gateway.state.primaries import PrimaryFinder

    return PrimaryFinder(state, directory)


def _tracing(options: GatewayOptions) -> "tuple[SpanExporter | None, Callable[..., ShardLink] | None]":
    """What exports spans, and makes links that note them; nothing is imported where nobody asks for spans.

    Raises:
        StartupRefused: OpenTelemetry is not installed.
    """
    if options.otlp_endpoint is None:
        return None, None
    try:
        from shardmq.gateway.tracing.exporter import SpanExporter
        from shardmq.gateway.tracing.traced_link import TracedLink
    except ImportError as missing:
        raise StartupRefused(
            f"--otlp-endpoint needs OpenTelemetry ({missing}): pip install 'shardmq[otel]'"
        ) from missing
    exporter = SpanExporter(options.name, options.otlp_endpoint)
    return exporter, functools.partial(TracedLink, exporter)


def _raise_crash(ticking: "asyncio.Task[None]", crashes: list[BaseException]) -> None:
    """Raise what has ended the loop or failed in a callback, if anything has."""
    if ticking.done():
        ticking.result()
    if crashes:
        raise crashes[0]


def _wrong(state: GatewayState) -> list[str]:
    """What is wrong with this gateway, for whoever started it."""
    return [*(f"waits for {whom}" for whom in _missing(state)), *state.alarms.of(state.name)]


def _missing(state: GatewayState) -> list[str]:
    """The processes that this gateway needs and has no link to."""
    away = [(number, link.dialer) for number, link in enumerate(state.links) if not link.is_open]
    said = [f"shard {number} {_where(dialer)}" for number, dialer in away]
    coordinator = state.coordinator.dialer
    return said if coordinator.is_open else [f"the coordinator {_where(coordinator)}", *said]


def _where(dialer: "Dialer[Any]") -> str:
    return f"at {dialer.address}" if dialer.address else "(etcd names no primary that can be called)"


def _ports(options: GatewayOptions) -> list[str]:
    tls = options.tls
    plain = [] if tls is not None and tls.is_alone else [f"{options.host} port {options.port}"]
    return plain if tls is None else [*plain, f"{tls.host or options.host} port {tls.port} (TLS)"]
