"""The management process: options, start, clean stop."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import uvloop
from aiohttp import web

from shardmq.client.api.url import parse_all
from shardmq.errors import StartupRefused
from shardmq.management.server import Server
from shardmq.management.state.callers import Callers
from shardmq.management.state.facts import Facts, node_name
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.runtime.tls import TlsOptions, server_context

SHUTDOWN_SECONDS: Final = 3.0
"""Time for requests that are under way when the process stops."""

KEEP_ALIVE_SECONDS: Final = 75.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagementOptions:
    """The options of a management process.

    Attributes:
        url: of the broker; callers log in by their own users.
        host: address to listen on.
        port: TCP port.
        tls: certificate and key for HTTPS; its port does not matter. None for HTTP.
    """

    url: str
    host: str
    port: int
    tls: TlsOptions | None = None


def run(options: ManagementOptions) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InvalidRequest: the URL cannot be read.
        StartupRefused: nothing can listen at the port, or a file for TLS cannot be used.
    """
    if any(not address.user for address in parse_all(options.url)):
        raise StartupRefused("the URL logs in by a certificate; callers log in by their own users, so name none there")
    uvloop.run(_serve(options))


async def _serve(options: ManagementOptions) -> None:
    stop = asyncio.Event()
    StopSignal.on_loop(asyncio.get_running_loop(), stop.set)
    callers = Callers(options.url)
    facts = Facts(options.url, node_name(options.url), options.host, options.port, options.tls is not None)
    runner = web.AppRunner(
        Server(callers, facts).application(),
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    context = None if options.tls is None else server_context(options.tls)
    site = web.TCPSite(runner, options.host, options.port, ssl_context=context, reuse_port=True)
    try:
        await site.start()
    except OSError as fault:
        await runner.cleanup()
        raise StartupRefused(
            f"cannot listen on {options.host} port {options.port}: {fault.strerror or fault}; choose another "
            "--management-host or --management-port"
        ) from fault
    facts.port = runner.addresses[0][1]
    sweeping = asyncio.create_task(callers.sweep())
    scheme = "http" if context is None else "https"
    _log.info("ready at %s://%s:%d/", scheme, options.host, facts.port)
    exempt_startup()
    notify.ready()
    try:
        await stop.wait()
        notify.stopping()
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        await runner.cleanup()
        await callers.close()
