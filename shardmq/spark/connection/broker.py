"""One blocking connection to a broker, which reconnects and repeats its requests.

All requests here are idempotent. Each is repeated for up to `timeout` seconds after a lost connection, or while a
shard or the coordinator is away. For a commit they begin anew while shards get on with reading what was staged.
"""

import logging
import math
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from shardmq.client.api.tls import check_tls
from shardmq.client.api.url import parse_all
from shardmq.errors import ConnectionFault, ConnectionLost, StillPreparing, Timeout, Unavailable, request_error
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.spark.connection.gateways import ANY, Route, ordered
from shardmq.spark.connection.link import CHANNEL, Heard, Link
from shardmq.spark.connection.protocol import Buffer, Op, encode

DIAL_SECONDS: Final = 10.0
"""How long one attempt at one address may take; others follow."""

PAUSE_SECONDS: Final = 0.1
"""Pause between the first two attempts; it doubles up to PAUSE_SECONDS_MAX."""

PAUSE_SECONDS_MAX: Final = 2.0

RETURN_SECONDS: Final = 30.0
"""A connection that went on with another gateway tries its first one again this often, where a task begins,"""

RETURN_DIAL_SECONDS: Final = 1.0
"""and for no longer than this."""

_log = logging.getLogger("shardmq.spark")
_T = TypeVar("_T")


class Listener(Protocol):
    """Is told what becomes of publishes."""

    def heard(self, operation: Op, values: list[Any]) -> None:
        """Take a BASIC_CONFIRM, BASIC_REFUSED, BASIC_RETURN or CHANNEL_CLOSE."""


class BrokerConnection:
    """A connection to one of a URL's gateways.

    Args:
        url: as in the SDK: shardmq://user:password@host:port/vhost, shardmqs:// with TLS, several hosts between commas.
        timeout: seconds for connecting, for each answer, and for repeating a request.
        route: which of the gateways comes first.

    Attributes:
        life: how many connections were made. A publisher that sees it change publishes again.
        blocked: why the broker takes no publishes now; "" while it does.
        listener: is told what becomes of publishes.

    Raises:
        InvalidRequest: the URL is malformed.
        ConnectionLost: no broker answers in time.
        AuthenticationFailed: user, password or virtual host were refused.
    """

    def __init__(self, url: str, timeout: float = 30.0, route: Route = ANY) -> None:
        given = parse_all(url)
        check_tls(given, None)
        self._order = ordered(given, route)
        self._addresses = list(self._order)
        self._return_at = 0.0
        self._link: Link | None = None
        self._request = 2  # those of opening connection and channel
        self.timeout = timeout
        self.life = 0
        self.blocked = ""
        self.listener: Listener | None = None
        self.connect()

    def connect(self) -> None:
        """Connect, trying every address in turn for up to `timeout` seconds; do nothing where it is connected.

        Raises:
            ConnectionLost: no broker answers in time.
            AuthenticationFailed: user, password or virtual host were refused.
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
                # The next attempt begins with the next address.
                self._addresses.append(self._addresses.pop(0))
            if time.monotonic() + pause > deadline:
                raise lost
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def go_back(self) -> None:
        """Leave for the first gateway of the order, if it is another one and can be reached again."""
        now = time.monotonic()
        if self._link is None or self._link.address == self._order[0] or now < self._return_at:
            return
        self._return_at = now + RETURN_SECONDS
        try:
            link = Link(self._order[0], RETURN_DIAL_SECONDS)
        except ConnectionFault as fault:
            _log.info("staying with the gateway at %s: %s", self._link.address, fault)
            return
        self.close()
        self._link, self._addresses = link, list(self._order)
        self._begin_life()

    def ask(self, operation: Op, *values: object) -> Any:
        """Send one request on the channel and wait for its result.

        Args:
            operation: which one.
            values: all of its fields after request and channel.

        Raises:
            ConnectionLost: the connection was lost, or no answer came in time. The request may have been carried out.
            RequestError: the request was refused.
        """
        self.connect()
        request = self.next_request()
        self.send(encode(operation, request, CHANNEL, *values))
        deadline = time.monotonic() + self.timeout
        while (left := deadline - time.monotonic()) > 0:
            for said, fields in self.turn(left):  # these are answers alone
                if fields[0] != request:
                    continue  # the answer to a request that was given up
                if said is Op.REFUSED:
                    raise request_error(fields[2], fields[3])
                return fields[2]
        self.drop()
        raise ConnectionLost(f"the broker did not answer {operation.name} within {self.timeout:.0f} s")

    def begin(self, name: str, timeout_ms: int = 0, number: int = 0) -> tuple[int, bool]:
        """Begin a transaction, or join the open one of that name; its timeout starts again.

        Args:
            name: the transaction's name.
            timeout_ms: milliseconds after which it is aborted; 0 for the broker's default, a day.
            number: join the transaction of this number alone; 0 for any.

        Returns:
            The transaction's number, and whether it has been committed before.
        """
        answer = self._insist(lambda: self.ask(Op.TRANSACTION_BEGIN, name, timeout_ms, number))
        return answer["number"], answer["state"] == "committed"

    def seal(self, number: int, attempt: int) -> int:
        """Seal an attempt, which then takes nothing more; returns how many messages it staged."""
        answer = self._insist(lambda: self.ask(Op.TRANSACTION_SEAL, number, attempt))
        messages: int = answer["messages"]
        return messages

    def commit(self, name: str, number: int, attempts: list[tuple[int, int]]) -> bool:
        """Commit what these attempts staged, and wait up to `timeout` seconds until it is in its queues.

        The decision comes when shards have read what was staged, which may take long; it is waited for as long as they
        get on.

        Args:
            name: the transaction's name.
            number: its number.
            attempts: the attempts that count, each with its number of messages.

        Returns:
            Whether all messages are in their queues. If not, they will be: the decision stands, and shards follow it.

        Raises:
            StillPreparing: shards have not got on for `timeout` seconds; nothing is decided.
        """
        deadline = 0.0
        while True:
            answer = self._insist(lambda: self.ask(Op.TRANSACTION_COMMIT, name, number, attempts))
            deadline = deadline or time.monotonic() + self.timeout  # it is decided now
            if answer["visible"] or time.monotonic() > deadline:
                return bool(answer["visible"])
            time.sleep(PAUSE_SECONDS)

    def abort(self, name: str, number: int = 0) -> None:
        """Abort a transaction; do nothing where there is none.

        Args:
            name: the transaction's name.
            number: its number; 0 for whichever has the name now.

        Raises:
            PreconditionFailed: it is committed.
        """
        self._insist(lambda: self.ask(Op.TRANSACTION_ABORT, name, number))

    def slices(self, queue: str, count: int, reservation: str = "") -> list[tuple[int, int, int]]:
        """Cut the ready messages of a queue, or a reservation, into about `count` slices.

        Returns:
            For each slice its first number, the number behind its last, and how many messages it has.
        """
        answer = self._insist(lambda: self.ask(Op.QUEUE_SLICES, queue, count, reservation))
        return [(first, end, messages) for first, end, messages in answer]

    def read(
        self, queue: str, first: int, end: int, count: int, reservation: str = ""
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Read the ready or reserved messages numbered [first, end).

        Returns:
            Deliveries as SPEC.md has them, and the number to read on from, None at the end.
        """
        answer = self._insist(lambda: self.ask(Op.QUEUE_READ, queue, first, end, count, reservation))
        return answer["deliveries"], answer["next"]

    def gateways(self, queue: str) -> list[str]:
        """Where clients reach the hosts that lead the partitions of a topic, as host:port; of a queue, its one.

        Returns:
            Nothing where the broker is on one machine, or the URL names but one gateway.
        """
        self.connect()
        assert self._link is not None
        if not self._link.host or len(self._order) < 2:
            return []
        return [place["gateway"] for place in self._insist(lambda: self.ask(Op.QUEUE_PLACES, queue))]

    def reserve(self, queue: str, name: str, messages_max: int = 0, lease_ms: int = 0) -> tuple[int, str]:
        """Reserve messages under a name.

        Returns:
            How many are reserved, and the reservation's state: "held" or "acknowledged".
        """
        answer = self._insist(lambda: self.ask(Op.QUEUE_RESERVE, queue, name, messages_max, lease_ms, None, False))
        return answer["messages"], answer["state"]

    def end_reservation(
        self, queue: str, name: str, acknowledge: bool, ranges: list[tuple[int, int]] | tuple[()] = ()
    ) -> int:
        """Acknowledge a reservation, or only `ranges` of it, or put it back; returns how many messages that were."""
        answer = self._insist(lambda: self.ask(Op.RESERVATION_END, queue, name, acknowledge, list(ranges)))
        messages: int = answer["messages"]
        return messages

    def insist(self, operation: Op, *values: object) -> Any:
        """Send a request, again and again while the broker or a part of it is away, and wait for its result.

        Args:
            operation: which one; carried out twice, it must do no more than once.
            values: all of its fields after request and channel.

        Raises:
            ConnectionLost: no answer came in time.
            RequestError: the request was refused.
        """
        return self._insist(lambda: self.ask(operation, *values))

    def next_request(self) -> int:
        """Take the number of the next request."""
        self._request += 1
        return self._request

    def send(self, *pieces: Buffer) -> None:
        """Queue a frame that `turn` sends. The connection must be there: call `connect` before."""
        assert self._link is not None, "connect comes before send"
        self._link.send(*pieces)

    @property
    def body_max(self) -> int:
        """The largest body of a message that the broker takes, in bytes."""
        return self._link.body_max if self._link is not None else MESSAGE_BYTES_MAX

    @property
    def address(self) -> str:
        """The gateway, as host:port; "" while there is no connection."""
        return "" if self._link is None else str(self._link.address)

    @property
    def vhost(self) -> str:
        """The virtual host."""
        return self._order[0].vhost

    @property
    def broker(self) -> str:
        """The broker's id; "" of a broker that does not tell it, as older ones do not.

        Raises:
            ConnectionLost: no broker answers in time.
            AuthenticationFailed: user, password or virtual host were refused.
        """
        self.connect()
        return "" if self._link is None else self._link.broker

    @property
    def unsent(self) -> int:
        """How many pieces of frames have not been sent yet."""
        return self._link.unsent if self._link is not None else 0

    def turn(self, seconds: float) -> list[Heard]:
        """Send what can be sent and take what has come, waiting `seconds` at most.

        Args:
            seconds: how long to wait where nothing can be sent or read.

        Returns:
            The answers to requests. Other operations are handled here.

        Raises:
            ConnectionLost: the connection broke.
            ConnectionFault: the broker closed it for a mistake of ours.
        """
        self.connect()
        assert self._link is not None
        try:
            heard = self._link.turn(seconds)
        except BaseException:
            self.drop()
            raise
        return [frame for frame in heard if not self._handle(*frame)]

    def drop(self) -> None:
        """Drop the connection with all that is on its way; the next use connects again."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def is_alive(self) -> bool:
        """Whether the connection seems to work, told without a request. What has come is read."""
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
        except ConnectionFault:
            pass  # the broker closed it first
        finally:
            link.close()

    def _begin_life(self) -> None:
        assert self._link is not None
        self.life += 1
        self.blocked = ""
        for frame in self._link.early:
            self._handle(*frame)

    def _handle(self, operation: Op, values: list[Any]) -> bool:
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
            self.drop()  # all that was on the channel is gone with it
            raise ConnectionLost(f"the broker closed the channel: {values[3]}")
        elif operation is not Op.HEARTBEAT and self.listener is not None:
            self.listener.heard(operation, values)
        return True

    def _insist(self, question: Callable[[], _T]) -> _T:
        deadline = time.monotonic() + self.timeout
        pause = PAUSE_SECONDS
        bytes_left = math.inf
        while True:
            try:
                return question()
            except (ConnectionLost, Unavailable, Timeout) as fault:
                if isinstance(fault, StillPreparing) and fault.left < bytes_left:
                    bytes_left = fault.left
                    deadline, pause = time.monotonic() + self.timeout, PAUSE_SECONDS
                if time.monotonic() + pause > deadline:
                    raise
                _log.info("asking again: %s", fault)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
