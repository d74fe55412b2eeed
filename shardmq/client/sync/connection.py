"""A connection to the broker, for programs with threads: any thread may use it and everything on it."""

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from shardmq.client.api.defaults import CLOSE_SECONDS, TIMEOUT_SECONDS
from shardmq.client.api.hooks import HookRegistration, Hooks
from shardmq.client.api.metrics import Counter, Metrics, MetricsCounter, counter_of
from shardmq.client.api.recovery import DEFAULT_RECOVERY, Recovery, check_recovery
from shardmq.client.api.results import ServerProperties
from shardmq.client.api.tls import check_tls
from shardmq.client.api.url import Address, addresses_of
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.introduction import client_properties
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_count, check_heartbeat, check_timeout
from shardmq.client.sync.answers import PendingAnswer
from shardmq.client.sync.channel import Channel
from shardmq.client.sync.reconnect import Reconnect
from shardmq.client.sync.requests.administration import AdministrationRequests
from shardmq.client.sync.requests.policies import PolicyRequests
from shardmq.client.sync.requests.statistics import StatisticsRequests
from shardmq.client.sync.transport import Transport
from shardmq.client.sync.workers import WORKERS, MetricsReporter, SerialExecutor, WorkerPool
from shardmq.errors import ConnectionLost
from shardmq.limits import HEARTBEAT_SECONDS

T = TypeVar("T")


def connect(
    url: str | Sequence[str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    heartbeat: int = HEARTBEAT_SECONDS,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    tls: ssl.SSLContext | None = None,
    metrics: Metrics | Counter | None = None,
    workers: int = WORKERS,
    administrative: bool = False,
    properties: Mapping[str, Any] | None = None,
) -> "Connection":
    """Connect to a broker: to the first address that answers.

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
            Called some ten times a second at most, on a thread of its own.
        workers: handlers (`Channel.basic_consume`) that may run at once.
        administrative: log in to manage, in no virtual host: `topology` lists what is in all that the user may see, and
            there is no publishing or consuming. For users with a tag.
        properties: what lists of connections show of this program beside its own, as {"connection_name": "billing"};
            4096 bytes at most are kept.

    Raises:
        InvalidRequest: an URL or number makes no sense, or a file for TLS is not what it should be.
        ConnectionLost: nobody answers there.
        AuthenticationFailed: user, password or virtual host are refused.
    """
    addresses = addresses_of(url, administrative)
    check_tls(addresses, tls)
    check_heartbeat(heartbeat)
    check_timeout(timeout)
    check_recovery(recovery)
    check_count("workers", workers)
    connection = Connection.__new__(Connection)
    counter, told = None if metrics is None else counter_of(metrics), client_properties(properties)
    connection._set_up(addresses, timeout, heartbeat, recovery, tls, counter, workers, told)
    try:
        connection._open()
    except BaseException:
        connection._abort()
        raise
    return connection


class Connection(HookRegistration, AdministrationRequests, PolicyRequests, StatisticsRequests):
    """An open connection, with its I/O and heartbeats on a thread of its own; `connect` opens one.

    When it is lost it comes back, unless it was told not to: with all channels, and all exchanges, queues, bindings and
    consumers that were declared over it. A context manager: leaving it closes the connection.
    """

    def __init__(self) -> None:
        raise TypeError("a connection is opened by shardmq.connect()")

    def _set_up(
        self,
        addresses: Sequence[Address],
        timeout: float,
        heartbeat: int,
        recovery: Recovery | None,
        tls: ssl.SSLContext | None,
        counter: Counter | None,
        workers: int,
        properties: dict[str, Any],
    ) -> None:
        self.timeout = timeout
        """Seconds each answer is waited for."""
        self._workers = WorkerPool(workers, f"shardmq worker {addresses[0]}")
        self._hook_workers = WorkerPool(1, f"shardmq hooks {addresses[0]}")
        self._log_worker = WorkerPool(1, f"shardmq log {addresses[0]}")
        self._hooks = Hooks(SerialExecutor(self._hook_workers).do, self._log_worker.do)
        self._meter: MetricsCounter | None = None
        self._reporter: MetricsReporter | None = None
        if counter is not None:
            self._meter = MetricsCounter(counter, self._report)
        self._core = ConnectionCore(addresses[0], heartbeat, recovery is not None, self._hooks, self._meter)
        reconnect = Reconnect(addresses, tls, recovery, timeout, self._log_worker.do)
        self._transport = Transport(self._core, reconnect, timeout, properties)
        self._properties = properties
        if self._meter is not None:
            self._reporter = MetricsReporter(f"shardmq metrics {addresses[0]}", self._transport.lock)
        self._channels: set[Channel] = set()
        self._own_channel: Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if not self.is_open else "open" if self._core.state.is_up else "being recovered"
        return f"<Connection to {self._core.state.address}, {state}>"

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

    def channel(self) -> Channel:
        """Open a channel. Channels are cheap; each has its own delivery tags, consumers and order.

        Raises:
            ResourceLocked: the connection has as many channels as it may.
            Timeout, ConnectionFault: no answer, or no connection.
        """
        channel = Channel.__new__(Channel)
        channel._set_up(
            self._core, self._transport, self._workers, self.timeout, self._has_return_hook, self._channels.discard
        )
        self._channels.add(channel)
        return channel

    def close(self) -> None:
        """Close it, with all its channels; what is unacked returns to its queues.

        Always returns, within seconds: also while it is recovered or blocked, and when the broker is dead. What is not
        confirmed by then may be lost; `Publisher.flush` before tells.
        """
        if self.is_open:
            for channel in list(self._channels):
                channel.flush()
            try:
                with self._transport.lock:
                    was_up = self._core.state.is_up
                    self._core.close(self._closed_here())
                    self._transport.transmit()
            except BaseException:  # as Ctrl-C: the broker may not have been told, and would not answer
                self._transport.stop()
                raise
            if not was_up:
                self._transport.stop()
        if not self._transport.join(min(CLOSE_SECONDS, self.timeout)):
            self._abort()
        self._end_workers()

    def _open(self) -> None:
        opened: PendingAnswer[ServerProperties] = PendingAnswer()
        self._transport.start()
        if self._reporter is not None and self._meter is not None:
            self._reporter.start(self._meter)
        with self._transport.lock:
            self._core.open(self._properties, opened)
            self._transport.transmit()
        self._transport.wait(opened, self.timeout, f"opening the connection to {self._core.state.address}")

    def _abort(self) -> None:
        with self._transport.lock:
            self._core.lose(self._closed_here(), is_wanted=True)
        self._transport.stop()
        self._transport.join(CLOSE_SECONDS)
        self._end_workers()

    def _end_workers(self) -> None:
        self._workers.stop()
        self._hook_workers.stop()
        self._log_worker.stop()
        if self._reporter is not None:
            self._reporter.stop(CLOSE_SECONDS)

    def _closed_here(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._core.state.address} was closed by this program")

    def _report(self) -> None:
        if self._reporter is not None:
            self._reporter.due()

    def _has_return_hook(self) -> bool:
        return self._hooks.takes_returns

    def _ask(self, request: Request[T]) -> T:
        if self._own_channel is None or not self._own_channel.is_open:
            self._own_channel = self.channel()
        return self._own_channel._ask(request)
