"""A shard process and the other end of its links, for tests: what a gateway or the coordinator would say to it."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Answer, BusMessage, Call, Inspect
from shardmq.bus.messages.shard import (
    AssignQueue,
    AtomicCommit,
    Confirmed,
    Consume,
    Delivered,
    Publish,
    ShardEvent,
)
from shardmq.bus.messages.stores import Enroll, Identity, Recorded
from shardmq.bus.poller import Poller, context
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.heard import Heard
from tests.warm import warm_process

T = TypeVar("T")

BROKER = "the-broker"

PATIENCE_SECONDS = 180.0
"""A disk that others keep busy makes a process that has just been started wait for its first commit."""

HEARD: Any = ShardEvent | Answer[Any]
"""What shards say, with results as they come."""


class Shard:
    """A shard process and a gateway's end of the link to it.

    Args:
        folder: the data directory.
        memory_bytes: for bodies in memory.
        options: more of `ShardOptions`.
    """

    def __init__(self, folder: Path, memory_bytes: int = 20_000, **options: Any) -> None:
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.options = options
        self.address = f"ipc://{folder}/s"
        self.context = context()
        self.inbox: list[Any] = []
        self.heard: dict[Dialer[Any], Heard] = {}
        self.start()
        try:
            enroll(self.context, self.address)
            self.dialer = self.dial("gateway-0")
        except BaseException:
            self.process.kill()
            self.process.wait()
            self.context.destroy(linger=0)
            raise

    def start(self) -> None:
        options = str(self.memory_bytes), json.dumps(self.options)
        self.process = warm_process.run("tests.shards.program:run", str(self.folder), self.address, *options)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def restart(self, number: int = signal.SIGKILL) -> None:
        self.stop(number)
        self.start()
        self.redial()

    def dial(self, name: str, role: str = "gateway") -> "Dialer[Any]":
        dialer: Dialer[Any] = Dialer(self.context, self.address, role, name, HEARD)
        dialer.call_as(BROKER, 1)
        self.expect(LinkOpened, dialer=dialer)
        return dialer

    def redial(self) -> None:
        self.dialer.close()
        self.inbox.clear()
        self.dialer = self.dial("gateway-0")

    def begin_anew(self) -> None:
        """End the session and open another over the same socket, as after a lost envelope."""
        self.dialer._lose("for the test")
        self.inbox.clear()
        self.expect(LinkOpened)

    def poll(self, dialer: "Dialer[Any]") -> None:
        Poller([dialer.socket]).wait(0.02)
        self.inbox += self.heard.setdefault(dialer, Heard()).whole(dialer.receive())
        self.inbox += dialer.tick(time.monotonic())

    def expect(self, kind: type[T], wanted: Callable[[T], bool] = lambda _: True, dialer: Any = None) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for message in self.inbox:
                if isinstance(message, kind) and wanted(message):
                    self.inbox.remove(message)
                    return message
            self.poll(dialer or self.dialer)
        raise AssertionError(f"no {kind.__name__} within {PATIENCE_SECONDS} s; there is {self.inbox[:20]}")

    def send(self, *messages: BusMessage) -> None:
        for message in messages:
            self.dialer.post(message)
        self.dialer.flush()

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.expect(Answer, lambda answer: answer.request == message.request).result

    def delivered(self, count: int) -> list[Delivered]:
        """Deliveries until so many messages have come."""
        got: list[Delivered] = []
        while sum(one.batch.count for one in got) < count:
            got.append(self.expect(Delivered))
        return got

    def assign(self, *queues: Queue) -> None:
        """Declare queues, and have them on disk: there is no coordinator here that tells a shard again what it lost."""
        self.ask(Call(1, AssignQueue(list(queues))))
        self.send(Recorded(max(queue.id for queue in queues)))
        self.ask(Call(1, AtomicCommit([], [], [])))

    def publish(self, message: Publish) -> None:
        """The session's first publish, or the next one after all before are confirmed: wait for its confirm."""
        self.send(message)
        self.expect(Confirmed)

    def queue(self, number: int = 1) -> dict[str, Any]:
        """The status of a queue."""
        tables = self.ask(Call(2, Inspect()))["queues"]
        return next(table for table in tables if table["id"] == number)

    def until(self, wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted():
            assert time.monotonic() < deadline, f"it did not come to be within {PATIENCE_SECONDS} s"
            self.poll(self.dialer)

    def close(self) -> None:
        self.dialer.close()
        if self.process.poll() is None:
            assert self.stop() == 0
        self.context.term()


def enroll(context: Any, address: str, turn: Callable[[], object] = lambda: None, generation: int = 1) -> None:
    """Tell a shard whose it is, as its coordinator does; `turn` has it work."""
    dialer: Dialer[Any] = Dialer(context, address, "coordinator", "coordinator", HEARD)
    deadline = time.monotonic() + PATIENCE_SECONDS
    heard: list[Any] = []
    while not any(isinstance(message, Answer) for message in heard):
        assert time.monotonic() < deadline, heard
        turn()
        Poller([dialer.socket]).wait(0.01)
        heard += dialer.tick(time.monotonic())
        for event in dialer.receive():
            heard.append(event)
            if isinstance(event, Identity):
                dialer.post(Call(1, Enroll(BROKER, generation)))
                dialer.flush()
    dialer.close()


def run_of(start: int, count: int, flags: int = 1) -> RecordBatch:
    return RecordBatch(
        "ex", "key", flags, 5, 9, start, count, pack_many([b"%d" % i for i in range(start, start + count)])
    )


def numbers(delivery_count: list[Delivered]) -> list[int]:
    return [int(record.body) for one in delivery_count for record in unpack(one.batch.records, one.batch.count)]


def consume(consumer: int, queue: int = 1, prefetch: int = 0, auto_ack: bool = False) -> Consume:
    return Call(100 + consumer, Consume(consumer, queue, prefetch, auto_ack, DELIVERY_WINDOW_BYTES))
