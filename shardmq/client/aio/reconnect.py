"""The asyncio protocol on a socket; the first socket of a connection, and another after each loss."""

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from shardmq.client.api.defaults import DIAL_SECONDS, UNSENT_BYTES_MAX
from shardmq.client.api.recovery import Backoff, Recovery
from shardmq.client.api.tls import context_for, server_name, why
from shardmq.client.api.url import Address
from shardmq.errors import ConnectionLost

SIGN_PAUSE_SECONDS: Final = 0.2
"""A gateway that lives answers within a millisecond; after so long, another socket is tried beside."""

SIGN_AGAIN_SECONDS: Final = 0.05
"""Between further ones. The kernel picks the gateway behind a port by lot: where one of two hangs, some twenty sockets
in a second miss the other once in a million logins, and six did once in sixty."""

_log = logging.getLogger("shardmq.client")


class Line(asyncio.Protocol):
    """One socket. Its transport is told what happens on it, until it drops it.

    Args:
        received: takes in what was read.
        lost: told that the socket is gone, and by which fault.
        paused: told that much is unsent, or is not any more.
    """

    def __init__(
        self,
        received: Callable[["Line", bytes], None],
        lost: Callable[["Line", Exception | None], None],
        paused: Callable[["Line", bool], None],
    ) -> None:
        self._received = received
        self._lost = lost
        self._paused = paused
        self.transport: asyncio.Transport | None = None
        self.has_heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Set the socket's limits."""
        self.transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 2)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Pass on what was read."""
        if not self.has_heard.done():
            self.has_heard.set_result(None)
        self._received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the socket is gone."""
        if not self.has_heard.done():
            self.has_heard.set_exception(ConnectionLost(f"the broker hung up{'' if exc is None else f': {exc}'}"))
            self.has_heard.exception()  # where nobody waits for it
        self._lost(self, exc)

    def pause_writing(self) -> None:
        """Pass on that much is unsent."""
        self._paused(self, True)

    def resume_writing(self) -> None:
        """Pass on that it is not any more."""
        self._paused(self, False)


class Reconnect:
    """Makes the sockets of one connection: the first one, and another after each loss.

    Args:
        addresses: where to connect to.
        tls: the program's context.
        recovery: when to try again; None for never.
        timeout: seconds that one try may take.
        make_line: makes the protocol object of a socket.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        tls: ssl.SSLContext | None,
        recovery: Recovery | None,
        timeout: float,
        make_line: Callable[[], Line],
    ) -> None:
        self._addresses = addresses
        self._tls = tls
        self._backoff = Backoff(recovery, addresses) if recovery is not None else None
        self._timeout = timeout
        self._make_line = make_line

    async def dial_first(self) -> tuple[Address, Line]:
        """A socket to the first address that answers.

        Raises:
            ConnectionLost: none does.
        """
        *others, last = self._addresses
        for address in others:
            try:
                return await self._dial(address, min(self._timeout, DIAL_SECONDS))
            except ConnectionLost as fault:
                _log.debug("%s", fault)
        return await self._dial(last, self._timeout)

    async def dial_living(self, seconds: float, ask: bytes) -> tuple[Address, Line]:
        """A socket to the first gateway that shows that it lives: of several behind one port, some may hang.

        Args:
            seconds: for all sockets together.
            ask: bytes that are answered at once.

        Raises:
            ConnectionLost: none does.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        refused: dict[Address, ConnectionLost] = {}
        asked: set[asyncio.Task[tuple[Address, Line]]] = set()
        try:
            for address in itertools.cycle(self._addresses):
                if address not in refused:
                    asked.add(loop.create_task(self._dial_one_living(address, ask)))
                pause = SIGN_AGAIN_SECONDS if len(asked) > len(self._addresses) else SIGN_PAUSE_SECONDS
                done, _ = await asyncio.wait(asked, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    fault = task.exception()
                    if fault is None:
                        asked.discard(task)
                        return task.result()
                    asked.discard(task)
                    if not isinstance(fault, ConnectionLost):
                        raise fault
                    refused[address] = fault
                if len(refused) == len(self._addresses) and not asked:
                    raise refused[address]
                if loop.time() >= end:
                    break
        finally:
            for task in asked:
                task.cancel()
                task.add_done_callback(_drop_late)
        silent = ", ".join(str(address) for address in self._addresses if address not in refused)
        raise ConnectionLost(
            f"the gateway at {silent} does not answer: it lets clients connect and says nothing for {seconds:g} s; "
            "look into its log, and whether it is stopped"
        )

    async def _dial_one_living(self, address: Address, ask: bytes) -> tuple[Address, Line]:
        _, line = found = await self._dial(address, self._timeout)
        assert line.transport is not None
        try:
            line.transport.write(ask)
            await line.has_heard
        except BaseException:
            line.transport.abort()
            raise
        return found

    async def dial_again(self, peer: str, lasted: float) -> tuple[Address, Line]:
        """A socket to whichever address answers next, tried for as long as the program wishes.

        Args:
            peer: what the lost connection was to, for the error's text.
            lasted: seconds that the lost connection lasted.

        Raises:
            ConnectionLost: it is given up.
        """
        assert self._backoff is not None
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._backoff.lost(began, lasted)
        while (planned := self._backoff.next(loop.time())) is not None:
            pause, address = planned
            await asyncio.sleep(pause)
            try:
                return await self._dial(address, min(self._timeout, DIAL_SECONDS))
            except ConnectionLost as fault:
                _log.debug("recovery: %s", fault)
        raise ConnectionLost(
            f"the connection to {peer} was lost, and the recovery given up after {loop.time() - began:.0f} s"
        )

    async def _dial(self, address: Address, seconds: float) -> tuple[Address, Line]:
        context = context_for(address, self._tls)
        name = server_name(address) if context is not None else None
        try:
            async with asyncio.timeout(seconds):
                _, line = await asyncio.get_running_loop().create_connection(
                    self._make_line, address.host, address.port, ssl=context, server_hostname=name
                )
        except (OSError, ValueError) as fault:  # TimeoutError is the first; the second, of a host without address
            raise ConnectionLost(f"no broker answers at {address}: {why(fault)}") from fault
        if self._backoff is not None:
            self._backoff.connected(address)
        return address, line


def _drop_late(task: asyncio.Task[tuple[Address, Line]]) -> None:
    """Hang up on a socket that another one was faster than."""
    if not task.cancelled() and task.exception() is None:
        transport = task.result()[1].transport
        assert transport is not None
        transport.abort()
