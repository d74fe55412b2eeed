"""Calls to etcd with deadlines, from member to member, for a loop that must not block.

A loop waits until `fileno` is readable or `wait_seconds` have passed, and calls `turn`, from which all callbacks come.
Times are seconds by CLOCK_BOOTTIME, which goes on while the machine is suspended.

What reads is sent to the next member as well when one takes long (a hedged request), and the first answer counts: a
member may be frozen, or all may be slow. What changes something is sent once: if its answer is lost, nobody knows, and
the error says so.

A connection whose answer nobody waits for any more is kept until that has come: new ones take etcd longer than answers.
"""

import heapq
import itertools
import math
import select
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shardmq.replication.etcd.answers import Failure, read_answer
from shardmq.replication.etcd.errors import EtcdError, OutcomeUnknown, Unreachable
from shardmq.replication.etcd.members import failures
from shardmq.replication.etcd.members.attempt import CLOSED_SECONDS, LATE, LATE_LOGIN_SECONDS, Attempt, Call
from shardmq.replication.etcd.members.connection import Broken, Connection, Piece
from shardmq.replication.etcd.members.endpoints import IDLE_MAX, Endpoints, Member
from shardmq.replication.etcd.members.login import TRIES, Login
from shardmq.replication.etcd.members.resolver import Resolver
from shardmq.replication.etcd.messages import Request, authenticate_request
from shardmq.replication.etcd.url import EtcdUrl
from shardmq.runtime.clock import boottime

Answer = TypeVar("Answer")

TURN_SECONDS_MAX: Final = 60.0
"""Between two turns, where nothing is waited for but what comes by itself."""

PAUSE_SECONDS: Final = 0.1
"""Between two attempts of a call, once every member had one that failed."""

LOGINS_SECONDS: Final = 10.0
"""For a login by whichever member."""

ANSWER_BYTES_MAX: Final = 256 << 20
"""An answer that is larger is not read. All values of a broker's register have some MB."""


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
        self._calls: list[Call[Any]] = []
        self._attempts: dict[int, Attempt] = {}
        self._idle: dict[int, tuple[Member, Connection]] = {}
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
        times = [attempt.until for attempt in self._attempts.values()]
        times += [call.next_at for call in self._startable(now)]
        times += [call.deadline for call in self._calls]
        times += [when for when, _, _ in self._timers[:1]]
        return max(0.0, min([*times, now + TURN_SECONDS_MAX]) - now)

    def ask(self, request: Request[Answer], deadline: float, done: Callable[[Answer | EtcdError], None]) -> None:
        """Send a request.

        Args:
            request: what is asked.
            deadline: until when an answer is of use, by `boottime`.
            done: called from `turn` with the answer, or with `Unreachable`, `Refused` or `OutcomeUnknown`.
        """
        self._calls.append(Call(request, deadline, done))

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
        self._calls.append(call)
        return Stream(self, call)

    def later(self, seconds: float, done: Callable[[], None]) -> None:
        """Call back from a `turn`, after some time."""
        heapq.heappush(self._timers, (boottime() + seconds, next(self._counter), done))

    def drop(self, call: Call[Any], is_useless: bool = False) -> None:
        """Forget a call, which is not called back any more; ask other members first if this one was useless."""
        for attempt in call.attempts if is_useless else ():
            self._endpoints.rest(attempt.member, boottime())
        self._end(call)

    def turn(self) -> None:
        """Do all that can be done now, without waiting."""
        for fd, _ in self._epoll.poll(0):
            if fd == self._resolver.reader:
                self._resolver.deliver()
            elif fd in self._idle:
                self._discard_idle(fd)
            elif fd in self._attempts:
                self._advance(self._attempts[fd])
        now = boottime()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        for attempt in [attempt for attempt in self._attempts.values() if attempt.until <= now]:
            if self._is_open(attempt):  # else closed by what another one has called back
                self._fail(attempt, LATE)
        for call in [call for call in self._calls if call.deadline <= now]:
            if not call.is_over:
                self._finish(call, self._unanswered(call))
        if self._lacks_token:
            self._ask_for_token(now)
        for call in self._startable(now):
            if call.next_at <= now and not call.is_over:
                self._ask_next(call, now)

    def close(self) -> None:
        """Close all connections. No callback comes any more."""
        for attempt in list(self._attempts.values()):
            self._close(attempt)
        self._calls.clear()
        self._endpoints.close()
        self._epoll.close()
        self._resolver.close()

    @property
    def _lacks_token(self) -> bool:
        return self._login.token is None and not self._login.is_asked and bool(self._calls)

    def _ask_for_token(self, now: float) -> None:
        self._login.is_asked = True
        request = authenticate_request(self._url.user, self._url.password)
        self._logging_in = Call(request, now + LOGINS_SECONDS, self._logged_in, late_seconds=LATE_LOGIN_SECONDS)
        self._calls.append(self._logging_in)

    def _startable(self, now: float) -> list[Call[Any]]:
        """Calls that wait for nothing but their time."""
        if self._endpoints.pick(now).is_unknown:
            return []
        return [call for call in self._calls if self._login.token is not None or self._is_login(call)]

    def _is_login(self, call: Call[Any]) -> bool:
        return call is self._logging_in

    def _is_open(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.connection.fileno()) is attempt

    def _ask_next(self, call: Call[Any], now: float) -> None:
        """Ask the first member, or the next one beside those that have not answered yet."""
        if call.attempts and not call.attempts[-1].is_late:
            self._pass_over(call, call.attempts[-1], now)
        member = self._endpoints.pick(now)
        try:
            connection = self._reused(member) or self._endpoints.dial(member)
        except OSError as fault:
            self._note(call, member, fault.strerror or str(fault))
            return
        if connection is None:
            return
        call.next_at = now + call.patience(len(self._url.endpoints))
        call.asked += 1
        attempt = Attempt(call, member, connection, self._login.token or "", now + CLOSED_SECONDS)
        call.attempts.append(attempt)
        self._attempts[connection.fileno()] = attempt
        connection.ask(call.request.path, call.request.body, attempt.token)
        self._epoll.register(connection.fileno(), connection.wants)
        self._advance(attempt)

    def _pass_over(self, call: Call[Any], attempt: Attempt, now: float) -> None:
        """A member takes long."""
        attempt.is_late = True
        call.note(attempt.member, LATE)
        self._endpoints.rest(attempt.member, now)
        if call.request.is_change:
            self._leave(attempt)  # it has sent nothing yet, and must not once the next one does

    def _advance(self, attempt: Attempt) -> None:
        connection, call = attempt.connection, attempt.call
        try:
            pieces = connection.turn()
        except Broken as fault:
            self._fail(attempt, str(fault))
            return
        if call is not None and call.request.is_change and connection.has_sent:
            call.next_at = attempt.until = math.inf
        for piece in pieces:
            if self._is_open(attempt):
                self._receive(attempt, piece)
        if not self._is_open(attempt):
            return
        if attempt.call is None and connection.is_idle:
            self._keep(attempt)
        else:
            self._epoll.modify(connection.fileno(), connection.wants)

    def _receive(self, attempt: Attempt, piece: Piece) -> None:
        call = attempt.call
        if call is None:
            return
        if call.stream is not None and piece.status == 200:
            self._stream(call, call.stream, attempt, piece)
            return
        attempt.parts.append(piece.data)
        attempt.size += len(piece.data)
        if attempt.size > ANSWER_BYTES_MAX:
            self._fail(attempt, f"its answer has over {ANSWER_BYTES_MAX:,} bytes")
        elif piece.is_end:
            answer = read_answer(piece.status, b"".join(attempt.parts), call.request.answer)
            self._judge(call, attempt, answer)

    def _stream(self, call: Call[Any], receive: Callable[[bytes], None], attempt: Attempt, piece: Piece) -> None:
        """Take a part of an answer that has no end, from the member whose first part came first."""
        attempt.until = math.inf
        for other in [other for other in call.attempts if other is not attempt]:
            self._close(other)
        if call in self._calls:
            self._calls.remove(call)
        if piece.data:
            receive(piece.data)
        if piece.is_end and not call.is_over:
            self._fail(attempt, "it ended the stream")

    def _judge(self, call: Call[Any], attempt: Attempt, answer: object) -> None:
        """Take a whole answer."""
        if not isinstance(answer, Failure):
            self._keep(attempt)
            self._finish(call, answer)
        elif answer.is_forgotten_login and self._url.user and call.logins < TRIES:
            self._keep(attempt)
            call.logins += self._login.forget(attempt.token)
            call.next_at = boottime()
        elif answer.is_without_effect:
            self._keep(attempt)
            self._finish(call, failures.refused(answer, self._url))
        else:
            self._fail(attempt, answer.text)

    def _fail(self, attempt: Attempt, reason: str) -> None:
        """An attempt has come to nothing."""
        call = attempt.call
        has_sent = attempt.connection.has_sent
        is_newest = call is not None and call.attempts[-1] is attempt
        self._close(attempt)
        if call is None:
            return
        self._note(call, attempt.member, reason, is_newest)
        if call.request.is_change and has_sent:
            self._finish(call, self._unknown(call))
        elif call.stream is not None and not call.attempts:
            self._finish(call, self._unreachable(call))

    def _note(self, call: Call[Any], member: Member, reason: str, is_newest: bool = True) -> None:
        """A member has brought nothing to a call; if it was the newest that was asked, the next one is to be."""
        now = boottime()
        call.note(member, reason)
        self._endpoints.rest(member, now)
        if is_newest:
            has_each = len(call.reasons) >= len(self._url.endpoints)
            call.next_at = now + PAUSE_SECONDS if has_each else now

    def _finish(self, call: Call[Any], outcome: object) -> None:
        self._end(call)
        call.done(outcome)

    def _end(self, call: Call[Any]) -> None:
        """Nobody waits for a call any more."""
        call.is_over = True
        if call in self._calls:
            self._calls.remove(call)
        for attempt in list(call.attempts):
            self._close(attempt) if call.stream is not None else self._leave(attempt)

    def _forget(self, attempt: Attempt) -> None:
        """An attempt's call has it no more."""
        if attempt.call is not None:
            attempt.call.attempts.remove(attempt)
            attempt.call = None

    def _close(self, attempt: Attempt) -> None:
        """End an attempt, and its connection."""
        self._forget(attempt)
        del self._attempts[attempt.connection.fileno()]
        self._epoll.unregister(attempt.connection.fileno())
        attempt.connection.close()

    def _leave(self, attempt: Attempt) -> None:
        """Nobody waits for the answer of an attempt any more; its connection is kept once that has come."""
        self._forget(attempt)
        left = [other for other in self._attempts.values() if other.call is None and other.member is attempt.member]
        if len(left) > IDLE_MAX:
            self._close(attempt)
            return
        attempt.until = boottime() + CLOSED_SECONDS
        attempt.connection.withdraw()
        if attempt.connection.is_idle:
            self._keep(attempt)

    def _keep(self, attempt: Attempt) -> None:
        """End an attempt, and keep its connection for the next one."""
        connection, member = attempt.connection, attempt.member
        if not connection.is_idle or len(member.idle) >= IDLE_MAX:
            self._close(attempt)
            return
        self._forget(attempt)
        del self._attempts[connection.fileno()]
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
            for call in [call for call in self._calls if not call.attempts]:
                self._finish(call, fault)

    def _unanswered(self, call: Call[Any]) -> EtcdError:
        """Its deadline has come."""
        for attempt in call.attempts:
            call.note(attempt.member, LATE)
            self._endpoints.rest(attempt.member, boottime())
        return self._unknown(call) if call.request.is_change and call.has_sent else self._unreachable(call)

    def _unreachable(self, call: Call[Any]) -> Unreachable:
        reasons = call.reasons
        if not reasons and self._logging_in is not None:
            reasons = self._logging_in.reasons  # it waited for a token
        return failures.unreachable(reasons, self._url)

    def _unknown(self, call: Call[Any]) -> OutcomeUnknown:
        return failures.unknown(call.reasons, self._url)


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
