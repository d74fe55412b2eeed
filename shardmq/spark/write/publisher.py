"""Publishes on their way to the broker: a window of them, kept until each is confirmed."""

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
"""Unconfirmed bytes at most: some publishes of a megabyte, for the broker to write while the next ones are made."""

WINDOW_PUBLISHES: Final = 512
"""Unconfirmed publishes at most: each costs the broker its own steps, whatever its size."""

TURN_BYTES: Final = 128 << 10
TURN_PUBLISHES: Final = 32
"""Publishes are given to the socket once there are so many or they are so large: each turn is three system calls."""

PAUSE_SECONDS: Final = 0.1
"""Pause before what was refused for now is published again; it doubles up to PAUSE_SECONDS_MAX."""

PAUSE_SECONDS_MAX: Final = 2.0

TURN_SECONDS: Final = 1.0
"""How long one wait lasts at most, so that deadlines are checked."""

PERSISTENT: Final = 1
MANDATORY: Final = 2
"""Flags of a publish (`shardmq.message.record_batch`)."""


@dataclass(slots=True, eq=False)
class _Publish:
    """A publish that is not confirmed yet.

    Attributes:
        refused_at: when it was first refused for now, in seconds that the window waited; None if it was not refused.
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
    """Publishes on a connection that nobody else uses meanwhile.

    In a transaction every message has a number, counted from 0, and is sent again under it: the broker stages each
    number once. Without a transaction, messages of a lost connection are sent again in the same way; what a shard
    refused for now is published as new, and may be stored twice.

    Args:
        broker: the connection.
        transaction: its number, 0 for none.
        attempt: the producer number of the messages; 0 for a random one.
        timeout: seconds without progress, or of refusals, after which the window gives up. Time in which the broker is
            blocked does not count.
    """

    def __init__(self, broker: BrokerConnection, transaction: int = 0, attempt: int = 0, timeout: float = 60.0) -> None:
        self.attempt = attempt or FRAMED_PRODUCERS + secrets.randbelow(FRAMED_PRODUCERS)
        self.messages = 0
        self._broker = broker
        self._transaction = transaction
        self._timeout = timeout
        self._sequence = 0
        self._publishes: dict[int, _Publish] = {}  # by request number, in the order of sending
        self._again: list[_Publish] = []
        self._again_at = 0.0
        self._pause = PAUSE_SECONDS
        self._bytes = 0
        self._idle_bytes = self._idle_publishes = 0  # since the last turn
        self._returned: Unroutable | None = None
        self._refused: RequestError | None = None
        # Only time spent waiting for an unblocked broker counts: Spark may not call us for an hour.
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
        """Publish records as soon as the window has room. Small publishes are sent together, the last ones by `flush`.

        Args:
            exchange: the exchange's name.
            routing_key: the routing key.
            flags: PERSISTENT and MANDATORY, or 0.
            count: how many records there are.
            records: the records, back to back. They must not change until they are confirmed.
            delay_ms: milliseconds after which they join their queues.

        Raises:
            Unroutable: a mandatory message of this or an earlier publish was returned.
            RequestError: a publish was refused for good, or for `timeout` seconds.
            ConnectionFault: the connection was lost, and no new one could be made in time.
        """
        while (self._bytes and self._bytes + len(records) > WINDOW_BYTES) or self._waiting >= WINDOW_PUBLISHES:
            self._turn(TURN_SECONDS)
        publish = _Publish(exchange, routing_key, flags, count, records, delay_ms, self._next_sequence(count))
        self._bytes += len(records)
        self.messages += count
        self._send(publish)
        self._idle_bytes += len(records)
        self._idle_publishes += 1
        if self._idle_bytes >= TURN_BYTES or self._idle_publishes >= TURN_PUBLISHES:
            self._turn(0.0)

    def flush(self) -> None:
        """Wait until all publishes are confirmed.

        Raises:
            Unroutable: a mandatory message was returned.
            RequestError: a publish was refused for good, or for `timeout` seconds.
            ConnectionFault: the connection was lost, and no new one could be made in time.
        """
        while self._publishes or self._again:
            self._turn(TURN_SECONDS)
        self._raise()

    def heard(self, operation: Op, values: list[Any]) -> None:
        """Take what the broker says of publishes. Those of an earlier window on this connection are ignored."""
        if operation is Op.BASIC_CONFIRM:
            for publish in self._settled(values[1]):
                self._bytes -= len(publish.records)
                self._moved_at, self._is_moving = self._waited, True
                self._pause = PAUSE_SECONDS
        elif operation is Op.BASIC_REFUSED:
            _, requests, code, text, _ = values
            for publish in self._settled(requests):
                self._on_refused(publish, code, text)
        elif operation is Op.BASIC_RETURN:
            _, request, _, text, exchange, routing_key, _, count, _ = values
            if request in self._publishes and self._returned is None:
                self._returned = Unroutable(_unroutable(exchange, routing_key, count, text))

    @property
    def _waiting(self) -> int:
        return len(self._publishes) + len(self._again)

    def _next_sequence(self, count: int) -> int:
        first = self._sequence
        self._sequence += count
        return first

    def _settled(self, requests: list[list[int]]) -> list[_Publish]:
        found = []
        for first, last in requests:
            if last - first >= len(self._publishes):
                numbers = [number for number in self._publishes if first <= number <= last]
            else:
                numbers = [number for number in range(first, last + 1) if number in self._publishes]
            found += [self._publishes.pop(number) for number in numbers]
        return found

    def _on_refused(self, publish: _Publish, code: int, text: str) -> None:
        self._moved_at, self._is_moving = self._waited, True
        if code != ReplyCode.RESOURCE_ERROR:
            if self._refused is None:
                self._refused = refused(str(publish), code, text)
            return
        if publish.refused_at is None:
            publish.refused_at = self._waited
        if self._waited - publish.refused_at > self._timeout:
            text = f"{text} (for {self._timeout:.0f} s, option timeoutMs)"
            self._refused = self._refused or refused(str(publish), code, text)
            return
        if not self._again:
            self._again_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
        self._again.append(publish)

    def _turn(self, seconds: float) -> None:
        """Send, take answers and publish again what is due, waiting `seconds` at most."""
        now = time.monotonic()
        self._idle_bytes = self._idle_publishes = 0
        if self._again:
            if now >= self._again_at:
                again, self._again = self._again, []
                for publish in again:
                    if not self._transaction:
                        # Later numbers were sent meanwhile; under its old one a queue would take it for stored.
                        publish.sequence = self._next_sequence(publish.count)
                    self._send(publish)
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
        if self._publishes and self._waited - self._moved_at > self._timeout:
            publish = next(iter(self._publishes.values()))
            raise Timeout(
                f"the broker confirmed nothing for {self._timeout:.0f} s (option timeoutMs); the first of "
                f"{len(self._publishes)} publishes that wait is to {publish}"
            )

    def _send(self, publish: _Publish) -> None:
        self._broker.connect()
        self._follow()
        if not self._publishes:
            self._moved_at, self._is_moving = self._waited, True  # nothing was awaited before
        self._put(publish)

    def _put(self, publish: _Publish) -> None:
        request = self._broker.next_request()
        self._publishes[request] = publish
        self._broker.send(
            *encode_publish(
                request,
                CHANNEL,
                publish.exchange,
                publish.routing_key,
                publish.flags,
                publish.count,
                publish.records,
                publish.delay_ms,
                self.attempt,
                publish.sequence,
                self._transaction,
            )
        )

    def _follow(self) -> None:
        """After a reconnect, publish again what the old connection left unconfirmed, in the order of its numbers."""
        while self._life != self._broker.life:
            self._life = self._broker.life
            left = sorted(self._publishes.values(), key=lambda publish: publish.sequence)
            self._publishes.clear()
            # Without this, connections that are lost one after the other would reset the timeout for ever.
            if self._is_moving:
                self._moved_at, self._is_moving = self._waited, False
            for publish in left:
                self._put(publish)

    def _raise(self) -> None:
        fault = self._refused or self._returned
        if fault is not None:
            raise fault


def place(exchange: str, routing_key: str) -> str:
    """A publish's target in words."""
    named = f"exchange '{exchange}'" if exchange else "the default exchange"
    return f"{named} with routing key '{routing_key}'"


def refused(where: str, code: int, text: str) -> RequestError:
    """The error for a refused publish: of the code's own class, or PublishRefused, with the target in its text."""
    said = f"a publish to {where} was refused: {text}"
    error = request_error(code, said)
    if code == ReplyCode.RESOURCE_ERROR or type(error) is RequestError:
        return PublishRefused(said, reply_code(code))
    return error


def _unroutable(exchange: str, routing_key: str, count: int, text: str) -> str:
    rows = "a row" if count == 1 else f"{count} rows"
    return (
        f"no queue takes {rows} published to {place(exchange, routing_key)} ({text}); bind a queue, correct exchange "
        "or routing_key, or set option mandatory=false to drop such rows"
    )
