"""A gateway on a thread of this process; its coordinator and shards are played by the test, over the real bus."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop

from shardmq.bus.link import LinkOpened
from shardmq.bus.listener import Listener, Peer
from shardmq.bus.messages.base import Answer, Call, Refusal, Reset
from shardmq.bus.messages.coordinator import (
    Changes,
    RunCommand,
    Snapshot,
    ToCoordinator,
    TopologyApplied,
)
from shardmq.bus.messages.membership import GroupReleased, JoinGroup, LeaveGroup, ReportMembers
from shardmq.bus.messages.shard import Confirmed, ToShard
from shardmq.bus.poller import context
from shardmq.cmd.run.locks import hold_port
from shardmq.errors import RequestError
from shardmq.gateway.handlers.dead_letters import DeadLetterPublisher
from shardmq.gateway.loop import GatewayLoop
from shardmq.gateway.server import Server
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.changes import Change
from shardmq.topology.entities import Binding, Exchange, OpenTransaction, Permission, Queue, User, Vhost, predeclared
from tests.gateway.columns import one_by_one
from tests.warm import quick_hash

PATIENCE_SECONDS: Final = 10.0
GUEST: Final = User("guest", quick_hash("guest"), ("administrator",))
UNANSWERED: Final = object()
Kind = TypeVar("Kind")


class ShardEnd:
    """A shard's end of its link."""

    def __init__(self, listener: "Listener[Any]") -> None:
        self.listener = listener
        self.peer: Peer | None = None
        self.heard: list[Any] = []
        self.requests: dict[int, tuple[int, Any]] = {}  # by identity of what was asked
        self.publishes = 0

    def work(self) -> None:
        for peer, event in self.listener.receive():
            if isinstance(event, LinkOpened):
                self.peer = peer
                self.publishes = 0
            elif isinstance(event, Call):
                self.heard.append(event.message)
                self.requests[id(event.message)] = event.request, event.message
            else:
                self.heard += one_by_one(event)
        self.listener.tick(time.monotonic())

    def say(self, *messages: Any) -> None:
        assert self.peer is not None
        for message in messages:
            self.peer.post(message)
        self.listener.flush()


class Stage:
    """A gateway, and its peers as the test plays them.

    Args:
        folder: for sockets.
        queues: that exist in virtual host "/", (name, shard, arguments) each; ids are 1, 2, …
        exchanges: besides those that are always there.
        bindings: between them.
        user: who may log in, with the password "guest", and do everything.
        rss_bytes_max: of the gateway.
        transactions: that are undecided.

    Attributes:
        commands: what the coordinator was asked to do.
        answers: what it answers commands of a kind with, nil where nothing is said here; an error is a refusal, and
            UNANSWERED is no answer.
        told: what it tells before it answers commands of a kind.
        news: what it was told of members of groups, and asked to let them join.
        state: the gateway's.
        loop: runs it.
    """

    def __init__(
        self,
        folder: Path,
        queues: Sequence[tuple[str, int, dict[str, Any]]],
        exchanges: Sequence[Exchange] = (),
        bindings: Sequence[Binding] = (),
        user: User = GUEST,
        rss_bytes_max: int | None = None,
        transactions: Sequence[OpenTransaction] = (),
    ) -> None:
        self._holds = ExitStack()
        self.port = self._holds.enter_context(hold_port("127.0.0.1", 0))
        self._context = context()
        self._addresses = [f"ipc://{folder}/{name}" for name in ("coordinator", "shard-0", "shard-1")]
        self._rss_bytes_max = rss_bytes_max
        self.coordinator: Listener[Any] = Listener(
            self._context, self._addresses[0], "coordinator", "coordinator", ToCoordinator
        )
        self.shards = [
            ShardEnd(Listener(self._context, address, "shard", f"shard-{number}", ToShard))
            for number, address in enumerate(self._addresses[1:])
        ]
        self.commands: list[Any] = []
        self.answers: dict[type[Any], Any] = {}
        self.told: dict[type[Any], Change] = {}
        self.news: list[Any] = []
        self._synced = 0
        self._gateway: Peer | None = None
        self._snapshot = Snapshot(
            1,
            [Vhost("/")],
            [*predeclared("/"), *exchanges],
            [Queue("/", name, number, shard, True, terms) for number, (name, shard, terms) in enumerate(queues, 1)],
            list(bindings),
            [user],
            [Permission(user.name, "/", ".*", ".*", ".*")],
            [],
            list(transactions),
        )
        self._listening = threading.Event()
        self._ended = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()))
        self._thread.start()
        self.until(self._listening.is_set)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        state = GatewayState(
            "gateway-0", self._addresses[0], tuple(self._addresses[1:]), rss_bytes_max=self._rss_bytes_max
        )
        self.state, self.loop = state, GatewayLoop(state)
        DeadLetterPublisher(state)
        ticking = asyncio.create_task(self.loop.run())
        try:
            while not state.is_ready:
                await asyncio.sleep(0.005)
            server = Server(state, "127.0.0.1", self.port)
            await server.listen()
            self._listening.set()
            await stop.wait()
            await server.drain(0.0)
            await asyncio.sleep(0)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            self.loop.close()
            self._ended.set()

    def work(self) -> None:
        """Take in what has come to all ends."""
        for shard in self.shards:
            shard.work()
        if self.coordinator.socket.closed:
            return
        for peer, event in self.coordinator.receive():
            if isinstance(event, LinkOpened):
                self._gateway = peer
                peer.post(self._snapshot)
            elif isinstance(event, TopologyApplied):
                self._synced = event.version
            elif isinstance(event, Call) and isinstance(event.message, RunCommand):
                self.commands.append(event.message.command)
                change = self.told.get(type(event.message.command))
                if change is not None:
                    peer.post(Changes(max(self._synced, self._snapshot.version) + 1, [change]))
                answer = self.answers.get(type(event.message.command))
                self._answer(peer, event.request, answer)
            elif isinstance(event, Call) and isinstance(event.message, JoinGroup):
                self.news.append(event.message)
                self._answer(peer, event.request, self.answers.get(JoinGroup))
            elif isinstance(event, ReportMembers | LeaveGroup | GroupReleased):
                self.news.append(event)
        self.coordinator.tick(time.monotonic())

    def _answer(self, peer: Peer, request: int, answer: Any) -> None:
        if isinstance(answer, RequestError):
            peer.post(Refusal(request, answer.code, answer.text))
        elif answer is not UNANSWERED:
            peer.post(Answer(request, answer))

    def say_as_coordinator(self, *messages: Any) -> None:
        """The coordinator says something."""
        assert self._gateway is not None
        for message in messages:
            self._gateway.post(message)
        self.coordinator.flush()

    def break_coordinator_link(self) -> None:
        """The link breaks, and is there again."""
        self.say_as_coordinator(Reset("an envelope was lost"))

    def lose_coordinator(self) -> None:
        """It goes away, and the gateway notices."""
        self.coordinator.close()
        self.until(lambda: not self.state.coordinator.is_current)

    def tell(self, *changes: Change) -> None:
        """The topology changes, and the gateway has taken it in."""
        assert self._gateway is not None
        version = max(self._synced, self._snapshot.version) + 1
        self._gateway.post(Changes(version, list(changes)))
        self.coordinator.flush()
        self.until(lambda: self._synced == version)

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, [shard.heard for shard in self.shards]
            self.work()
            time.sleep(0.001)

    def expect(self, shard: int, kind: type[Kind]) -> Kind:
        """The next message of a kind that comes to a shard; those of other kinds stay."""
        heard = self.shards[shard].heard
        self.until(lambda: any(type(message) is kind for message in heard))
        place = next(place for place, message in enumerate(heard) if type(message) is kind)
        found: Kind = heard.pop(place)
        return found

    def request(self, asked: Any) -> int:
        """The number of a request that has come to a shard."""
        return next(shard.requests[id(asked)][0] for shard in self.shards if id(asked) in shard.requests)

    def say(self, shard: int, *messages: Any) -> None:
        """A shard says something."""
        self.shards[shard].say(*messages)

    def confirm(self, shard: int, upto: int) -> None:
        self.say(shard, Confirmed(upto))

    def close(self) -> None:
        self._stop()
        self.until(self._ended.is_set)
        self._thread.join()
        self.coordinator.close()
        for shard in self.shards:
            shard.listener.close()
        self._context.term()
        self._holds.close()
