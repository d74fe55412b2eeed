"""A broker as Spark's processes use it: one blocking connection, won back when it is lost, asked again where that is
harmless.

All named methods are idempotent, so they are asked again after a lost connection or while a shard or the coordinator is
not there, for `timeout` seconds.
"""

import atexit
import logging
import os
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from shardmq.client.api.tls import check_tls
from shardmq.client.api.url import parse_all
from shardmq.errors import ConnectionLost, Timeout, Unavailable, request_error
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.spark.connection.link import CHANNEL, Heard, Link
from shardmq.spark.connection.protocol import Buffer, Op, encode

DIAL_SECONDS: Final = 10.0
"""For one attempt at one address, where it is tried again anyway."""

PAUSE_SECONDS: Final = 0.1
"""Between two attempts at first; it doubles up to the next."""

PAUSE_SECONDS_MAX: Final = 2.0

_log = logging.getLogger("shardmq.spark")
_T = TypeVar("_T")


class Listener(Protocol):
    """Who hears what becomes of publishes."""

    def heard(self, operation: Op, values: list[Any]) -> None:
        """A BASIC_CONFIRM, BASIC_REFUSED, BASIC_RETURN or CHANNEL_CLOSE."""


class BrokerConnection:
    """A connection to one of a URL's gateways.

    Args:
        url: as the SDK takes it, shardmq://user:password@host:port/vhost, shardmqs:// with TLS, hosts between commas.
        timeout: seconds for connecting, for each answer, and for asking again.

    Attributes:
        life: how many connections there have been: whoever sees it change publishes again.
        blocked: why the broker takes no publishes now; "" while it does.
        listener: who hears of publishes, one at a time.

    Raises:
        InvalidRequest: the URL is none.
        ConnectionLost: nobody answers in time.
        AuthenticationFailed: user, password or virtual host were refused.
    """

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self._addresses = parse_all(url)
        check_tls(self._addresses, None)
        self._link: Link | None = None
        self._request = 2  # those of opening connection and channel
        self.timeout = timeout
        self.life = 0
        self.blocked = ""
        self.listener: Listener | None = None
        self.connect()

    def connect(self) -> None:
        """Be connected: at once where it is, else trying every address again and again, for `timeout` seconds.

        Raises:
            As the class.
        """
        if self._link is not None:
            return
        deadline = time.monotonic() + self.timeout
        pause = PAUSE_SECONDS
        while True:
            for address in list(self._addresses):
                left = deadline - time.monotonic()
                try:
                    self._link = Link(address, max(min(left, DIAL_SECONDS), PAUSE_SECONDS))
                except ConnectionLost as fault:
                    if isinstance(fault.__cause__, ssl.SSLCertVerificationError):
                        raise  # waiting does not make it trusted
                    lost = fault
                else:
                    self._begin_life()
                    return
                # The next attempt begins with the next one.
                self._addresses.append(self._addresses.pop(0))
            if time.monotonic() + pause > deadline:
                raise lost
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def ask(self, operation: Op, *values: object) -> Any:
        """Send one request on the channel and wait for its result.

        Args:
            operation: which.
            values: its fields behind request and channel, all of them.

        Raises:
            ConnectionLost: the connection was lost, or there was no answer in time. It may have been carried out.
            RequestError: it was refused.
        """
        self.connect()
        request = self.next_request()
        self.send(encode(operation, request, CHANNEL, *values))
        deadline = time.monotonic() + self.timeout
        while (left := deadline - time.monotonic()) > 0:
            for said, fields in self.turn(left):  # which has seen to all that is no answer
                if fields[0] != request:
                    continue  # to one that was given up
                if said is Op.REFUSED:
                    raise request_error(fields[2], fields[3])
                return fields[2]
        self.drop()
        raise ConnectionLost(f"the broker did not answer {operation.name} within {self.timeout:.0f} s")

    # --- transactions -----------------------------------------------------------------------------------------------

    def begin(self, name: str, timeout_ms: int = 0, number: int = 0) -> tuple[int, bool]:
        """Begin a transaction, or find the one of that name; its time begins anew. With a number, only that one.

        Returns:
            Its number, and whether it was committed already: then there is nothing left to do.
        """
        answer = self._insist(lambda: self.ask(Op.TRANSACTION_BEGIN, name, timeout_ms, number))
        return answer["number"], answer["state"] == "committed"

    def seal(self, number: int, attempt: int) -> int:
        """Say that an attempt is complete; returns how many messages it has staged, as its commit has to name."""
        answer = self._insist(lambda: self.ask(Op.TRANSACTION_SEAL, number, attempt))
        messages: int = answer["messages"]
        return messages

    def commit(self, name: str, number: int, attempts: list[tuple[int, int]]) -> bool:
        """Decide that what these attempts staged appears; asked again until it has, or `timeout` has passed.

        Returns:
            Whether all of it is in its queues; where not, the decision stands, and shards follow when they can.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self._insist(lambda: self.ask(Op.TRANSACTION_COMMIT, name, number, attempts))
            if answer["visible"] or time.monotonic() > deadline:
                return bool(answer["visible"])
            time.sleep(PAUSE_SECONDS)

    def abort(self, name: str, number: int = 0) -> None:
        """Decide that nothing of it ever appears; also where it is not there.

        Args:
            name: its name.
            number: 0 for whichever has the name now.

        Raises:
            PreconditionFailed: it was committed.
        """
        self._insist(lambda: self.ask(Op.TRANSACTION_ABORT, name, number))

    # --- reading ----------------------------------------------------------------------------------------------------

    def slices(self, queue: str, count: int, reservation: str = "") -> list[tuple[int, int, int]]:
        """Cut what is ready, or reserved, into about `count` ranges: [(first, end, messages)], end not included."""
        answer = self._insist(lambda: self.ask(Op.QUEUE_SLICES, queue, count, reservation))
        return [(first, end, messages) for first, end, messages in answer]

    def read(
        self, queue: str, first: int, end: int, count: int, reservation: str = ""
    ) -> tuple[list[dict[str, Any]], int | None]:
        """What of [first, end) is ready, or reserved: deliveries as SPEC.md has them, and where to read on."""
        answer = self._insist(lambda: self.ask(Op.QUEUE_READ, queue, first, end, count, reservation))
        return answer["deliveries"], answer["next"]

    def reserve(self, queue: str, name: str, messages_max: int = 0, lease_ms: int = 0) -> tuple[int, str]:
        """Set messages aside under a name: how many, and "held" or "acknowledged"."""
        answer = self._insist(lambda: self.ask(Op.QUEUE_RESERVE, queue, name, messages_max, lease_ms))
        return answer["messages"], answer["state"]

    def end_reservation(
        self, queue: str, name: str, acknowledge: bool, ranges: list[tuple[int, int]] | tuple[()] = ()
    ) -> int:
        """Acknowledge what is reserved, or of it only `ranges`; or put it back. Returns how many messages."""
        answer = self._insist(lambda: self.ask(Op.RESERVATION_END, queue, name, acknowledge, list(ranges)))
        messages: int = answer["messages"]
        return messages

    # --- for publishers ---------------------------------------------------------------------------------------------

    def next_request(self) -> int:
        """The number of the next request."""
        self._request += 1
        return self._request

    def send(self, *pieces: Buffer) -> None:
        """Queue a frame, which `turn` sends; `connect` comes first."""
        assert self._link is not None, "connect comes before send"
        self._link.send(*pieces)

    @property
    def body_max(self) -> int:
        """The largest body of a message that the broker takes, as it said when it was last connected to."""
        return self._link.body_max if self._link is not None else MESSAGE_BYTES_MAX

    @property
    def unsent(self) -> int:
        """Pieces of frames that have not left yet."""
        return self._link.unsent if self._link is not None else 0

    def turn(self, seconds: float) -> list[Heard]:
        """Send what can be sent, hear what has come, waiting `seconds` at most where there is neither.

        Returns:
            Answers to requests. All else is seen to.

        Raises:
            ConnectionLost, ConnectionFault: the connection is gone.
        """
        self.connect()
        assert self._link is not None
        try:
            heard = self._link.turn(seconds)
        except BaseException:
            self.drop()
            raise
        return [frame for frame in heard if not self._sees_to(*frame)]

    def drop(self) -> None:
        """Leave the connection, with all that is on its way; the next use makes another."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def is_alive(self) -> bool:
        """Whether the connection is there as far as one can tell without asking; what lies around is read."""
        if self._link is None:
            return False
        try:
            self.turn(0.0)
        except (ConnectionLost, OSError):
            return False
        return True

    def close(self) -> None:
        """Say goodbye and close the connection."""
        link, self._link = self._link, None
        if link is None:
            return
        try:
            link.send(encode(Op.CONNECTION_CLOSE, 200, ""))
            link.turn(0.0)
        except ConnectionLost:
            pass  # it said so first
        finally:
            link.close()

    def _begin_life(self) -> None:
        assert self._link is not None
        self.life += 1
        self.blocked = ""
        for frame in self._link.early:
            self._sees_to(*frame)

    def _sees_to(self, operation: Op, values: list[Any]) -> bool:
        if operation in (Op.OK, Op.REFUSED):
            return False
        if operation is Op.CONNECTION_BLOCKED:
            if not self.blocked:
                _log.warning("the broker takes no publishes for now (%s); waiting", values[0])
            self.blocked = values[0] or "it does not say why"
        elif operation is Op.CONNECTION_UNBLOCKED:
            _log.warning("the broker takes publishes again")
            self.blocked = ""
        elif operation is Op.CHANNEL_CLOSE:
            self.drop()  # with the channel goes all that was on it
            raise ConnectionLost(f"the broker closed the channel: {values[3]}")
        elif operation is not Op.HEARTBEAT and self.listener is not None:
            self.listener.heard(operation, values)
        return True

    def _insist(self, question: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self.timeout
        pause = PAUSE_SECONDS
        while True:
            try:
                return question()
            except (ConnectionLost, Unavailable, Timeout) as fault:
                if time.monotonic() + pause > deadline:
                    raise
                _log.info("asking again: %s", fault)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)


_connections: dict[tuple[int, str], BrokerConnection] = {}
"""Open connections by process id and URL. State of the process: Spark runs many tasks in one worker, one after the
other, and calls each with nothing but pickled values; a connection for each task would cost more than small tasks
do."""


def connection(url: str, timeout: float = 30.0) -> BrokerConnection:
    """This process's connection to a URL: Spark's python workers do one task after the other.

    Args:
        url: as `BrokerConnection` takes it.
        timeout: from now on.

    Raises:
        As `BrokerConnection`.
    """
    key = os.getpid(), url  # workers are forked; a parent's connection is not theirs
    broker = _connections.get(key)
    if broker is None:
        broker = _connections[key] = BrokerConnection(url, timeout)
    broker.timeout = timeout
    broker.listener = None
    if broker.unsent or not broker.is_alive():
        broker.drop()  # a task that failed left half a frame, or the broker has gone
        broker.connect()
    return broker


@atexit.register
def _close_all() -> None:
    for (pid, _), broker in _connections.items():
        if pid == os.getpid():
            broker.close()
