"""What jobs ask of reservations: what is left of one, and whether the job that made it runs."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from shardmq.errors import NotFound, PreconditionFailed, ShardmqError
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.protocol import Op

MARK_MS: Final = 60_000
"""How long a mark outlives a driver that died, in milliseconds. One that runs may be out of touch for as long."""

RENEWALS: Final = 6
"""How often a mark is renewed within that time."""

LOOK_SECONDS: Final = 0.5
"""How long to wait between two looks at a mark."""

_log = logging.getLogger("shardmq.spark")


def reserved(broker: BrokerConnection, queue: str, name: str) -> int | None:
    """How many messages are left of a reservation.

    Args:
        broker: the connection to ask over.
        queue: the queue's name.
        name: the reservation's.

    Returns:
        0 where all of it was acknowledged; None where there is no reservation of that name.

    Raises:
        NotFound: the queue does not exist.
        ShardmqError: the broker does not answer, or refuses.
    """
    try:
        return sum(messages for _, _, messages in broker.slices(queue, 1, name))
    except NotFound as fault:
        if f"no reservation '{name}'" not in fault.text:
            raise
        return None


def is_acknowledged(broker: BrokerConnection, queue: str, name: str) -> bool:
    """Whether there is a reservation of which all was acknowledged; not where there is none. Nothing changes.

    Raises:
        NotFound: the queue does not exist.
        ShardmqError: the broker does not answer, or refuses.
    """
    if reserved(broker, queue, name) != 0:
        return False
    try:
        broker.read(queue, 0, 1, 1, name)
    except PreconditionFailed:
        return True
    return False  # it holds nothing


class RunningMark:
    """Tells others that a job runs, for as long as a block does: a reservation of no messages, which a thread renews.

    It ends MARK_MS after a driver that died, at most.

        with RunningMark(url, queue, name):
            …

    Args:
        url: the broker's.
        queue: the queue that the job works on.
        name: of the job's reservation.

    Raises:
        NotFound: the queue does not exist.
        ShardmqError: the broker does not answer, or refuses.
    """

    def __init__(self, url: str, queue: str, name: str) -> None:
        self._queue = queue
        self._name = mark_of(name)
        self._is_over = threading.Event()
        self._broker = BrokerConnection(url)
        try:
            self._renew()
        except BaseException:
            self._broker.close()
            raise
        # The thread alone uses the connection until it has ended.
        self._thread = threading.Thread(target=self._keep, name=f"shardmq-{self._name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        try:
            self._broker.end_reservation(self._queue, self._name, False)
        except ShardmqError as gone:
            seconds = MARK_MS / 1000
            _log.warning("queue '%s': '%s' ends by itself within %.0f s: %s", self._queue, self._name, seconds, gone)
        finally:
            self._broker.close()

    def _keep(self) -> None:
        while not self._is_over.wait(MARK_MS / 1000 / RENEWALS):
            try:
                self._renew()
            except ShardmqError as fault:
                _log.warning("queue '%s': '%s' could not be renewed, trying again: %s", self._queue, self._name, fault)

    def _renew(self) -> None:
        self._broker.insist(Op.QUEUE_RESERVE, self._queue, self._name, 1, MARK_MS, [], False)


def runs(broker: BrokerConnection, queue: str, name: str, on_wait: Callable[[], object]) -> bool:
    """Whether the job that made a reservation runs. That is known at once, or after a little more than MARK_MS.

    Args:
        broker: the connection to ask over.
        queue: the queue that the job works on.
        name: of the job's reservation.
        on_wait: called once where it takes that long.

    Raises:
        NotFound: the queue does not exist.
        ShardmqError: the broker does not answer, or refuses.
    """
    mark = mark_of(name)
    if reserved(broker, queue, mark) is None:
        return False
    on_wait()
    deadline = time.monotonic() + MARK_MS / 1000 + LOOK_SECONDS
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        if reserved(broker, queue, mark) is None:
            return False
    return True  # it was renewed meanwhile


def mark_of(name: str) -> str:
    """The name of the mark of the job that made a reservation."""
    return f"{name}-runs"
