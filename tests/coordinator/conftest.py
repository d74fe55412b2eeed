"""A coordinator on its own thread, or as a process to be killed, with the ends of its links in the test's hands."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener, Peer
from shardmq.bus.messages.base import Answer, BusMessage, Call, Refusal, Request
from shardmq.bus.messages.coordinator import (
    AdmitConnection,
    Changes,
    CoordinatorEvent,
    ReportConnections,
    RunCommand,
    Snapshot,
    TopologyApplied,
)
from shardmq.bus.messages.shard import AssignQueue, DropQueue, PrepareDelete, ToShard, Unused
from shardmq.bus.messages.stores import Copy, Enroll, Expel, Hold, Identity
from shardmq.bus.messages.transactions import FollowDecision, Prepare
from shardmq.bus.poller import Poller, context
from shardmq.coordinator.loop import CoordinatorLoop
from shardmq.coordinator.process import CoordinatorOptions, build
from shardmq.runtime.clock import SteadyClock
from shardmq.topology import passwords
from shardmq.topology.commands import Command, DeleteExchange
from shardmq.topology.topology import Topology
from tests.coordinator.stores import StoreRoom
from tests.warm import QUICK_PASSWORDS, SHARDMQ, warm_process

GIVE_UP_SECONDS = 10.0
Kind = TypeVar("Kind")


class GatewayEnd:
    """A gateway's end of its link: keeps a replica, and says TopologyApplied unless told not to."""

    def __init__(self, room: "Room", name: str) -> None:
        self.topology = Topology()
        self.dialer: Dialer[Any] = Dialer(
            room.context, room.address("coordinator"), "gateway", name, CoordinatorEvent | Answer[Any]
        )
        self.heard: list[BusMessage | LinkOpened | LinkLost] = []
        self.answers: dict[int, Answer | Refusal] = {}
        self.shards: list[str] = []
        self.applies = True
        self._request = 0

    def call(self, request: Request[Any]) -> int:
        self._request += 1
        self.dialer.post(Call(self._request, request))
        return self._request

    def ask(self, command: Command) -> int:
        return self.call(RunCommand(command))

    def present(self, origin: int, *connections: tuple[str, str, int]) -> None:
        self.dialer.post(ReportConnections(origin, list(connections)))

    def admit(self, vhost: str, user: str) -> int:
        return self.call(AdmitConnection(vhost, user))

    def say_applied(self) -> None:
        self.dialer.post(TopologyApplied(self.topology.version))

    def work(self) -> None:
        for event in self.dialer.receive():
            self.heard.append(event)
            match event:
                case Snapshot():
                    self.topology.load(event)
                    self.shards = event.shards
                case Changes():
                    assert event.version == self.topology.version + 1
                    for change in event.changes:
                        self.topology.apply(change)
                    self.topology.version = event.version
                case Answer() | Refusal():
                    self.answers[event.request] = event
            if self.applies and isinstance(event, Snapshot | Changes):
                self.say_applied()


class Clock(SteadyClock):
    """Steady time that can be put forward."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class ShardEnd:
    """A shard's end of its link: answers what a coordinator asks of a shard, unless told not to.

    A queue in `busy` is in use. `counts` has what attempts have here, 0 where it says nothing. Decisions are not
    followed unless it `follows`.
    """

    def __init__(self, room: "Room", number: int) -> None:
        self.dialer: Listener[Any] = Listener(
            room.context, room.address(f"shard-{number}"), "shard", f"shard-{number}", ToShard
        )
        self.number = number
        room.identities.setdefault(number, Identity(f"store-{number}", number, "", 0, 0, False, []))
        self.room = room
        self.expelled: list[str] = []
        self.queues: dict[str, int] = {}
        self.dropped: list[int] = []
        self.busy: set[int] = set()
        self.prepared_deletions: set[int] = set()
        self.peers: set[Peer] = set()
        self.assigns = 0
        self.answers = True
        self.refusal: str | None = None
        self.withheld: list[tuple[Peer, BusMessage]] = []
        self.counts: dict[int, int] = {}
        self.follows = True
        self.prepared: list[tuple[int, list[int]]] = []
        self.decisions: list[tuple[int, list[int]]] = []
        self.backups: list[Hold | Copy] = []

    def say(self, message: BusMessage) -> None:
        for peer in self.peers:
            peer.post(message)

    def say_unused(self, queue: int) -> None:
        self.say(Unused(queue))

    def answer(self) -> None:
        withheld, self.withheld = self.withheld, []
        for peer, message in withheld:
            peer.post(message)

    def work(self) -> None:
        for peer, event in self.dialer.receive():
            match event:
                case LinkOpened():
                    self.peers.add(peer)
                    peer.post(self.room.identities[self.number])
                case LinkLost():
                    self.peers.discard(peer)
                case Expel():
                    self.expelled.append(event.text)
                case Call():
                    reply = self._reply(event.request, event.message)
                    if reply is not None:
                        self.withheld.append((peer, reply))
        if self.answers:
            self.answer()

    def _reply(self, request: int, message: Any) -> BusMessage | None:
        result: Any = None
        match message:
            case Enroll():
                self.room.enroll(self.number, message.broker, message.generation)
                return Answer(request, None)
            case PrepareDelete():
                self.prepared_deletions |= {message.queue} - self.busy
                if message.queue in self.busy:
                    return Refusal(request, 406, "queue in use")
                return Answer(request, None)
            case DropQueue():
                self.dropped.append(message.queue)
                return Answer(request, 42)
            case AssignQueue():
                self.assigns += 1
                self.queues.update({queue.name: queue.id for queue in message.queues})
                if not message.is_change:
                    self.prepared_deletions -= {queue.id for queue in message.queues}
            case Prepare():
                self.prepared.append((message.transaction, message.attempts))
                result = [self.counts.get(attempt, 0) for attempt in message.attempts]
            case Hold() | Copy():
                self.backups.append(message)
            case FollowDecision():
                self.decisions.append((message.transaction, message.attempts))
                if not self.follows:
                    return None
        return Refusal(request, 506, self.refusal) if self.refusal else Answer(request, result)


class Room:
    """Where a coordinator and the ends of its links meet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = context()
        self.ends: list[GatewayEnd | ShardEnd] = []
        self.boot_id = "first"
        self.shards = 2
        self.identities: dict[int, Identity] = {}  # of shards, by number
        self.clock: SteadyClock | None = None
        self._coordinator: CoordinatorLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def enroll(self, shard: int, broker: str, generation: int) -> None:
        """What a shard would have on disk then."""
        known = self.identities[shard]
        self.identities[shard] = msgspec.structs.replace(known, broker=broker, generation=generation)

    def address(self, name: str) -> str:
        return f"ipc://{self.folder}/bus-{name}"

    def start(self) -> None:
        shards = tuple(self.address(f"shard-{number}") for number in range(self.shards))
        options = CoordinatorOptions(self.folder, self.address("coordinator"), shards, self.boot_id)
        self._coordinator = build(options, self.clock)
        self._thread = threading.Thread(target=self._coordinator.serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._coordinator is not None and self._thread is not None:
            self._coordinator.stop()
            self._thread.join(GIVE_UP_SECONDS)
            assert not self._thread.is_alive()
            self._coordinator.close()
            self._coordinator = None

    def restart(self, boot_id: str | None = None) -> None:
        self.stop()
        self.boot_id = boot_id or self.boot_id
        self.start()

    def spawn(self) -> None:
        """Start the coordinator as a process of its own."""
        shards = [part for number in range(self.shards) for part in ("--shard", self.address(f"shard-{number}"))]
        where = ["--data-dir", str(self.folder), "--listen", self.address("coordinator"), "--boot-id", self.boot_id]
        self._process = warm_process.run(SHARDMQ, "coordinator", *where, *shards)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def gateways(self) -> list[Peer]:
        """Those that the coordinator has a link to."""
        assert self._coordinator is not None
        return self._coordinator._listener.peers

    def gateway(self, name: str = "gateway-0") -> GatewayEnd:
        end = GatewayEnd(self, name)
        self.ends.append(end)
        self.until(lambda: end.shards)
        return end

    def shard(self, number: int) -> ShardEnd:
        end = ShardEnd(self, number)
        self.ends.append(end)
        return end

    def hang_up(self, end: GatewayEnd | ShardEnd) -> None:
        end.dialer.close()
        self.ends.remove(end)

    def until(self, found: Callable[[], Kind | None]) -> Kind:
        """Work the ends until something is so."""
        waiter = Poller([end.dialer.socket for end in self.ends])
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < deadline:
            self._work()
            answer = found()
            if answer:
                return answer
            waiter.wait(0.02)
        raise AssertionError("it did not come to that in time")

    def settle(self, gateway: GatewayEnd) -> None:
        """Let everything said so far be done: a command that is refused at once has passed through."""
        self.perform(gateway, DeleteExchange("/", "amq.topic"))

    def perform(self, gateway: GatewayEnd, command: Command) -> Answer | Refusal:
        request = gateway.ask(command)
        self.until(lambda: request in gateway.answers)
        return gateway.answers[request]

    def close(self) -> None:
        self.stop()
        self.kill()
        for end in self.ends:
            end.dialer.close()
        self.context.destroy(linger=0)

    def _work(self) -> None:
        now = time.monotonic()
        for end in self.ends:
            end.work()
            end.dialer.flush()
            end.dialer.tick(now)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(passwords, "COST", QUICK_PASSWORDS)
    room = Room(tmp_path)
    yield room
    room.close()


@pytest.fixture
def clock(room: Room) -> Clock:
    """The coordinator's clock, from its next start on."""
    clock = room.clock = Clock()
    return clock


@pytest.fixture(params=["lmdb", "memory"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> StoreRoom:
    """A store on disk, and one in memory: what is true of one is true of the other."""
    return StoreRoom(tmp_path if request.param == "lmdb" else None)
