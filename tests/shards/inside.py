"""A shard inside the test's own process, over a real link: its passes are made one by one, and a crash between two of
them is a copy of its store.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkOpened
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Answer, BusMessage, Call
from shardmq.bus.messages.shard import (
    AssignQueue,
    AtomicCommit,
    Confirmed,
    Delivered,
    Publish,
    PublishRefusal,
    ToShard,
)
from shardmq.bus.messages.stores import Recorded
from shardmq.bus.poller import Poller, context
from shardmq.shards.loop import ShardLoop
from shardmq.shards.storage.store import Store
from shardmq.topology.entities import Queue
from tests.shards.driver import BROKER, HEARD, consume, enroll, numbers
from tests.shards.heard import Heard

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

T = TypeVar("T")


class Inside:
    """A shard and a gateway's end of the link to it, in turns.

    Args:
        folder: of the shard's store and socket.
        memory_bytes: for bodies in memory.
    """

    def __init__(self, folder: Path, memory_bytes: int = 20_000) -> None:
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.context = context()
        self.inbox: list[Any] = []
        self.heard = Heard()
        self.passes = 0
        self.after_pass: Callable[[], None] = lambda: None
        folder.mkdir(mode=0o700, exist_ok=True)

    def open(self) -> None:
        address = f"ipc://{self.folder}/s"
        self.published = 0
        self.store = Store.open(self.folder / "store")
        self.listener: Listener[ToShard] = Listener(self.context, address, "shard", "shard-0", ToShard)
        self.loop = ShardLoop("shard-0", self.store, self.listener, self.memory_bytes)
        if not self.store.identity.broker:
            enroll(self.context, address, self._turn)
        self.dialer: Dialer[Any] = Dialer(self.context, address, "gateway", "gateway-0", HEARD)
        self.dialer.call_as(BROKER, 1)
        self.expect(LinkOpened)

    def turn(self) -> None:
        """Whatever has come makes a pass; so does what the shard wants to do by itself."""
        self._turn()
        self.inbox += self.heard.whole(self.dialer.receive())
        self.inbox += self.dialer.tick(time.monotonic())

    def _turn(self) -> None:
        seconds = min(0.02, self.loop.wait_seconds())
        if Poller([self.listener.socket]).wait(seconds) or self.loop.wait_seconds() <= 0:
            self.loop.run_pass()
            self.passes += 1
            self.after_pass()

    def send(self, *messages: BusMessage) -> None:
        for message in messages:
            self.dialer.post(message)
        self.dialer.flush()

    def expect(self, kind: type[T], wanted: Callable[[T], bool] = lambda _: True) -> T:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in self.inbox:
                if isinstance(message, kind) and wanted(message):
                    self.inbox.remove(message)
                    return message
            self.turn()
        raise AssertionError(f"no {kind.__name__} within 60 s; there is {self.inbox[:20]}")

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.expect(Answer, lambda answer: answer.request == message.request).result

    def publish(self, *messages: Publish) -> list[PublishRefusal]:
        """Send them and wait for their confirm; returns those that were refused."""
        self.published += len(messages)
        self.send(*messages)
        self.expect(Confirmed, lambda confirmed: confirmed.upto == self.published)
        refusals = [message for message in self.inbox if isinstance(message, PublishRefusal)]
        for refusal in refusals:
            self.inbox.remove(refusal)
        return refusals

    def assign(self, *queues: Queue) -> None:
        """Declare queues, and have them on disk."""
        self.ask(Call(1, AssignQueue(list(queues))))
        self.send(Recorded(max(queue.id for queue in queues)))
        self.ask(Call(1, AtomicCommit([], [], [])))

    def settle_down(self) -> None:
        """Until nothing that is decided is to be carried out."""
        deadline = time.monotonic() + 60
        while self.loop.table()["staged"]:
            assert time.monotonic() < deadline, self.loop.table()["staged"]
            self.turn()

    def contents(self, queue: int = 1) -> list[int]:
        """Numbers of the messages in a queue, which are consumed by that."""
        ready = self.ready(queue)
        self.ask(consume(90 + queue, queue, auto_ack=True))
        got: list[Delivered] = []
        while sum([one.batch.count for one in got]) < ready:
            got.append(self.expect(Delivered, lambda one: one.consumer == 90 + queue))
        return numbers(got)

    def ready(self, queue: int = 1) -> int:
        tables = self.loop.table()["queues"]
        return next(int(table["ready"]) for table in tables if table["id"] == queue)

    def copy(self, folder: Path) -> Path:
        """What a crash at this moment would leave."""
        folder.mkdir(mode=0o700)
        (folder / "store").mkdir()
        for name in ("data.mdb", "redo"):
            shutil.copy(self.folder / "store" / name, folder / "store" / name)
        return folder

    def restart(self) -> None:
        """Killed between two passes, and started again."""
        self.dialer.close()
        self.listener.close()
        held = self.copy(self.folder / "aside")
        self.store.close()
        shutil.rmtree(self.folder / "store")
        (held / "store").rename(self.folder / "store")
        held.rmdir()
        self.inbox.clear()
        self.open()

    def close(self) -> None:
        self.context.destroy(linger=0)
        self.store.close()


@contextmanager
def inside(folder: Path | None = None) -> Iterator[Inside]:
    """A shard in a folder; in a new one in memory, if none is given."""
    made = Path(tempfile.mkdtemp(dir=MEMORY)) if folder is None else folder
    shard = Inside(made)
    try:
        shard.open()
        yield shard
    finally:
        shard.close()
        if folder is None:
            shutil.rmtree(made)
