"""The management process: options, start, clean stop."""

import asyncio
import logging
import os
import ssl
import time
from dataclasses import dataclass
from typing import Final

import uvloop
from aiohttp import web

from shardmq.client.api.url import parse_all
from shardmq.errors import StartupRefused
from shardmq.management.sampling import Sampler, own_credentials
from shardmq.management.server import Server
from shardmq.management.state.callers import Callers
from shardmq.management.state.facts import Facts, node_name
from shardmq.management.web.errors import is_ours
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.memory import return_large_blocks
from shardmq.runtime.renewal import LOOK_SECONDS, RenewableContext
from shardmq.runtime.signals import StopSignal
from shardmq.runtime.tls import TlsOptions

SHUTDOWN_SECONDS: Final = 3.0
"""Time for requests that are under way when the process stops."""

KEEP_ALIVE_SECONDS: Final = 75.0

NICENESS: Final = 5
"""Messages go first: with it, this process has a third of the weight of gateways and shards where cores are scarce."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagementOptions:
    """The options of a management process.

    Attributes:
        url: of the broker; callers log in by their own users. Samples are taken by the one that it names, if any.
        host: address to listen on.
        port: TCP port.
        tls: certificate and key for HTTPS; its port does not matter. None for HTTP.
        metrics: address and port for scrapes alone; None for none.
    """

    url: str
    host: str
    port: int
    tls: TlsOptions | None = None
    metrics: tuple[str, int] | None = None


def run(options: ManagementOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InvalidRequest: the URL cannot be read.
        StartupRefused: nothing can listen at the port, or a file for TLS cannot be used.
    """
    if any(not address.user for address in parse_all(options.url)):
        raise StartupRefused("the URL logs in by a certificate; callers log in by their own users, so name none there")
    os.nice(NICENESS)
    return_large_blocks()
    logging.getLogger("aiohttp.server").addFilter(is_ours)
    uvloop.run(_serve(options))


async def _serve(options: ManagementOptions) -> None:
    stop = asyncio.Event()
    StopSignal.on_loop(asyncio.get_running_loop(), stop.set)
    callers = Callers(options.url)
    facts = Facts(options.url, node_name(options.url), options.host, options.port, options.tls is not None)
    server = Server(callers, facts, own=own_credentials(options.url))
    context = None if options.tls is None else RenewableContext(options.tls)
    scheme = "http" if context is None else "https"
    runners = [await _listen(server.application(), (options.host, options.port), context, "--management-")]
    facts.port = runners[0].addresses[0][1]
    if options.metrics is not None:
        try:
            runners.append(await _listen(server.metrics(), options.metrics, context, "--metrics-"))
        except StartupRefused:
            await runners[0].cleanup()
            raise
    sampler = Sampler(callers, facts, own_credentials(options.url))
    works = [callers.sweep(), callers.watch(), sampler.run(), _beat()]
    if context is not None:
        context.renew_at_hangup(asyncio.get_running_loop())
        works.append(_renew(context))
    tasks = [asyncio.create_task(work) for work in works]
    _log.info("ready at %s://%s:%d/", scheme, options.host, facts.port)
    if options.metrics is not None:
        _log.info("metrics at %s://%s:%d/metrics", scheme, options.metrics[0], runners[1].addresses[0][1])
    exempt_startup()
    notify.ready()
    try:
        await stop.wait()
        notify.stopping()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(runner.cleanup() for runner in runners))
        await callers.close()


async def _beat() -> None:
    """Tell for ever that the event loop turns; a task of its own."""
    heartbeat = notify.Heartbeat(list)
    while True:
        heartbeat.beat(time.monotonic())
        await asyncio.sleep(heartbeat.pause)


async def _renew(context: RenewableContext) -> None:
    """Look for ever whether the files for TLS have changed; a task of its own."""
    while True:
        context.look(time.monotonic())
        await asyncio.sleep(LOOK_SECONDS)


async def _listen(
    application: web.Application, address: tuple[str, int], context: ssl.SSLContext | None, options: str
) -> web.AppRunner:
    """Serve an application at an address.

    Raises:
        StartupRefused: nothing can listen there.
    """
    host, port = address
    runner = web.AppRunner(
        application, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=context, reuse_port=True).start()
    except OSError as fault:
        await runner.cleanup()
        raise StartupRefused(
            f"cannot listen on {host} port {port}: {fault.strerror or fault}; choose another {options}host or "
            f"{options}port"
        ) from fault
    return runner
