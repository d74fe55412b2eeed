"""The process that runs shovels: options, start, clean stop."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import uvloop

from shardmq.client.api.url import parse_all, with_vhost
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.shovels.keeper import Keeper
from shardmq.topology.parameters.shovel import RUNNER, RUNNER_SECRET

STOP_SECONDS: Final = 8.0
"""For shovels to close their connections."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShovelsOptions:
    """The options of a process that runs shovels.

    Attributes:
        url: of the broker. Its user is an administrator, by whose rights shovels work at their ends that are here; it
            does not matter where `shardmq up` has started this process.
    """

    url: str


def run(options: ShovelsOptions) -> None:
    """Run shovels until SIGTERM or SIGINT.

    Raises:
        InvalidRequest: the URL cannot be read.
    """
    parse_all(options.url)
    uvloop.run(_serve(_own_url(options.url, os.environ.get(RUNNER_SECRET, ""))))


async def _serve(url: str) -> None:
    stop = asyncio.Event()
    StopSignal.on_loop(asyncio.get_running_loop(), stop.set)
    keeper = Keeper(url, lambda vhost: with_vhost(url, vhost))
    works = [asyncio.create_task(keeper.run()), asyncio.create_task(_beat())]
    stopped = asyncio.create_task(stop.wait())
    exempt_startup()
    notify.ready()
    try:
        await asyncio.wait([*works, stopped], return_when=asyncio.FIRST_COMPLETED)
        notify.stopping()
        for work in works:
            if work.done():
                work.result()  # it has a bug
    finally:
        for task in (*works, stopped):
            task.cancel()
        await asyncio.gather(*works, stopped, return_exceptions=True)
        try:
            await asyncio.wait_for(keeper.close(), STOP_SECONDS)
        except TimeoutError:
            _log.warning("shovels did not close their connections in time; what was under way is moved again")


async def _beat() -> None:
    """Tell for ever that the event loop turns; a task of its own."""
    heartbeat = notify.Heartbeat(list)
    while True:
        heartbeat.beat(time.monotonic())
        await asyncio.sleep(heartbeat.pause)


def _own_url(url: str, secret: str) -> str:
    """The URL with the login of this process at the broker whose supervisor has started it."""
    if not secret:
        return url
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{RUNNER}:{secret}@{hosts}"))
