"""Where a gateway finds shards and coordinator in a broker on several hosts: at the primaries that etcd names."""

import asyncio
import contextlib
import secrets
import time

from shardmq.gateway.state.gateway import GatewayState
from shardmq.replication.dialing import PrimaryDialing
from shardmq.replication.directory import LOOK_SECONDS, PrimaryDirectory
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.runtime.waiting import WaitingReport


async def find_broker(join: str, name: str) -> tuple[PrimaryDirectory, int]:
    """Wait until etcd tells of the broker.

    Args:
        join: URL of etcd, where it is registered.
        name: of this process.

    Returns:
        What knows the primaries, and how many shards the broker has.

    Raises:
        InvalidUrl: the URL cannot be read, or a file that it names not be used.
    """
    url = parse(join)
    directory = PrimaryDirectory(BackgroundRegister(url, f"{name}.{secrets.token_hex(8)}"))
    waiting = WaitingReport(lambda: [f"a broker at {url}: {directory.missing}"])
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(directory.fileno(), told.set)
    try:
        while directory.broker is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await told.wait()
            told.clear()
            directory.look()
            waiting.look(time.monotonic())
    except BaseException:
        directory.close()
        raise
    finally:
        loop.remove_reader(directory.fileno())
    return directory, directory.broker.shards


class PrimaryFinder:
    """Keeps a gateway's links at the primaries.

    Args:
        state: of the gateway.
        directory: of the primaries; this closes it.
    """

    def __init__(self, state: GatewayState, directory: PrimaryDirectory) -> None:
        self._state = state
        state.primaries = directory.primaries
        self._loop = asyncio.get_running_loop()
        self._fd = directory.fileno()
        links = {link.name: link.dialer for link in state.links}
        self._dialing = PrimaryDialing(directory, {"coordinator": state.coordinator.dialer, **links})
        self._loop.add_reader(self._fd, self._look)
        state.on_tick(self._tick)
        self._look()

    def close(self) -> None:
        """Watch no more."""
        self._loop.remove_reader(self._fd)
        self._dialing.close()

    def _look(self) -> None:
        self._tick(time.monotonic())

    def _tick(self, now: float) -> None:
        if self._dialing.look(now):
            self._state.changed()  # the next tick comes at once, ends sessions and calls
