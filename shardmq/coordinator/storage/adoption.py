"""Rebuilds a coordinator's store from what the shards have recorded, and from the old store where it can be read.

Shards have recorded all of a durable queue: its name, its arguments, its id. Exchanges, bindings, users and permissions
are in the coordinator's store alone. They are taken from the old store, however old, if it is the same broker's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from shardmq.coordinator.rules.access import guest, guest_permission, new_vhost
from shardmq.coordinator.rules.shard_identity import BrokerIdentity, Member, new_broker, next_generation
from shardmq.coordinator.storage.store import Store, StoredState
from shardmq.errors import StartupRefused, StoreRefused
from shardmq.limits import SHARDS_MAX
from shardmq.topology.changes import (
    Change,
    PermissionPut,
    QueueAdded,
    QueueRemoved,
    TopicPut,
    TransactionEnded,
    UserPut,
)
from shardmq.topology.entities import DEFAULT_VHOST, Queue


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a shard's store has recorded.

    Attributes:
        shard: the shard's number.
        store: the store's id.
        broker: id of the broker it belongs to; "" where it was never enrolled.
        generation: of the newest coordinator that enrolled it.
        queue: the highest queue id it was ever assigned.
        queues: its durable queues.
        staged: numbers of transactions with messages staged there, whose decision it has not heard.
        transaction: the highest transaction number it has recorded.
    """

    shard: int
    store: str
    broker: str
    generation: int
    queue: int
    queues: list[Queue]
    staged: frozenset[int]
    transaction: int


@dataclass(slots=True)
class Adoption:
    """What is rebuilt, and what cannot be. Queues are (vhost, name, shard).

    Attributes:
        broker: the broker's id.
        kept: whether exchanges, bindings, users, permissions and transactions are taken from the old store.
        queues: queues that the shards have.
        empty: queues that only the old store has; they are declared anew, without messages.
        gone: queues that were being deleted, or whose connection is gone; they are deleted.
        vhosts: virtual hosts made for queues.
        aborted: how many transactions have staged messages and are unknown to the old store; they are aborted.
    """

    broker: str
    kept: bool
    queues: list[tuple[str, str, int]] = field(default_factory=list)
    empty: list[tuple[str, str, int]] = field(default_factory=list)
    gone: list[tuple[str, str, int]] = field(default_factory=list)
    vhosts: list[str] = field(default_factory=list)
    aborted: int = 0


def broker_of(shards: Sequence[Recorded]) -> str:
    """The id of the broker that all shards belong to; "" where none was ever enrolled.

    Raises:
        StartupRefused: the shards belong to several brokers.
    """
    brokers = {each.broker: each.shard for each in shards if each.broker}
    if len(brokers) > 1:
        whose = ", ".join(f"shard {shard} to {broker}" for broker, shard in sorted(brokers.items()))
        raise StartupRefused(f"the shards belong to different brokers ({whose}); use the folders of one broker")
    return next(iter(brokers), "")


def adopt(folder: Path, shards: Sequence[Recorded]) -> Adoption:
    """Make a coordinator's store fit what its shards have recorded.

    Args:
        folder: of the store: a copy of the old one, or a folder that does not exist yet.
        shards: all shards, at least one.

    Raises:
        StartupRefused: the shards belong to different brokers, or the old store is another broker's or damaged.
    """
    broker = broker_of(shards)
    is_old = (folder / "data.mdb").exists()
    store = Store.open(folder, "adopted")
    try:
        stored = _load(store, max(each.shard for each in shards) + 1)
        if is_old and broker and stored.identity.broker != broker:
            raise StartupRefused(f"it belongs to broker {stored.identity.broker}")
        rebuilding = _Rebuilding(stored, shards, Adoption(broker or stored.identity.broker or new_broker(), is_old))
        for changes in rebuilding.stages():
            store.write(changes)
        store.write_identity(rebuilding.identity())
        return rebuilding.adoption
    finally:
        store.close()


def _load(store: Store, shards: int) -> StoredState:
    """Load the store for one shard more each time, until all its queues have theirs; past the most it is refused."""
    while True:
        try:
            return store.load(shards)
        except StoreRefused:
            raise  # more shards would not mend it
        except StartupRefused:
            shards += 1
            if shards > SHARDS_MAX:
                raise


class _Rebuilding:
    """The changes that make a store fit its shards."""

    def __init__(self, stored: StoredState, shards: Sequence[Recorded], adoption: Adoption) -> None:
        self.adoption = adoption
        self._stored = stored
        self._shards = shards
        self._old = {(queue.vhost, queue.name): queue for queue in stored.topology.queues}
        self._found: dict[tuple[str, str], Queue] = {}
        self._outdated: list[Queue] = []
        for queue in sorted((queue for each in shards for queue in each.queues), key=lambda queue: queue.id):
            self._take(replace(queue, policy={}))  # what policies gave it follows from the policies
        ids = [queue.id for each in shards for queue in each.queues]
        self._next = max([stored.identity.first_queue, *(each.queue + 1 for each in shards), *(id + 1 for id in ids)])

    def _take(self, queue: Queue) -> None:
        """Sort out a shard's queue. Of two queues of one name, the older one was deleted while its shard was away."""
        if queue.id in self._stored.tombstones:
            self.adoption.gone.append((queue.vhost, queue.name, queue.shard))
        elif queue.owner:
            self._outdated.append(queue)
        else:
            older = self._found.pop((queue.vhost, queue.name), None)
            if older is not None:
                self._outdated.append(older)
            self._found[queue.vhost, queue.name] = queue

    def stages(self) -> list[list[Change]]:
        """The changes in order, in portions that are written one after the other."""
        return [self._vhosts(), self._queues(), self._transactions()]

    def _vhosts(self) -> list[Change]:
        """Add the virtual hosts that queues are in and, where there is no user, guest with permissions for them."""
        there = {vhost.name for vhost in self._stored.topology.vhosts}
        wanted = {DEFAULT_VHOST, *(vhost for vhost, _ in self._found)} - there
        if self.adoption.kept:
            wanted -= {DEFAULT_VHOST}
        changes: list[Change] = [change for vhost in sorted(wanted) for change in new_vhost(vhost)]
        self.adoption.vhosts = sorted(wanted)
        if not self._stored.topology.users:
            changes.append(UserPut(guest()))
            changes += [PermissionPut(guest_permission(vhost)) for vhost in sorted(wanted)]
        return changes

    def _queues(self) -> list[Change]:
        adoption = self.adoption
        changes: list[Change] = []
        for queue in self._outdated:
            changes += [QueueAdded(queue), QueueRemoved(queue.vhost, queue.name)]
            adoption.gone.append((queue.vhost, queue.name, queue.shard))
        erased = {(queue.vhost, queue.name) for queue in self._outdated}
        for name, queue in self._found.items():
            old = self._old.get(name) if name not in erased else None
            adoption.queues.append((*name, queue.shard))
            if old is None or old.id != queue.id:
                changes += [QueueRemoved(*name)] if old is not None else []
                changes.append(QueueAdded(queue))
        for name, old in self._old.items():
            if name not in self._found:
                adoption.empty.append((*name, old.shard))
                anew = Queue(old.vhost, old.name, self._next, old.shard, old.durable, old.arguments, old.auto_delete)
                changes += [*([] if name in erased else [QueueRemoved(*name)]), QueueAdded(anew)]
                self._next += 1
        return changes + self._topics(changes)

    def _topics(self, changes: Sequence[Change]) -> list[Change]:
        """Have topics name the queues that are their partitions now."""
        new = {(each.queue.vhost, each.queue.name): each.queue.id for each in changes if isinstance(each, QueueAdded)}
        names = {queue.id: name for name, queue in self._old.items()}
        changed: list[Change] = []
        for topic in self._stored.topology.topics:
            partitions = tuple([new.get(names[old], old) for old in topic.partitions])
            if partitions != topic.partitions:
                changed.append(TopicPut(replace(topic, partitions=partitions)))
        return changed

    def _transactions(self) -> list[Change]:
        """Abort the transactions that the old store does not know, so that every shard removes what was staged."""
        transactions = self._stored.transactions
        known = {each.number for each in transactions.undecided} | set(transactions.decisions)
        unknown = sorted({number for each in self._shards for number in each.staged} - known)
        self.adoption.aborted = len(unknown)
        return [TransactionEnded("", "", number, False, [], 0) for number in unknown]

    def identity(self) -> BrokerIdentity:
        """The identity of the rebuilt store, with numbers above all that were given before."""
        members: Mapping[int, Member] = {
            each.shard: Member(each.store, each.generation, each.generation) for each in self._shards
        }
        last = max([self._stored.identity.generation, *(each.generation for each in self._shards)])
        transaction = max(each.transaction for each in self._shards) + 1
        return BrokerIdentity(self.adoption.broker, next_generation(last), self._next, members, transaction)
