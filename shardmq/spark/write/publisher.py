"""Runs on their way to the broker: a window of them, until each is confirmed, whatever happens in between."""

import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from shardmq.errors import (
    ConnectionLost,
    PublishRefused,
    ReplyCode,
    RequestError,
    Timeout,
    Unroutable,
    reply_code,
    request_error,
)
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.link import CHANNEL
from shardmq.spark.connection.protocol import Buffer, Op, encode_publish

WINDOW_BYTES: Final = 8 << 20
"""Unconfirmed at once. Some runs of a megabyte: enough for a broker to write while the next ones are made."""

WINDOW_RUNS: Final = 512
"""Unconfirmed at once where they are small. Each costs the broker its own steps, whatever its size."""

TURN_BYTES: Final = 128 << 10
TURN_RUNS: Final = 32
"""Runs are given to the socket when there are so many, or they are so large: each turn is three system calls."""

PAUSE_SECONDS: Final = 0.1
"""Before what was refused for now is published again; it doubles up to the next."""

PAUSE_SECONDS_MAX: Final = 2.0

TURN_SECONDS: Final = 1.0
"""One wait at most: after it, deadlines are looked at."""

PERSISTENT: Final = 1
MANDATORY: Final = 2
"""Flags of a publish (`shardmq.message.record`)."""


@dataclass(slots=True, eq=False)
class _Run:
    """One publish that is not confirmed yet.

    Attributes:
        refused_at: when it was first refused for now, as its publisher counts time; None where it was not.
    """

    exchange: str
    routing_key: str
    flags: int
    count: int
    records: Buffer
    delay_ms: int
    sequence: int
    refused_at: float | None = None

    def __str__(self) -> str:
        return place(self.exchange, self.routing_key)


class PublishWindow:
    """Publishes on a connection, which is its alone meanwhile.

    In a transaction every message has a number, counted from 0, and is sent again with that number: the broker stages
    each once. Without, a connection that is lost is made up for in the same way; what a shard refused for now is
    published as new and may be there twice.

    Args:
        broker: the connection.
        transaction: its number, 0 for none.
        attempt: who numbers the messages; made up where it is 0.
        timeout: seconds without any progress, or of being refused, after which it is given up. Waiting for a broker
            that says it is blocked does not count.
    """

    def __init__(self, broker: BrokerConnection, transaction: int = 0, attempt: int = 0, timeout: float = 60.0) -> None:
        self.attempt = attempt or FRAMED_PRODUCERS + secrets.randbelow(FRAMED_PRODUCERS)
        self.messages = 0
        self._broker = broker
        self._transaction = transaction
        self._timeout = timeout
        self._sequence = 0
        self._runs: dict[int, _Run] = {}  # by request, in the order of sending
        self._again: list[_Run] = []
        self._again_at = 0.0
        self._pause = PAUSE_SECONDS
        self._bytes = 0
        self._idle_bytes = self._idle_runs = 0  # since the last turn
        self._returned: Unroutable | None = None
        self._refused: RequestError | None = None
        # Time counts while it is waited for a broker that takes publishes; Spark may leave us alone for an hour.
        self._waited = 0.0
        self._moved_at = 0.0
        self._is_moving = False  # whether anything was settled on this connection
        self._life = broker.life
        broker.listener = self

    @property
    def broker(self) -> BrokerConnection:
        """The connection."""
        return self._broker

    def publish(
        self, exchange: str, routing_key: str, flags: int, count: int, records: Buffer, delay_ms: int = 0
    ) -> None:
        """Send a run, as soon as the window has room; small ones leave together, the last of them with `flush`.

        Args:
            exchange: where to.
            routing_key: with which key.
            flags: PERSISTENT and MANDATORY, or 0.
            count: how many records.
            records: them, back to back; not to be changed until it is confirmed.
            delay_ms: after which they join their queues.

        Raises:
            Unroutable: a mandatory message came back, of this or an earlier run.
            RequestError: one was refused for good, or for `timeout` seconds.
            ConnectionFault: the connection is gone and was not won back in time.
        """
        while (self._bytes and self._bytes + len(records) > WINDOW_BYTES) or self._waiting >= WINDOW_RUNS:
            self._turn(TURN_SECONDS)
        run = _Run(exchange, routing_key, flags, count, records, delay_ms, self._next_sequence(count))
        self._bytes += len(records)
        self.messages += count
        self._send(run)
        self._idle_bytes += len(records)
        self._idle_runs += 1
        if self._idle_bytes >= TURN_BYTES or self._idle_runs >= TURN_RUNS:
            self._turn(0.0)

    def flush(self) -> None:
        """Wait until all of it is confirmed.

        Raises:
            As `publish`.
        """
        while self._runs or self._again:
            self._turn(TURN_SECONDS)
        self._raise()

    def heard(self, operation: Op, values: list[Any]) -> None:
        """What the broker says of publishes; confirms of those that another has left behind are none of ours."""
        if operation is Op.BASIC_CONFIRM:
            for run in self._settled(values[1]):
                self._bytes -= len(run.records)
                self._moved_at, self._is_moving = self._waited, True
                self._pause = PAUSE_SECONDS
        elif operation is Op.BASIC_REFUSED:
            _, requests, code, text, _ = values
            for run in self._settled(requests):
                self._on_refused(run, code, text)
        elif operation is Op.BASIC_RETURN:
            _, request, _, text, exchange, routing_key, _, count, _ = values
            if request in self._runs and self._returned is None:
                self._returned = Unroutable(_unroutable(exchange, routing_key, count, text))

    @property
    def _waiting(self) -> int:
        return len(self._runs) + len(self._again)

    def _next_sequence(self, count: int) -> int:
        first = self._sequence
        self._sequence += count
        return first

    def _settled(self, requests: list[list[int]]) -> list[_Run]:
        runs = []
        for first, last in requests:
            if last - first >= len(self._runs):
                numbers = [number for number in self._runs if first <= number <= last]
            else:
                numbers = [number for number in range(first, last + 1) if number in self._runs]
            runs += [self._runs.pop(number) for number in numbers]
        return runs

    def _on_refused(self, run: _Run, code: int, text: str) -> None:
        self._moved_at, self._is_moving = self._waited, True
        if code != ReplyCode.RESOURCE_ERROR:
            if self._refused is None:
                self._refused = refused(str(run), code, text)
            return
        if run.refused_at is None:
            run.refused_at = self._waited
        if self._waited - run.refused_at > self._timeout:
            text = f"{text} (for {self._timeout:.0f} s, option timeoutMs)"
            self._refused = self._refused or refused(str(run), code, text)
            return
        if not self._again:
            self._again_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        self._again.append(run)

    def _turn(self, seconds: float) -> None:
        """One step of everything: send, hear, publish again; waits `seconds` at most."""
        now = time.monotonic()
        self._idle_bytes = self._idle_runs = 0
        if self._again:
            if now >= self._again_at:
                again, self._again = self._again, []
                for run in again:
                    if not self._transaction:
                        # Others were sent since, and a queue takes rising numbers: it would pass for stored.
                        run.sequence = self._next_sequence(run.count)
                    self._send(run)
            else:
                seconds = min(seconds, self._again_at - now)
        try:
            self._broker.turn(seconds)
        except ConnectionLost:
            self._broker.connect()
        self._follow()
        self._raise()
        if not self._broker.blocked:
            self._waited += time.monotonic() - now
        if self._runs and self._waited - self._moved_at > self._timeout:
            run = next(iter(self._runs.values()))
            raise Timeout(
                f"the broker confirmed nothing for {self._timeout:.0f} s (option timeoutMs); the first of "
                f"{len(self._runs)} publishes that wait is to {run}"
            )

    def _send(self, run: _Run) -> None:
        self._broker.connect()
        self._follow()
        if not self._runs:
            self._moved_at, self._is_moving = self._waited, True  # nothing was waited for before
        self._put(run)

    def _put(self, run: _Run) -> None:
        request = self._broker.next_request()
        self._runs[request] = run
        self._broker.send(
            *encode_publish(
                request,
                CHANNEL,
                run.exchange,
                run.routing_key,
                run.flags,
                run.count,
                run.records,
                run.delay_ms,
                self.attempt,
                run.sequence,
                self._transaction,
            )
        )

    def _follow(self) -> None:
        """On a new connection, publish again what the old one left unconfirmed, in the order of its numbers."""
        while self._life != self._broker.life:
            self._life = self._broker.life
            left = sorted(self._runs.values(), key=lambda run: run.sequence)
            self._runs.clear()
            if self._is_moving:  # or else connections that are lost one after the other would never be given up
                self._moved_at, self._is_moving = self._waited, False
            for run in left:
                self._put(run)

    def _raise(self) -> None:
        fault = self._refused or self._returned
        if fault is not None:
            raise fault


def place(exchange: str, routing_key: str) -> str:
    """A publish's target, in words."""
    named = f"exchange '{exchange}'" if exchange else "the default exchange"
    return f"{named} with routing key '{routing_key}'"


def refused(where: str, code: int, text: str) -> RequestError:
    """The exception for a publish that was not taken: its own class where the code names a fault, with its target."""
    said = f"a publish to {where} was refused: {text}"
    error = request_error(code, said)
    if code == ReplyCode.RESOURCE_ERROR or type(error) is RequestError:
        return PublishRefused(said, reply_code(code))
    return error


def _unroutable(exchange: str, routing_key: str, count: int, text: str) -> str:
    rows = "a row" if count == 1 else f"{count} rows"
    return (
        f"no queue takes {rows} published to {place(exchange, routing_key)} ({text}); bind a queue, correct exchange "
        "or routing_key, or set option mandatory=false to let such rows go"
    )
