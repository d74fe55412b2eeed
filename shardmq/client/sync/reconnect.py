"""The first socket of a connection, and another after each loss, dialed from the transport's thread."""

import logging
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial

from shardmq.client.api.defaults import DIAL_SECONDS, RESTORE_PAUSE_SECONDS
from shardmq.client.api.recovery import Backoff, Recovery
from shardmq.client.api.url import Address
from shardmq.client.sync.sockets import Stream, dial, wait_seconds
from shardmq.errors import ConnectionLost

_log = logging.getLogger("shardmq.client")


class Reconnect:
    """Makes the sockets of one connection: the first one, and another after each loss.

    Args:
        addresses: where to connect to.
        tls: the program's context.
        recovery: when to try again; None for never.
        timeout: seconds that one try may take.
        log_later: has a job done that writes to the log, on another thread than the one that recovers.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        tls: ssl.SSLContext | None,
        recovery: Recovery | None,
        timeout: float,
        log_later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._addresses = addresses
        self._tls = tls
        self._backoff = Backoff(recovery, addresses) if recovery is not None else None
        self._timeout = timeout
        self._log_later = log_later
        self._stop_reader, self._stop_writer = socket.socketpair()  # readable once: when all is to end
        self._stop_poll = select.poll()  # a program's file descriptors may be too many for select.select()
        self._stop_poll.register(self._stop_reader, select.POLLIN)
        self._is_stopped = False
        self._pause_until = 0.0

    def dial_first(self) -> tuple[Address, Stream]:
        """A socket to the first address that answers.

        Raises:
            ConnectionLost: none does.
        """
        *others, last = self._addresses
        for address in others:
            try:
                return self._dial(address, min(self._timeout, DIAL_SECONDS))
            except ConnectionLost as fault:
                _log.debug("%s", fault)
        return self._dial(last, self._timeout)

    def dial_again(self, peer: str, lasted: float) -> tuple[Address, Stream] | None:
        """A socket to whichever address answers next, tried for as long as the program wishes.

        Args:
            peer: what the lost connection was to, for the error's text.
            lasted: seconds that the lost connection lasted.

        Returns:
            None where it was stopped.

        Raises:
            ConnectionLost: it is given up.
        """
        assert self._backoff is not None
        began = time.monotonic()
        self._backoff.lost(began, lasted)
        while (planned := self._backoff.next(time.monotonic())) is not None:
            pause, address = planned
            if self._is_stopped_within(pause):
                return None
            try:
                return self._dial(address, min(self._timeout, DIAL_SECONDS))
            except ConnectionLost as fault:
                if _log.isEnabledFor(logging.DEBUG):
                    self._log_later(partial(_log.debug, "recovery: %s", fault))
        raise ConnectionLost(
            f"the connection to {peer} was lost, and the recovery given up after {time.monotonic() - began:.0f} s"
        )

    def is_due(self, is_pausing: bool) -> bool:
        """Whether the pause of a restoration is over.

        Args:
            is_pausing: whether the core has something that it could not restore a moment ago.
        """
        if not is_pausing:
            self._pause_until = 0.0
            return False
        now = time.monotonic()
        if not self._pause_until:
            self._pause_until = now + RESTORE_PAUSE_SECONDS
        elif now >= self._pause_until:
            self._pause_until = 0.0
            return True
        return False

    def stop(self) -> None:
        """End what is being dialed, and dial no more."""
        if not self._is_stopped:
            self._is_stopped = True
            self._stop_writer.close()

    def close(self) -> None:
        """Close the sockets that tell it to stop."""
        self.stop()
        self._stop_reader.close()

    def _is_stopped_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._is_stopped and (left := wait_seconds(until)):
            self._stop_poll.poll(left * 1000)
        return self._is_stopped

    def _dial(self, address: Address, seconds: float) -> tuple[Address, Stream]:
        stream = dial(address, self._tls, seconds, self._stop_reader)
        if self._backoff is not None:
            self._backoff.connected(address)
        return address, stream
