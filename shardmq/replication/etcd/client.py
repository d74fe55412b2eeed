"""Calls to etcd with deadlines, from member to member, for a loop that must not block.

A loop waits until `fileno` is readable or `wait_seconds` have passed, and calls `turn`, from which all callbacks come.
Times are seconds by CLOCK_BOOTTIME, which goes on while the machine is suspended.

What reads is sent again to the next member until its deadline. What changes something is sent once: if its answer is
lost, nobody knows, and the error says so.
"""

import contextlib
import heapq
import itertools
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from shardmq.replication.etcd.answers import Failure, Status, read_answer
from shardmq.replication.etcd.errors import EtcdError, OutcomeUnknown, Refused, Unreachable
from shardmq.replication.etcd.members.connection import Broken, Connection, Piece
from shardmq.replication.etcd.members.endpoints import IDLE_MAX, Endpoints, Member
from shardmq.replication.etcd.members.login import TRIES, Login
from shardmq.replication.etcd.members.resolver import Resolver
from shardmq.replication.etcd.messages import Request, authenticate_request
from shardmq.replication.etcd.url import Endpoint, EtcdUrl
from shardmq.runtime.clock import boottime

Answer = TypeVar("Answer")

ATTEMPT_SECONDS: Final = 0.5
"""A member that does not answer a read, or cannot be connected to, within this time is given up for the next one. Once
every member had its time, each gets twice as long: all may be slow."""

ATTEMPT_SECONDS_MAX: Final = 8.0
"""No member gets longer."""

PAUSE_SECONDS: Final = 0.1
"""Between two attempts of a call, once every member had one."""

LOGIN_SECONDS: Final = 2.0
"""A member may take so long for a login: etcd hashes passwords slowly on purpose."""

LOGINS_SECONDS: Final = 10.0
"""For a login by whichever member."""

LATE: Final = "no answer in time"
"""Why an attempt failed that was given up; a member that has given a better reason before keeps that."""

ANSWER_BYTES_MAX: Final = 256 << 20
"""An answer that is larger is not read. All values of a broker's register have some MB."""


@dataclass(slots=True, eq=False)
class Call(Generic[Answer]):
    """A request on its way.

    Attributes:
        request: what is asked.
        deadline: when it is over.
        done: called with its outcome, once.
        stream: called with each part of an answer that has no end; the deadline is for its first part then.
    """

    request: Request[Answer]
    deadline: float
    done: Callable[[Answer | EtcdError], None]
    stream: Callable[[bytes], None] | None = None
    member: Member | None = None
    connection: Connection | None = None
    attempt_until: float = 0.0
    not_before: float = 0.0
    token: str = ""
    logins: int = 0
    attempts: int = 0
    is_over: bool = False
    size: int = 0
    parts: list[bytes] = field(default_factory=list)
    reasons: dict[Endpoint, str] = field(default_factory=dict)


class EtcdClient:
    """A client of etcd's JSON gateway.

    Args:
        url: where etcd is, and who we are.

    Raises:
        InvalidUrl: a file that it names cannot be used.
    """

    def __init__(self, url: EtcdUrl) -> None:
        self._resolver = Resolver()
        try:
            self._endpoints = Endpoints(url, self._resolver)
        except EtcdError:
            self._resolver.close()
            raise
        self._url = url
        self._login = Login(url.user, url.password)
        self._logging_in: Call[Any] | None = None
        self._epoll = select.epoll()
        self._epoll.register(self._resolver.reader, select.EPOLLIN)
        self._running: dict[int, Call[Any]] = {}
        self._idle: dict[int, tuple[Member, Connection]] = {}
        self._waiting: list[Call[Any]] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()

    def fileno(self) -> int:
        """A descriptor that is readable when `turn` has something to do."""
        return self._epoll.fileno()

    def wait_seconds(self) -> float:
        """How long to wait for `fileno` at most before the next `turn`."""
        now = boottime()
        if self._lacks_token:
            return 0.0
        times = [call.attempt_until for call in self._running.values()]
        times += [call.not_before for call in self._startable(now)]
        times += [call.deadline for call in self._waiting]
        times += [when for when, _, _ in self._timers[:1]]
        return max(0.0, min(times, default=now + 60.0) - now)

    def ask(self, request: Request[Answer], deadline: float, done: Callable[[Answer | EtcdError], None]) -> None:
        """Send a request.

        Args:
            request: what is asked.
            deadline: until when an answer is of use, by `boottime`.
            done: called from `turn` with the answer, or with `Unreachable`, `Refused` or `OutcomeUnknown`.
        """
        self._waiting.append(Call(request, deadline, done))

    def follow(
        self, request: Request[Any], stream: Callable[[bytes], None], ended: Callable[[EtcdError], None]
    ) -> "Stream":
        """Send a request whose answer has no end.

        Args:
            request: what is asked.
            stream: called from `turn` with each part of the answer.
            ended: called from `turn` when the stream is over.

        Returns:
            What ends it.
        """
        call = Call(request, boottime() + LOGINS_SECONDS, ended, stream)
        self._waiting.append(call)
        return Stream(self, call)

    def later(self, seconds: float, done: Callable[[], None]) -> None:
        """Call back from a `turn`, after some time."""
        heapq.heappush(self._timers, (boottime() + seconds, next(self._counter), done))

    def drop(self, call: Call[Any], is_useless: bool = False) -> None:
        """Forget a call, which is not called back any more; ask other members first if this one was useless."""
        if is_useless and call.member is not None and call.connection is not None:
            self._endpoints.rest(call.member, boottime())
        self._drop(call)

    def turn(self) -> None:
        """Do all that can be done now, without waiting."""
        for fd, _ in self._epoll.poll(0):
            if fd == self._resolver.reader:
                self._resolver.deliver()
            elif fd in self._idle:
                self._discard_idle(fd)
            elif fd in self._running:
                self._advance(self._running[fd])
        now = boottime()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        for call in [call for call in self._running.values() if call.attempt_until <= now]:
            if not call.is_over:  # by what another one has called back
                self._fail(call, LATE)
        for call in [call for call in self._waiting if call.deadline <= now]:
            if not call.is_over:
                self._finish(call, self._unreachable(call))
        if self._lacks_token:
            self._ask_for_token(now)
        for call in self._startable(now):
            if call.not_before <= now and not call.is_over:
                self._start(call, now)

    def close(self) -> None:
        """Close all connections. No callback comes any more."""
        for call in [*self._running.values(), *self._waiting]:
            self._drop(call)
        self._endpoints.close()
        self._epoll.close()
        self._resolver.close()

    @property
    def _lacks_token(self) -> bool:
        return self._login.token is None and not self._login.is_asked and bool(self._waiting)

    def _ask_for_token(self, now: float) -> None:
        self._login.is_asked = True
        request = authenticate_request(self._url.user, self._url.password)
        self._logging_in = Call(request, now + LOGINS_SECONDS, self._logged_in)
        self._waiting.append(self._logging_in)

    def _startable(self, now: float) -> list[Call[Any]]:
        """Calls that wait for nothing but their time."""
        if self._endpoints.pick(now).is_unknown:
            return []
        return [call for call in self._waiting if self._login.token is not None or self._is_login(call)]

    def _is_login(self, call: Call[Any]) -> bool:
        return call is self._logging_in

    def _start(self, call: Call[Any], now: float) -> None:
        member = call.member = self._endpoints.pick(now)
        try:
            connection = self._reused(member) or self._endpoints.dial(member)
        except OSError as fault:
            self._fail(call, fault.strerror or str(fault))
            return
        if connection is None:
            return
        call.connection = connection
        call.parts, call.size = [], 0
        seconds = LOGIN_SECONDS if self._is_login(call) else ATTEMPT_SECONDS
        rounds = min(8, call.attempts // len(self._url.endpoints))
        call.attempts += 1
        call.attempt_until = min(call.deadline, now + min(seconds * 2**rounds, ATTEMPT_SECONDS_MAX))
        call.token = self._login.token or ""
        self._waiting.remove(call)
        self._running[connection.fileno()] = call
        connection.ask(call.request.path, call.request.body, call.token)
        self._epoll.register(connection.fileno(), connection.wants)
        self._advance(call)

    def _advance(self, call: Call[Any]) -> None:
        connection = call.connection
        assert connection is not None
        try:
            pieces = connection.turn()
        except Broken as fault:
            self._fail(call, str(fault))
            return
        if connection.has_sent and call.request.is_change:
            call.attempt_until = call.deadline
        for piece in pieces:
            self._receive(call, piece)
        if not call.is_over and call.connection is connection:
            self._epoll.modify(connection.fileno(), connection.wants)

    def _receive(self, call: Call[Any], piece: Piece) -> None:
        if call.is_over:
            return
        if call.stream is not None and piece.status == 200:
            call.attempt_until = float("inf")
            if piece.data:
                call.stream(piece.data)
            if piece.is_end and not call.is_over:
                self._fail(call, "it ended the stream")
            return
        call.parts.append(piece.data)
        call.size += len(piece.data)
        if call.size > ANSWER_BYTES_MAX:
            self._fail(call, f"its answer has over {ANSWER_BYTES_MAX:,} bytes")
        elif piece.is_end:
            self._judge(call, read_answer(piece.status, b"".join(call.parts), call.request.answer))

    def _judge(self, call: Call[Any], answer: object) -> None:
        """Take a whole answer."""
        if not isinstance(answer, Failure):
            self._keep(call)
            self._finish(call, answer)
        elif answer.is_forgotten_login and self._url.user and call.logins < TRIES:
            self._keep(call)
            call.logins += 1
            self._login.forget(call.token)
            self._waiting.append(call)
        elif answer.is_without_effect:
            self._keep(call)
            self._finish(call, self._refused(answer))
        else:
            self._fail(call, answer.text)

    def _refused(self, failure: Failure) -> Refused:
        advice = ""
        if failure.status == Status.RESOURCE_EXHAUSTED:
            advice = "; compact and defragment etcd, then `etcdctl alarm disarm`"
        elif failure.status == Status.PERMISSION_DENIED and self._url.user:
            advice = f"; grant {self._url.user} a role with readwrite on prefix /{self._url.prefix}/"
        elif failure.status == Status.PERMISSION_DENIED or "user name is empty" in failure.text:
            advice = "; etcd has users: name one in its URL, as etcds://user:password@…"
        return Refused.of(failure.status, f"etcd refused a request: {failure.text}{advice}")

    def _fail(self, call: Call[Any], reason: str) -> None:
        """An attempt has come to nothing."""
        now = boottime()
        connection, member = call.connection, call.member
        assert member is not None
        if reason != LATE or member.endpoint not in call.reasons:
            call.reasons[member.endpoint] = reason
        has_sent = connection is not None and connection.has_sent
        self._release(call)
        self._endpoints.rest(member, now)
        if call.request.is_change and has_sent:
            self._finish(call, self._unknown(call))
        elif call.stream is not None:
            self._finish(call, self._unreachable(call))
        else:
            every = len(call.reasons) >= len(self._url.endpoints)
            call.not_before = now + PAUSE_SECONDS if every else now
            if call not in self._waiting:
                self._waiting.append(call)

    def _finish(self, call: Call[Any], outcome: object) -> None:
        self._drop(call)
        call.done(outcome)

    def _drop(self, call: Call[Any]) -> None:
        call.is_over = True
        self._release(call)
        with contextlib.suppress(ValueError):
            self._waiting.remove(call)

    def _release(self, call: Call[Any]) -> None:
        """Close the connection of a call."""
        if call.connection is not None:
            self._running.pop(call.connection.fileno(), None)
            self._epoll.unregister(call.connection.fileno())
            call.connection.close()
            call.connection = None

    def _keep(self, call: Call[Any]) -> None:
        """Keep the connection of a call for the next one."""
        connection, member = call.connection, call.member
        assert connection is not None
        assert member is not None
        if not connection.is_idle or len(member.idle) >= IDLE_MAX:
            self._release(call)
            return
        call.connection = None
        del self._running[connection.fileno()]
        self._idle[connection.fileno()] = (member, connection)
        self._epoll.modify(connection.fileno(), select.EPOLLIN)
        member.idle.append(connection)

    def _reused(self, member: Member) -> Connection | None:
        if not member.idle:
            return None
        connection = member.idle.pop()
        del self._idle[connection.fileno()]
        self._epoll.unregister(connection.fileno())
        return connection

    def _discard_idle(self, fd: int) -> None:
        """An idle connection is readable: the member has closed it."""
        member, connection = self._idle.pop(fd)
        member.idle.remove(connection)
        self._epoll.unregister(fd)
        connection.close()

    def _logged_in(self, outcome: Any) -> None:
        fault = self._login.receive(outcome)
        if fault is not None:
            for call in list(self._waiting):
                self._finish(call, fault)

    def _unreachable(self, call: Call[Any]) -> Unreachable:
        return Unreachable(f"no answer from etcd: {self._tried(call)}; check that its members run and can be reached")

    def _unknown(self, call: Call[Any]) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"a change was sent to etcd, and the answer was lost: {self._tried(call)}; read again what is there"
        )

    def _tried(self, call: Call[Any]) -> str:
        found = call.reasons
        if not found and self._logging_in is not None:
            found = self._logging_in.reasons  # it waited for a token
        reasons = {endpoint: found.get(endpoint, "not asked in time") for endpoint in self._url.endpoints}
        return ", ".join(f"{endpoint} ({reason})" for endpoint, reason in reasons.items())


class Stream:
    """An answer that has no end.

    Args:
        client: whose it is.
        call: that brings it.
    """

    def __init__(self, client: EtcdClient, call: Call[Any]) -> None:
        self._client = client
        self._call = call

    def end(self) -> None:
        """End it; nothing is called back any more."""
        self._client.drop(self._call)

    def leave(self) -> None:
        """End it, as it brings nothing; other members are asked first from now on."""
        self._client.drop(self._call, is_useless=True)
