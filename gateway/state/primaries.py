"""Where a gateway finds shards and coordinator in a broker on several hosts: at the primaries that etcd names."""

import asyncio
import contextlib
import secrets
import time
from typing import Final

from shardmq.bus.messages.coordinator import Changes
from shardmq.gateway.state.gateway import GatewayState
from shardmq.replication.dialing import PrimaryDialing
from shardmq.replication.directory import LOOK_SECONDS, PrimaryDirectory
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.operating import HostOperations
from shardmq.runtime.waiting import WaitingReport
from shardmq.topology.changes import QueueAdded

SETTLING_SECONDS: Final = 0.005
"""Between two looks whether a primary that handed over has said all; that takes a few milliseconds."""


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
    """Keeps a gateway's links at the primaries, those to shards that are added while it runs too.

    Args:
        state: of the gateway.
        directory: of the primaries; this closes it.
    """

    def __init__(self, state: GatewayState, directory: PrimaryDirectory) -> None:
        self._state = state
        state.primaries = directory.primaries
        state.host_operations = HostOperations(directory)
        self._loop = asyncio.get_running_loop()
        self._fd = directory.fileno()
        self._again: asyncio.TimerHandle | None = None
        links = {link.name: link.dialer for link in state.links}
        self._dialing = PrimaryDialing(directory, {"coordinator": state.coordinator.dialer, **links})
        self._loop.add_reader(self._fd, self._look)
        state.coordinator.follow(self)
        state.on_tick(self._tick)
        self._look()

    def close(self) -> None:
        """Watch no more."""
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self._dialing.close()

    def loaded(self) -> None:
        """Have links to the shards of all queues in a whole topology that was loaded."""
        self._need([queue.shard for queue in self._state.topology.queues.values()])

    def changed(self, news: Changes) -> None:
        """Have links to the shards of new queues."""
        self._need([change.queue.shard for change in news.changes if isinstance(change, QueueAdded)])

    def _need(self, numbers: list[int]) -> None:
        """Have links to shards, be they there or not: the coordinator may know of added ones earlier."""
        count = max(numbers, default=-1) + 1
        if count > len(self._state.links):
            self._add_shards(count)
            self._state.take_in_shards(count)

    def _add_shards(self, count: int) -> None:
        now = time.monotonic()
        for link in self._state.add_shards(count):
            self._dialing.add(link.name, link.dialer, now)
            self._state.changed()

    def _look(self) -> None:
        self._tick(time.monotonic())

    def _tick(self, now: float) -> None:
        if self._dialing.look(now):
            self._state.changed()  # the next tick comes at once, ends sessions and calls
        self._add_shards(self._dialing.shards)
        self._state.take_in_shards()
        if self._dialing.is_settling and self._again is None:
            self._again = self._loop.call_later(SETTLING_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._look()
