"""A connection to the broker, for asyncio programs. Everything on it belongs to the event loop it was made on."""

import asyncio
import inspect
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from shardmq.client.aio.channel import Channel
from shardmq.client.aio.requests.administration import AdministrationRequests
from shardmq.client.aio.requests.policies import PolicyRequests
from shardmq.client.aio.requests.statistics import StatisticsRequests
from shardmq.client.aio.transport import Transport
from shardmq.client.api.defaults import CLOSE_SECONDS, REPORT_SECONDS, TIMEOUT_SECONDS
from shardmq.client.api.hooks import HookRegistration, Hooks
from shardmq.client.api.metrics import Counter, Metrics, MetricsCounter, counter_of
from shardmq.client.api.opening import Opening
from shardmq.client.api.recovery import DEFAULT_RECOVERY, Recovery, check_recovery
from shardmq.client.api.results import ServerProperties
from shardmq.client.api.tls import check_tls
from shardmq.client.api.url import Address, addresses_of
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.introduction import client_properties
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_heartbeat, check_timeout
from shardmq.errors import ConnectionLost
from shardmq.limits import HEARTBEAT_SECONDS

_log = logging.getLogger("shardmq.client")

T = TypeVar("T")

HOOK_TASKS_MAX: Final = 1000
"""Coroutines of hooks that are under way; past it, messages that come back are told by `flush`, as without a hook."""


def connect(
    url: str | Sequence[str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    heartbeat: int = HEARTBEAT_SECONDS,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    tls: ssl.SSLContext | None = None,
    metrics: Metrics | Counter | None = None,
    administrative: bool = False,
    properties: Mapping[str, Any] | None = None,
) -> "Opening[Connection]":
    """Connect to a broker, to the first address that answers: await it, or enter it with `async with`.

    Args:
        url: shardmq://user:password@host:port/vhost; only the host is needed. Several hosts stand between commas, and
            several URLs in a list. shardmqs:// is TLS, on port 5671 where it has none; behind it there may be
            ?cacertfile=…&certfile=…&keyfile=…: whom to trust, and what certificate to show. amqp:// and amqps:// mean
            the same. When None, the environment's SHARDMQ_URL, else guest on this machine.
        timeout: seconds to wait for the connection, and later for each answer.
        heartbeat: seconds between signs of life; a broker silent for two of them is taken for dead. 0 for none.
        recovery: how a lost connection is won back; None for not at all.
        tls: for shardmqs://: whom to trust, and what certificate to show. When None, the files of the URL, else those
            of SHARDMQ_TLS_CA, SHARDMQ_TLS_CERT and SHARDMQ_TLS_KEY, else the system's authorities.
        metrics: told how many messages were published, confirmed, returned, refused, consumed, acked, nacked and
            redelivered, and connections recovered: an object with a method for each, or a function of (name, count).
            Called some ten times a second at most, on the event loop.
        administrative: log in to manage, in no virtual host: `topology` lists what is in all that the user may see, and
            there is no publishing or consuming. For users with a tag.
        properties: what lists of connections show of this program beside its own, as {"connection_name": "billing"};
            4096 bytes at most are kept.

    Raises:
        InvalidRequest: an URL or number makes no sense, or a file for TLS is not what it should be.
        ConnectionLost: nobody answers there.
        AuthenticationFailed: user, password or virtual host are refused.
    """
    told = client_properties(properties)
    return Opening(_connect(addresses_of(url, administrative), timeout, heartbeat, recovery, tls, metrics, told))


async def connect_to_living(
    url: str, timeout: float, sign_seconds: float, administrative: bool, properties: Mapping[str, Any]
) -> "Connection":
    """Connect to a gateway that shows in time that it lives, of those behind a URL; without recovery.

    Args:
        url: as for `connect`.
        timeout: seconds to wait for the answer to the login, and later for each answer.
        sign_seconds: for the gateway's sign of life, which it gives before it is told a password.
        administrative: as for `connect`.
        properties: as for `connect`.

    Raises:
        ConnectionLost: none lives, or it went away.
        AuthenticationFailed: user, password or virtual host are refused.
    """
    addresses, told = addresses_of(url, administrative), client_properties(properties)
    return await _connect(addresses, timeout, HEARTBEAT_SECONDS, None, None, None, told, sign_seconds)


async def _connect(
    addresses: Sequence[Address],
    timeout: float,
    heartbeat: int,
    recovery: Recovery | None,
    tls: ssl.SSLContext | None,
    metrics: Metrics | Counter | None,
    properties: dict[str, Any],
    sign_seconds: float | None = None,
) -> "Connection":
    check_tls(addresses, tls)
    check_heartbeat(heartbeat)
    check_timeout(timeout)
    check_recovery(recovery)
    connection = Connection.__new__(Connection)
    counter = None if metrics is None else counter_of(metrics)
    connection._set_up(addresses, timeout, heartbeat, recovery, tls, counter, properties)
    try:
        await connection._open(sign_seconds)
    except BaseException:
        connection._abort()
        raise
    return connection


class Connection(HookRegistration, AdministrationRequests, PolicyRequests, StatisticsRequests):
    """An open connection; `connect` opens one.

    When it is lost it comes back, as `shardmq.Connection`. An async context manager: leaving it closes the connection.
    """

    def __init__(self) -> None:
        raise TypeError("a connection is opened by shardmq.aio.connect()")

    def _set_up(
        self,
        addresses: Sequence[Address],
        timeout: float,
        heartbeat: int,
        recovery: Recovery | None,
        tls: ssl.SSLContext | None,
        counter: Counter | None,
        properties: dict[str, Any],
    ) -> None:
        self.timeout = timeout
        """Seconds each answer is waited for."""
        self._loop = asyncio.get_running_loop()
        self._hook_tasks: set[asyncio.Task[Any]] = set()
        self._hooks = Hooks(self._call_soon, self._call_soon, self._adopt)
        self._meter = MetricsCounter(counter, self._report_later) if counter is not None else None
        self._core = ConnectionCore(addresses[0], heartbeat, recovery is not None, self._hooks, self._meter)
        self._transport = Transport(self._core, addresses, tls, recovery, timeout, properties)
        self._properties = properties
        self._channels: set[Channel] = set()
        self._own_channel: Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "open" if self._core.state.is_up else "being recovered"
        return f"<aio Connection to {self._core.state.address}, {state}>"

    @property
    def is_open(self) -> bool:
        """Whether it can be used; also while it is being recovered."""
        return self._core.state.fault is None

    @property
    def is_recovering(self) -> bool:
        """Whether it was lost and is not back yet."""
        return self._core.state.fault is None and not self._core.state.is_up

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now; None when it does."""
        return self._core.state.blocked

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the broker said of itself: product, version, protocol, heartbeat, frame_max, channel_max."""
        server = self._core.state.server
        return {name: getattr(server, name) for name in server.__struct_fields__}

    def channel(self) -> Opening[Channel]:
        """Open a channel: await it, or enter it with `async with`.

        Channels are cheap; each has its own delivery tags, consumers and order.

        Raises:
            ResourceLocked: the connection has as many channels as it may.
            Timeout, ConnectionFault: no answer, or no connection.
        """
        return Opening(self._channel())

    async def _channel(self) -> Channel:
        forget: Callable[[Channel], None] = self._channels.discard
        channel = Channel.__new__(Channel)
        channel._set_up(self._core, self._transport, self.timeout, self._has_return_hook, forget)
        await channel._open()
        self._channels.add(channel)
        return channel

    async def close(self) -> None:
        """Close it, with all its channels; what is unacked returns to its queues.

        Always returns, within seconds: also while it is recovered or blocked, and when the broker is dead. What is not
        confirmed by then may be lost; `Publisher.flush` before tells.
        """
        was_up = self._core.state.is_up
        if self.is_open:
            for channel in list(self._channels):
                channel.flush()
            self._core.close(self._closed_here())
            self._transport.transmit()
        if not was_up:
            self._transport.stop()
        try:
            async with asyncio.timeout(min(CLOSE_SECONDS, self.timeout)):
                await asyncio.shield(self._transport.closed)
        except TimeoutError:
            self._transport.stop()
        self._report()

    async def _open(self, sign_seconds: float | None) -> None:
        await self._transport.start(sign_seconds)
        opened: asyncio.Future[ServerProperties] = self._loop.create_future()
        self._core.open(self._properties, opened)
        self._transport.transmit()
        await self._transport.wait(opened, self.timeout, f"opening the connection to {self._core.state.address}")
        self._transport.start_beating()

    def _closed_here(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._core.state.address} was closed by this program")

    def _abort(self, fault: ConnectionLost | None = None) -> None:
        self._core.lose(fault or self._closed_here(), is_wanted=True)
        self._transport.stop()

    async def _ask(self, request: Request[T]) -> T:
        if self._own_channel is None or not self._own_channel.is_open:
            self._own_channel = await self.channel()
        return await self._own_channel._ask(request)

    def _has_return_hook(self) -> bool:
        return self._hooks.takes_returns and len(self._hook_tasks) < HOOK_TASKS_MAX

    def _call_soon(self, job: Callable[[], None]) -> None:
        self._loop.call_soon(job)

    def _adopt(self, outcome: Any) -> None:
        if inspect.isawaitable(outcome):
            task = self._loop.create_task(_await_logged(outcome))
            self._hook_tasks.add(task)
            task.add_done_callback(self._hook_tasks.discard)

    def _report_later(self) -> None:
        self._loop.call_later(REPORT_SECONDS, self._report)

    def _report(self) -> None:
        if self._meter is not None:
            self._meter.report(self._meter.take())


def abandon(connection: Connection, why: str) -> None:
    """Give a connection up without a goodbye, as its gateway does not answer; whoever waits for an answer is told.

    Args:
        connection: which.
        why: what is wrong with the gateway.
    """
    connection._abort(ConnectionLost(f"the connection to {connection._core.state.address} was given up: {why}"))


async def _await_logged(outcome: Any) -> None:
    try:
        await outcome
    except Exception:  # noqa: BLE001  the program's fault must not cost it the connection
        _log.exception("a hook raised")
