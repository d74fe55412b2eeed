"""Puts the parts of a coordinator together on its store, and has its options."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardmq.bus.curve import COORDINATOR, NO_KEYS, Context, CurveKeys, process_name
from shardmq.bus.dialer import Dialer
from shardmq.bus.listener import Listener
from shardmq.bus.messages.coordinator import ToCoordinator
from shardmq.bus.messages.shard import FromShard
from shardmq.coordinator.handlers.boot_definitions import read_files
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.loop import CoordinatorLoop
from shardmq.coordinator.rules.access import first_changes, missing_exchanges
from shardmq.coordinator.rules.shard_identity import Members
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.coordinator.state.promises import Promises
from shardmq.coordinator.state.returning import Returning
from shardmq.coordinator.state.transactions import TransactionState
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.limits import SHARDS_MAX
from shardmq.runtime.clock import SteadyClock
from shardmq.topology.changes import Change
from shardmq.topology.topology import Topology

if TYPE_CHECKING:
    from shardmq.coordinator.handlers.shards import NewShards
    from shardmq.replication.directory import PrimaryDirectory
    from shardmq.replication.member import GroupMember

RETURN_SECONDS: Final = 2.0
"""A restarted coordinator answers no command for so long. Running gateways connect again within 0.6 s; until then they
route by their replica."""

RETURN_SECONDS_FROM_HOSTS: Final = 3.0
"""The same at most in a broker on several hosts, where a gateway may hear as late as after 1.5 s whom to call, if its
member of etcd is frozen. As a rule the shards know sooner that all are back."""


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """The options of a coordinator.

    Attributes:
        data_dir: the broker's data directory; the coordinator's own is `coordinator` in it.
        listen: bus address for gateways, such as `ipc:///run/shardmq/coordinator`.
        shards: bus addresses of all shards, by number.
        boot_id: names this life of the broker; in another life, what is not durable is gone.
        security: of the bus, where it is TCP.
        definitions: a file of definitions, or a folder of them, imported at the start; None for none.
        join: URL of etcd, where a broker on several hosts is registered, which tells where the shards are; "" for the
            addresses above.
        host_name: of this host in such a broker.
        broker: the id of such a broker.
        listen_replica: address for the coordinator's replicas on other hosts, as `tcp://10.0.0.1:5681`; "" where it has
            none.
    """

    data_dir: Path
    listen: str
    shards: tuple[str, ...]
    boot_id: str
    security: CurveKeys = NO_KEYS
    definitions: Path | None = None
    join: str = ""
    host_name: str = ""
    broker: str = ""
    listen_replica: str = ""


def directory_of(options: CoordinatorOptions) -> "PrimaryDirectory | None":
    """What knows where the shards' primaries are; None in a broker on one host.

    Raises:
        InvalidUrl: the URL of etcd cannot be read, or a file that it names not be used.
    """
    if not options.join:
        return None
    from shardmq.replication.directory import PrimaryDirectory  # a broker on one host does without all of it
    from shardmq.replication.etcd.background import BackgroundRegister
    from shardmq.replication.etcd.url import parse

    name = process_name(options.host_name, COORDINATOR)
    directory = PrimaryDirectory(BackgroundRegister(parse(options.join), f"{name}.{secrets.token_hex(8)}"))
    directory.wait_for_broker()
    return directory


def put_together(
    options: CoordinatorOptions,
    store: Store,
    sockets: Context,
    clock: SteadyClock | None,
    directory: "PrimaryDirectory | None",
    member: "GroupMember | None" = None,
) -> CoordinatorLoop:
    """Load the store, and put the parts of a coordinator on it.

    Args:
        options: of the coordinator.
        store: of the coordinator.
        sockets: of the process.
        clock: see `build`.
        directory: what knows where the shards' primaries are; None in a broker on one host.
        member: the replica that leads, where there are several; what is posted waits for the others.

    Raises:
        StartupRefused: see `build`.
    """
    files = None if options.definitions is None else read_files(options.definitions)
    stored = store.load(len(options.shards) if directory is None else SHARDS_MAX)
    addresses = options.shards if directory is None else ("",) * _shards(directory, stored)
    topology = _topology(store, stored)
    name = process_name(options.host_name, COORDINATOR)
    listener: Listener[ToCoordinator] = Listener(sockets, options.listen, COORDINATOR, name, ToCoordinator)
    clock = clock or SteadyClock.resumed(stored.transactions.clock)
    transactions = TransactionState(topology, store, clock, stored.transactions.next_number)
    is_alone = (lambda: False) if member is None else (lambda: member.has_lease)
    members = Members(stored.identity, store.write_members, directory is not None, is_alone, transactions.skip)

    def call(number: int) -> ShardLink:
        address = addresses[number] if number < len(addresses) else ""
        return _shard(sockets, name, number, address, members, member)

    links = [call(number) for number in range(len(addresses))]
    known = len(links) if directory is None or stored.identity.is_new else _known_shards(stored)
    shards, coming = links[:known], links[known:]
    store.count_shards(len(shards))
    for queue in topology.queues.values():
        shards[queue.shard].add(topology.policies.given(queue))
    for shard in shards:
        shard.recorded()
    for queue_id, number in stored.tombstones.items():
        if number < len(links):
            links[number].drop(queue_id)
    returning = _returning(stored, None if directory is None else shards)
    promises = Promises() if member is None else Promises(lambda: member.node.index, member.is_sure)
    state = CoordinatorState(stored.identity, topology, store, shards, transactions, promises, returning)
    replicas = TopologyReplicas(topology, addresses, stored.identity, promises)
    two_phase_commit = TwoPhaseCommit(shards, stored.transactions.decisions)
    if member is not None:
        listener.held = member.held
        member.ends.append(listener.end_all)
    new_shards = None if directory is None else _new_shards(state, coming, call, directory)
    return CoordinatorLoop(state, sockets, listener, replicas, two_phase_commit, files, new_shards, member)


def _returning(stored: StoredState, shards: Sequence[ShardLink] | None) -> Returning:
    """The gateways that are still to call again; `shards` of a broker on several hosts know when all are back."""
    if not stored.is_restart:
        return Returning(0.0, 0.0)
    if shards is None:
        return Returning(RETURN_SECONDS, time.monotonic())
    return Returning(RETURN_SECONDS_FROM_HOSTS, time.monotonic(), shards)


def _shards(directory: "PrimaryDirectory", stored: StoredState) -> int:
    """How many shards a broker on several hosts has: etcd may tell of added ones later than the store knows them."""
    directory.look()
    return max(directory.wait_for_broker().shards, _known_shards(stored))


def _known_shards(stored: StoredState) -> int:
    """How many shards have queues, or were enrolled as all before them were."""
    enrolled = 0
    while enrolled in stored.identity.members:
        enrolled += 1
    return max([enrolled, *(queue.shard + 1 for queue in stored.topology.queues)])


def _shard(
    sockets: Context, name: str, number: int, address: str, members: Members, member: "GroupMember | None"
) -> ShardLink:
    peer = f"shard-{number}"
    dialer: Dialer[FromShard] = Dialer(sockets, address, COORDINATOR, name, FromShard, peer)
    if member is not None:
        dialer.held = member.held
        member.ends.append(dialer.end)
    return ShardLink(number, dialer, members)


def _new_shards(
    state: CoordinatorState,
    coming: Sequence[ShardLink],
    call: Callable[[int], ShardLink],
    directory: "PrimaryDirectory",
) -> "NewShards":
    """What calls shards that are added, and keeps the links at the shards' primaries."""
    from shardmq.coordinator.handlers.shards import NewShards
    from shardmq.replication.dialing import PrimaryDialing

    dialing = PrimaryDialing(directory, {shard.name: shard.dialer for shard in (*state.shards, *coming)})
    return NewShards(state, coming, call, dialing)


def _topology(store: Store, stored: StoredState) -> Topology:
    """The stored topology; at a first start, with the default virtual host and user; with all predeclared exchanges."""
    topology = Topology()
    topology.load(stored.topology)
    if not stored.knows_permissions:
        _change(topology, store, first_changes(topology))
    _change(topology, store, missing_exchanges(topology))
    return topology


def _change(topology: Topology, store: Store, changes: list[Change]) -> None:
    """Store changes and apply them, before anybody is told."""
    if changes:
        store.write(changes)
    for change in changes:
        topology.apply(change)
