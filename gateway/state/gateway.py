"""What all connections of a gateway share: the topology replica, the links, the time, what is due at a pass's end."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from shardmq.bus.coordinator_link import CoordinatorLink
from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.bus.dialer import Dialer
from shardmq.bus.messages.coordinator import SHARDS_REACHED, FromCoordinator
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.shard import FromShard
from shardmq.bus.poller import context
from shardmq.errors import RequestError
from shardmq.gateway.events.clients import ClientEvents
from shardmq.gateway.events.exchange import EventExchange
from shardmq.gateway.events.firehose import Firehose
from shardmq.gateway.events.topology import TopologyEvents
from shardmq.gateway.links.consumer_timeouts import ConsumerTimeouts
from shardmq.gateway.links.shard import ShardLink, no_publisher
from shardmq.gateway.state.alarms import Alarms
from shardmq.gateway.state.direct_replies import DirectReplies
from shardmq.gateway.state.growth import Growth
from shardmq.gateway.state.memberships import Memberships
from shardmq.gateway.state.message_loans import Lender
from shardmq.gateway.state.orders import Orders
from shardmq.gateway.state.passes import Gathering, TimeSlices
from shardmq.gateway.state.permissions import Permissions
from shardmq.gateway.state.routes import Routes
from shardmq.gateway.state.traffic import Traffic
from shardmq.limits import LOANS_SHARE, UNREAD_SHARE, WINDOWS_SHARE
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.memory import memory_default
from shardmq.runtime.vitals import vitals
from shardmq.runtime.watermarks import WatermarkMonitor
from shardmq.topology.snapshot import TopologyFields
from shardmq.topology.topology import Topology


class Primaries(Protocol):
    """Knows the hosts of a broker, and what they do."""

    def told(self) -> dict[str, Any]:
        """What this process tells of them, as part of its row of the status."""

    def leader(self, group: str) -> tuple[str, str]:
        """The host that leads a group, and where clients reach its gateways."""

    def standing(self, processes: list[dict[str, Any]]) -> dict[str, Any]:
        """How hosts and groups are, and what is wrong with them. The rows of processes get where each of them is."""


class HostOperations(Protocol):
    """What administrators may have done with the hosts of a broker; `done` is called with a refusal, or None."""

    def drain(self, host: str, is_draining: bool, done: Callable[[RequestError | None], object]) -> None:
        """Have everything that a host has move to others, or let it have replicas again."""

    def transfer(self, group: str, host: str, done: Callable[[RequestError | None], object]) -> None:
        """Have a group led by another host."""

    def move(self, group: str, source: str, target: str, done: Callable[[RequestError | None], object]) -> None:
        """Have a replica of a group on another host."""


class Writer(Protocol):
    """A connection with something to send."""

    def flush(self) -> int:
        """Send it; returns how many bytes."""


class RetunedChannel(Protocol):
    """A channel whose prefetch limits were changed."""

    def retune(self) -> None:
        """Apply the new limits."""


class GatewayState:
    """What all connections of a gateway share. `GatewayLoop` (loop.py) runs it.

    Args:
        name: of this gateway.
        coordinator: bus address.
        shards: bus addresses, by shard number.
        security: of the bus, where it is TCP.
        rss_bytes_max: resident memory above which publishers are blocked; None for a share of the machine's.
        make_link: makes the links to shards, of the topology, the time of a pass and what a `ShardLink` takes; None for
            plain ones.

    Attributes:
        topology: the replica.
        coordinator: the link to the coordinator.
        links: the links to the shards, by number.
        all_links: both, and those to shards that were added and have not been there yet.
        routes: of the topology.
        find_route: `routes.find`, bound once, as every publish calls it.
        topology_changes: how often the topology or permissions have changed: what was derived from them is over then.
        orders: of what exists, as lists have it.
        alarms: of this process and all shards.
        lender: of room for large messages.
        memberships: of consumers in groups.
        growth: of topics.
        replies: to requests of this gateway's clients.
        watermarks: of this process's memory.
        time_slices: of connections with much to do.
        traffic: what clients did.
        events: what clients do, for those who listen.
        firehose: copies what clients publish and get; None while no virtual host is traced.
        passes: how many there were.
        gathering: of passes.
        windows_bytes: what the windows of all consumers share.
        unread_bytes: what clients that are behind have not read, together.
        unread_bytes_max: past it, nothing more is done for clients that are behind.
        origin: 64 random bits, this gateway's life; with `next_serial` they make message ids.
        now_ms: steady time of this pass, milliseconds since 1970.
        is_flush_due: whether the end of the pass is scheduled.
        writers: connections with something to send at the end of the pass.
        retuned: channels whose limits are others from the end of the pass on.
        ticking: called with the monotonic time at every tick.
        wake: schedules the end of the pass; the loop sets it.
        on_link: called with each link to a shard that is added; the loop sets it.
        primaries: of a broker on several hosts; None of one.
        host_operations: the same.
    """

    def __init__(
        self,
        name: str,
        coordinator: str,
        shards: tuple[str, ...],
        security: CurveKeys = NO_KEYS,
        rss_bytes_max: int | None = None,
        make_link: Callable[..., ShardLink] | None = None,
    ) -> None:
        self._make_link = make_link
        self._context = context(security)
        self.name = name
        self.origin = secrets.randbits(64)
        self.next_serial = 1
        self.replies = DirectReplies(self.origin)
        self._clock = SteadyClock()
        self.now_ms = self._clock.now_ms()
        self.gathering = Gathering()
        self.topology = Topology()
        self.coordinator = CoordinatorLink(
            Dialer(self._context, coordinator, "gateway", name, FromCoordinator, "coordinator"),
            self.topology,
            self.changed,
            self._forget_topology,
            self.table,
        )
        self.memberships = Memberships(self.coordinator)
        self.growth = Growth(self.topology)
        self.coordinator.follow(self.growth)
        self.alarms = Alarms()
        self.time_slices = TimeSlices(asyncio.get_running_loop())
        self.traffic = Traffic()
        self.passes = self.topology_changes = self.unread_bytes = 0
        self.links = [self._shard_link(number, address) for number, address in enumerate(shards)]
        self.all_links: tuple[ShardLink | CoordinatorLink, ...] = (self.coordinator, *self.links)
        self._coming: list[ShardLink] = []
        self._identity: tuple[str, int] | None = None
        self._on_dead_letter: Callable[[ShardLink, DeadLetter], None] = no_publisher
        self.on_link: Callable[[ShardLink], None] = lambda _link: None
        self.coordinator.follow(ConsumerTimeouts(self.topology, self.links))
        self.coordinator.identified, self.coordinator.reloading = self._call_shards, self._refuse_misrouted
        self.routes = Routes(self.topology, self.links, self.traffic)
        self.find_route = self.routes.find
        self._tell_events()
        self.alarms.turned = self._tell_alarm
        self.orders = Orders()
        self._permissions: WeakValueDictionary[tuple[str, str], Permissions] = WeakValueDictionary()
        self.is_flush_due = False
        self.writers: list[Writer] = []
        self.retuned: list[RetunedChannel] = []
        self.wake: Callable[[], object] = lambda: None
        self.primaries: Primaries | None = None
        self.host_operations: HostOperations | None = None
        limit = memory_default(len(shards) + 1) if rss_bytes_max is None else rss_bytes_max
        self.watermarks = WatermarkMonitor(name, limit, "clients have to read what is sent to them")
        self.lender = Lender(limit // LOANS_SHARE)
        self.unread_bytes_max = limit // UNREAD_SHARE
        self.windows_bytes = limit // WINDOWS_SHARE
        self.ticking: list[Callable[[float], None]] = [self._look_memory, *self._dropping]
        self._census: Callable[[], dict[str, Any]] = dict

    def _tell_events(self) -> None:
        """Begin to publish what happens, and what passes."""
        self._event_exchange = EventExchange(self.topology, self.routes.to, self.stamp, self.pass_time)
        self.events = ClientEvents(self._event_exchange, self.name)
        self._topology_events = TopologyEvents(self.topology, self._event_exchange, lambda: self.coordinator.is_teller)
        self.coordinator.follow(self._topology_events)
        self._firehose = Firehose(
            self.topology, self.routes.to, self.stamp, lambda: bool(self.alarms.reason), self.changed, self.name
        )
        self.firehose: Firehose | None = None
        self._dropping = self._event_exchange.look, self._firehose.look

    @property
    def limits(self) -> dict[str, int]:
        """The watermarks, in bytes."""
        return self.watermarks.limits

    @property
    def census(self) -> dict[str, Any]:
        """How many connections, channels and consumers there are, and where clients connect to."""
        return self._census()

    def _look_memory(self, now: float) -> None:
        for mark in self.watermarks.look(now):
            self.alarms.turn(self.name, mark.resource, mark.is_on, mark.text)

    def _tell_alarm(self, process: str, resource: str, is_on: bool, text: str) -> None:
        if process == self.name or self.coordinator.is_teller:
            self._topology_events.alarm(process, resource, is_on, text)

    def pass_time(self) -> int:
        """`now_ms`, noted first where this pass has not had to tell the time yet."""
        self.changed()
        return self.now_ms

    def _shard_link(self, number: int, address: str) -> ShardLink:
        name = f"shard-{number}"
        dialer: Dialer[FromShard] = Dialer(self._context, address, "gateway", self.name, FromShard, name, waits=True)
        given = dialer, name, self.changed, self.topology.has_queue, self.stamp, self.alarms
        return ShardLink(*given) if self._make_link is None else self._make_link(self.topology, self.pass_time, *given)

    def add_shards(self, count: int) -> list[ShardLink]:
        """Call shards that were added, up to so many of all. Each is one of `links` once it has been there.

        Returns:
            The links that are new, which call nobody before they are redirected.
        """
        added = []
        for number in range(len(self.links) + len(self._coming), count):
            link = self._shard_link(number, "")
            link.on_dead_letter = self._on_dead_letter
            if self._identity is not None:
                link.dialer.call_as(*self._identity)
            self._coming.append(link)
            self.all_links = (*self.all_links, link)
            self.on_link(link)
            added.append(link)
        return added

    def take_in_shards(self, count: int = 0) -> None:
        """Have added shards be of `links` that are there now, and whether they are or not up to so many of all."""
        while self._coming and (self._coming[0].is_open or len(self.links) < count):
            self.links.append(self._coming.pop(0))

    def take_dead_letters(self, publisher: Callable[[ShardLink, DeadLetter], None]) -> None:
        """Have dead letters that shards hand over taken by a publisher."""
        self._on_dead_letter = publisher
        for link in self.links:
            link.on_dead_letter = publisher

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
        return self.windows_bytes // (sum([len(link.consumers) for link in self.links]) + 1) + 1

    def on_tick(self, call: Callable[[float], None]) -> None:
        """Have `call(monotonic now)` made with every tick."""
        self.ticking.append(call)

    def on_census(self, call: Callable[[], dict[str, Any]]) -> None:
        """Have `call` count connections and the like for the status."""
        self._census = call

    def table(self) -> dict[str, Any]:
        """This gateway's row of the status: vitals, connections, channels and consumers, and its alarms."""
        row = {**vitals(self.name, "gateway"), **self._census(), "alarms": self.alarms.of(self.name)}
        if self.primaries is None:
            return row
        return {**row, SHARDS_REACHED: len(self.links), **self.primaries.told()}

    def permissions(self, user: str, vhost: str) -> Permissions:
        """What a user may do in a virtual host: the same object for all sessions that have it."""
        permissions = self._permissions.get((user, vhost))
        if permissions is None:
            permissions = self._permissions[user, vhost] = Permissions(self.topology, user, vhost)
        return permissions

    def changed(self) -> None:
        """Schedule the end of this pass: something was posted or is to be written. Notes the pass's time."""
        if not self.is_flush_due:
            self.is_flush_due = True
            self.now_ms = self._clock.now_ms()
            self.wake()

    def stamp(self, batch: RecordBatch) -> None:
        """Write time, origin and serial into a record batch; its messages have their ids from here on."""
        batch.timestamp_ms, batch.origin, batch.serial = self.now_ms, self.origin, self.next_serial
        self.next_serial += batch.count

    def write_due(self, writer: Writer) -> None:
        """Flush a connection at the end of this pass."""
        self.writers.append(writer)
        self.changed()

    def retune_due(self, channel: RetunedChannel) -> None:
        """Apply a channel's new limits at the end of this pass."""
        self.retuned.append(channel)
        self.changed()

    @property
    def broker(self) -> str:
        """The id of the broker that this gateway belongs to; "" while the coordinator has not told it yet."""
        return "" if self._identity is None else self._identity[0]

    def close(self) -> None:
        """Close all links."""
        for link in self.all_links:
            link.dialer.close()
        self._context.term()

    def _call_shards(self, broker: str, generation: int) -> None:
        """Dial the shards, once it is known which broker this gateway belongs to: others' shards refuse it."""
        self._identity = broker, generation
        for link in (*self.links, *self._coming):
            link.dialer.call_as(broker, generation)
            if not link.is_open:
                link.tick(time.monotonic())

    def _refuse_misrouted(self, newer: TopologyFields) -> None:
        """Refuse what waits for shards, where it goes elsewhere by what the coordinator says: this missed a change."""
        waiting = [link for link in self.links if link.confirms.is_waiting]
        if waiting and self.topology.routes_differ(newer):
            for link in waiting:
                link.confirms.lost("queues or bindings were changed while this gateway was cut off; publish again")

    def _forget_topology(self) -> None:
        """Forget what was derived from the topology: it has changed."""
        self.topology_changes += 1
        self.firehose = self._firehose if self.topology.tracing else None
        self.routes.forget()
        self.orders.forget()
        for permissions in self._permissions.values():
            permissions.forget()
