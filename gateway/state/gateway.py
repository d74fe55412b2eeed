"""What all connections of a gateway share: the topology replica, the links, and the pass.

A pass is one turn of the event loop: everything read in it is gathered by shard and by client and sent on at its end,
one envelope a shard and one write a client. Under load passes grow, and so do the runs; nothing waits for a timer.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from shardmq.bus.coordinator_link import CoordinatorLink
from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.bus.dialer import Dialer
from shardmq.bus.messages.coordinator import FromCoordinator
from shardmq.bus.messages.shard import FromShard
from shardmq.bus.poller import context
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.state.alarms import Alarms, MemoryWatch
from shardmq.gateway.state.message_loans import Lender
from shardmq.gateway.state.permissions import Permissions
from shardmq.gateway.state.routes import PLANS_MAX, Route
from shardmq.gateway.state.time_slices import Turns
from shardmq.limits import LOANS_SHARE, UNREAD_SHARE, WINDOWS_SHARE
from shardmq.message.properties import Properties
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.vitals import vitals
from shardmq.topology.entities import Queue
from shardmq.topology.topology import Topology

TICK_SECONDS: Final = 0.1
"""How often links and deadlines are looked after."""

TICK_AT_REST_SECONDS: Final = 0.5
"""The same, when nothing has happened since the last time and every link is open: still twice for every ping."""


class Writer(Protocol):
    """A connection with something to send."""

    def flush(self) -> None:
        """Send it."""


class Retuned(Protocol):
    """A channel whose limits were changed."""

    def retune(self) -> None:
        """Carry that out."""


class GatewayState:
    """See the module.

    Args:
        name: of this gateway.
        coordinator: bus address.
        shards: bus addresses, by shard number.
        security: of the bus, where it is TCP.
        rss_bytes_max: resident memory above which publishers are blocked; None for a share of the machine's.

    Attributes:
        alarms: of this process and all shards.
        lender: of room for large messages.
        turns: of connections with much to do.
        passes: how many there were.
        windows_bytes: what the n-th consumer has an n-th part of at most.
        unread_bytes: what clients that are behind have not read, together.
        unread_bytes_max: past it, nothing more is done for those that are.
        origin: 64 random bits, this gateway's life; with `next_serial` they make message ids.
        now_ms: steady time of this pass, milliseconds since 1970.
    """

    def __init__(
        self,
        name: str,
        coordinator: str,
        shards: tuple[str, ...],
        security: CurveKeys = NO_KEYS,
        rss_bytes_max: int | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context(security)
        self.name = name
        self.origin = secrets.randbits(64)
        self.next_serial = 1
        self._clock = SteadyClock()
        self.now_ms = self._clock.now_ms()
        self.topology = Topology()
        self.coordinator = CoordinatorLink(
            Dialer(self._context, coordinator, "gateway", name, FromCoordinator, "coordinator"),
            self.topology,
            self.changed,
            self._forget_plans,
            self.table,
        )
        self.alarms = Alarms()
        self.turns = Turns(self._loop)
        self.passes = 0
        self.links = [
            ShardLink(
                Dialer(self._context, address, "gateway", name, FromShard, f"shard-{index}", waits=True),
                f"shard-{index}",
                self.changed,
                self.topology.has_queue,
                self.alarms,
            )
            for index, address in enumerate(shards)
        ]
        self.coordinator.identified = self._call_shards
        self._plans: dict[tuple[str, str, str], Route | None] = {}
        self._plans_to: dict[tuple[int, ...], Route] = {}
        self._rights: WeakValueDictionary[tuple[str, str], Permissions] = WeakValueDictionary()
        self._writers: list[Writer] = []
        self._retuned: list[Retuned] = []
        self._flush_due = False
        self._is_stirred = True  # since the last tick
        self._woken = asyncio.Event()
        watch = MemoryWatch(self.alarms, name, rss_bytes_max, len(shards) + 1)
        self.lender = Lender(watch.bytes_max // LOANS_SHARE)
        self.unread_bytes = 0
        self.unread_bytes_max = watch.bytes_max // UNREAD_SHARE
        self.windows_bytes = watch.bytes_max // WINDOWS_SHARE
        self._wakers: list[Callable[[float], None]] = [watch.tick]
        self._census: Callable[[], dict[str, Any]] = dict
        self._all: tuple[ShardLink | CoordinatorLink, ...] = (self.coordinator, *self.links)
        for link in self._all:
            self._loop.add_reader(link.dialer.socket.fileno(), self._drain, link)

    @property
    def is_ready(self) -> bool:
        """Whether the topology is here and every shard is there."""
        return self.coordinator.is_synced and all(link.is_open for link in self.links)

    @property
    def is_settled(self) -> bool:
        """Whether every publish has been answered."""
        return all(link.confirms.is_settled for link in self.links)

    @property
    def next_window(self) -> int:
        """What the window of one more consumer may be, for what those of all consumers here take together."""
        return self.windows_bytes // (sum([link.consumers for link in self.links]) + 1) + 1

    def on_tick(self, call: Callable[[float], None]) -> None:
        """Have `call(monotonic now)` made with every tick."""
        self._wakers.append(call)

    def on_census(self, call: Callable[[], dict[str, Any]]) -> None:
        """Have `call` count connections and the like for the status."""
        self._census = call

    def table(self) -> dict[str, Any]:
        """How this gateway is: as every process, its connections, channels and consumers, and its alarms."""
        return {**vitals(self.name, "gateway"), **self._census(), "alarms": self.alarms.of(self.name)}

    def rights(self, user: str, vhost: str) -> Permissions:
        """What a user may do in a virtual host: the same object for all sessions that have it."""
        rights = self._rights.get((user, vhost))
        if rights is None:
            rights = self._rights[user, vhost] = Permissions(self.topology, user, vhost)
        return rights

    def plan(self, vhost: str, exchange: str, key: str) -> Route | None:
        """Where a publish goes; None where its key does not settle that (`Router.needs_message`).

        Raises:
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        route = (vhost, exchange, key)
        try:
            return self._plans[route]
        except KeyError:
            pass
        plan = None
        topology = self.topology
        if (vhost, exchange) not in topology.exchanges or not topology.router.needs_message(vhost, exchange):
            plan = self.plan_to(topology.router.route(vhost, exchange, key))
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
        self._plans[route] = plan
        return plan

    def plan_message(self, vhost: str, exchange: str, keys: Sequence[str], properties: Properties | None) -> Route:
        """Where one message goes: with several keys, or where its properties matter.

        Raises:
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        return self.plan_to(self.topology.router.route_message(vhost, exchange, keys, properties))

    def plan_to(self, queues: Sequence[Queue]) -> Route:
        """The way to some queues: the same object each time, so that neighbours on it are found to be that."""
        ids = tuple([queue.id for queue in queues])
        plan = self._plans_to.get(ids)
        if plan is None:
            plan = Route.to(queues, self.links)
            if len(self._plans_to) >= PLANS_MAX:
                self._plans_to.clear()
            self._plans_to[ids] = plan
        return plan

    def changed(self) -> None:
        """Something was posted or is to be written: see to it at the end of this pass."""
        if not self._flush_due:
            self._flush_due = True
            self.now_ms = self._clock.now_ms()
            self._loop.call_soon(self._flush)

    def write_due(self, writer: Writer) -> None:
        """A connection has something to send at the end of this pass."""
        self._writers.append(writer)
        self.changed()

    def retune_due(self, channel: Retuned) -> None:
        """A channel's limits are others from the end of this pass on."""
        self._retuned.append(channel)
        self.changed()

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self._tick(time.monotonic())
            if self._is_stirred or not all(link.dialer.is_open for link in self._all):
                self._is_stirred = False
                await asyncio.sleep(TICK_SECONDS)
                continue
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_AT_REST_SECONDS):
                    await self._woken.wait()

    def close(self) -> None:
        """Hang up on all."""
        for link in self._all:
            self._loop.remove_reader(link.dialer.socket.fileno())
            link.dialer.close()
        self._context.term()

    def _tick(self, now: float) -> None:
        for each in self._all:
            each.tick(now)
            self._drain(each)  # ticking sends, too; see _send
        for call in self._wakers:
            call(now)
        self._send()

    def _call_shards(self, broker: str, generation: int) -> None:
        """It is known which broker's this gateway is: shards of another one give it no session."""
        for link in self.links:
            link.dialer.call_as(broker, generation)
            if not link.is_open:
                link.tick(time.monotonic())

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._plans_to.clear()
        for rights in self._rights.values():
            rights.forget()

    def _drain(self, link: ShardLink | CoordinatorLink) -> None:
        """Read a link until it is dry: its file descriptor is edge-triggered and does not call twice."""
        if link.receive():
            self._loop.call_soon(self._drain, link)

    def _flush(self) -> None:
        self._flush_due = False
        self.passes += 1
        if not self._is_stirred:
            self._is_stirred = True
            self._woken.set()
        self._send()

    def _send(self) -> None:
        retuned, self._retuned = self._retuned, []
        for channel in retuned:
            channel.retune()
        for link in self._all:
            if link.flush():  # sending may have eaten the edge that told of something to read (libzmq's ZMQ_FD)
                self._drain(link)
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.flush()
