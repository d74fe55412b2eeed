"""Everything that exists, on disk before anybody is told; schema.py has the rows."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from shardmq.coordinator.rules.shard_identity import BrokerIdentity, Member, new_broker, next_generation
from shardmq.coordinator.storage.changes import ADDING, ChangeWriter
from shardmq.coordinator.storage.rows import StoreRows
from shardmq.coordinator.storage.schema import (
    BOOT,
    BROKER,
    DATABASES,
    DEFINITIONS,
    DURABLE,
    GENERATION,
    LAYOUT,
    MEMBERS,
    NEXT_QUEUE,
    NEXT_TRANSACTION,
    PERMISSIONS,
    decode_binding,
    decode_exchange,
    decode_members,
    decode_parameter,
    decode_permission,
    decode_policy,
    decode_queue,
    decode_topic,
    decode_topic_permission,
    decode_user,
    decode_vhost,
    encode,
    number_of,
)
from shardmq.coordinator.storage.transactions import RecoveredTransactions, TransactionTable
from shardmq.coordinator.storage.write_batch import WriteBatch
from shardmq.errors import StartupRefused, StoreDamaged, Unavailable
from shardmq.replication.store.note import refuse_replica
from shardmq.runtime.clock import ClockNote
from shardmq.storage.engine import Engine
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.versions import CHECKSUMS_SINCE, VERSION
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import Change
from shardmq.topology.entities import (
    Binding,
    Exchange,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
)
from shardmq.topology.snapshot import TopologySnapshot
from shardmq.topology.topology import Topology

CHANGE_BYTES: Final = 16 << 10
"""What a change that adds something takes at most for the pages it alters, while it is written."""

RESERVE_BYTES: Final = 2 << 20
MARGIN_BYTES: Final = 1 << 20
"""Bytes of the disk kept free for deletions and decisions, which must be written also when it is full."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The content of the store at a start.

    Attributes:
        topology: at version 0.
        tombstones: queue id -> shard, of queues deleted and not yet dropped.
        next_queue: id of the next new queue.
        is_restart: this process ran before in the same life of the broker.
        knows_permissions: some were given once, though maybe none are left. Where not, this is a first start, or the
            store of a version without them.
        transactions: what is known of them; the undecided ones are in the topology, too.
        identity: whose the store is.
    """

    topology: TopologySnapshot
    tombstones: dict[int, int]
    next_queue: int
    is_restart: bool
    knows_permissions: bool
    transactions: RecoveredTransactions
    identity: BrokerIdentity


@dataclass(frozen=True, slots=True)
class _Contents:
    """All rows, read; of what may not be durable, with the life of the broker in which it exists."""

    exchanges: list[tuple[str, Exchange]]
    queues: list[tuple[str, Queue]]
    bindings: list[tuple[str, Binding]]
    vhosts: list[Vhost]
    users: list[User]
    permissions: list[Permission]
    topics: list[Topic]
    policies: list[Policy]
    topic_permissions: list[TopicPermission]
    parameters: list[Parameter]
    tombstones: dict[int, int]
    state: dict[bytes, bytes]
    transactions: RecoveredTransactions


class Store:
    """The coordinator's store on an open engine. It has one writer, and every write is one synced commit.

    Args:
        engine: of the layout LAYOUT.
        boot_id: of this life of the broker.

    Attributes:
        space: the room under the store.
    """

    def __init__(self, engine: Engine, boot_id: str) -> None:
        refuse_replica(engine)
        self._boot_id = boot_id
        self._rows = StoreRows(engine)
        self._transactions = TransactionTable(self._rows)
        self._changes = ChangeWriter(boot_id, self._transactions)
        self.space = engine.space
        self._rows.start(self._contents)

    @classmethod
    def open(cls, folder: Path, boot_id: str) -> Self:
        """Open a store on disk, or make one where there is none.

        Args:
            folder: of this store alone.
            boot_id: of this life of the broker.

        Raises:
            StoreRefused: the store is in use, or of another kind or version.
            StoreUnwritable: its disk does not take anything.
        """
        engine = LmdbEngine(folder, LAYOUT, reserve_bytes=RESERVE_BYTES, margin_bytes=MARGIN_BYTES)
        try:
            refuse_replica(engine)
            if engine.version < VERSION:
                engine.upgrade(range(len(DATABASES)) if engine.version < CHECKSUMS_SINCE else ())
            return cls(engine, boot_id)
        except BaseException:
            engine.close()
            raise

    def load(self, shards: int) -> StoredState:
        """Read everything, and remove what belonged to an earlier life of the broker.

        Args:
            shards: how many there are now.

        Raises:
            StartupRefused: queues are on shards that are not there; nothing was removed.
            StoreDamaged: an entry cannot be read; nothing was removed.
        """
        found = self._contents()
        _check_shards([queue for boot, queue in found.queues if not self._is_over(boot)], shards)
        self._changes.shards = shards
        topology = _topology_of(found)
        gone = cascade(
            topology,
            bindings=[binding for boot, binding in found.bindings if self._is_over(boot)],
            queues=[queue for boot, queue in found.queues if self._is_over(boot)],
            exchanges=[exchange for boot, exchange in found.exchanges if self._is_over(boot)],
        )
        identity = _identity_of(found.state, topology)
        batch = WriteBatch(self._rows)
        _put_identity(batch, identity)
        batch.put(b"state", BOOT, self._boot_id.encode())
        for change in gone:
            self._changes.write(batch, change)
            topology.apply(change)
        self._rows.apply(batch.edits)
        deleted = batch.edits.get(b"tombstones", {})
        return StoredState(
            topology.snapshot(),
            {**found.tombstones, **{number_of(key): number_of(shard) for key, shard in deleted.items()}},
            identity.next_queue,
            found.state.get(BOOT) == self._boot_id.encode(),
            PERMISSIONS in found.state,
            found.transactions,
            identity,
        )

    def count_shards(self, shards: int) -> None:
        """Have decisions from now on followed by so many shards."""
        self._changes.shards = shards

    def write_identity(self, identity: BrokerIdentity) -> None:
        """Write the identity of the store to disk. Its numbers are raised, and never lowered."""
        batch = WriteBatch(self._rows)
        _put_identity(batch, identity)
        for key, number in ((NEXT_QUEUE, identity.next_queue), (NEXT_TRANSACTION, identity.next_transaction)):
            if number > number_of(batch.get(b"state", key)):
                batch.put(b"state", key, number.to_bytes(8, "big"))
        self._rows.apply(batch.edits)

    def write_generation(self, generation: int) -> None:
        """Write to disk that a coordinator had this generation: the next start has a newer one."""
        self._rows.apply({b"state": {GENERATION: generation.to_bytes(8, "big")}})

    def rename_broker(self, broker: str) -> None:
        """Write to disk that the store belongs to another broker."""
        self._rows.apply({b"state": {BROKER: broker.encode()}})

    def definitions(self) -> bytes | None:
        """Return the digest of the definitions that were imported at a start; None where none were."""
        return self._rows.get(b"state", DEFINITIONS)

    def write_definitions(self, digest: bytes) -> None:
        """Write to disk which definitions were imported."""
        self._rows.apply({b"state": {DEFINITIONS: digest}})

    def write_members(self, members: Mapping[int, Member]) -> None:
        """Write to disk which stores serve as shards."""
        self._rows.apply({b"state": {MEMBERS: encode(members)}})

    def write(
        self,
        changes: Sequence[Change],
        dropped: Iterable[int] = (),
        followed: Sequence[tuple[int, int]] = (),
        note: ClockNote | None = None,
    ) -> None:
        """Write changes to disk, all or none, and return when they are there.

        Args:
            changes: in order. Transactions end only after `load`, which tells for how many shards.
            dropped: ids of deleted queues that their shard has dropped.
            followed: transactions whose decision a shard has followed, and which shard.
            note: what time it is, where that is to be kept.

        Raises:
            StoreUnwritable: they are not, as where the disk is full; this process cannot go on.
        """
        batch = WriteBatch(self._rows)
        for change in changes:
            self._changes.write(batch, change)
        for queue in dropped:
            batch.delete(b"tombstones", queue.to_bytes(8, "big"))
        for number, shard in followed:
            self._transactions.followed(batch, number, shard)
        if note is not None:
            self._transactions.note(batch, note)
        if batch.edits:
            self._rows.apply(batch.edits)

    def committed(self, vhost: str, name: str, now_ms: int) -> int | None:
        """The number under which a transaction of that name was committed; None where it was not, or is forgotten.

        Args:
            vhost: its virtual host.
            name: its own.
            now_ms: steady time.
        """
        return self._transactions.committed(vhost, name, now_ms)

    def forget_committed(self, now_ms: int) -> None:
        """Forget a portion of the committed names whose time is over.

        Args:
            now_ms: steady time.
        """
        batch = WriteBatch(self._rows)
        self._transactions.forget(batch, now_ms)
        if batch.edits:
            self._rows.apply(batch.edits)

    def check_room(self, changes: Sequence[Change]) -> None:
        """Make sure that the disk has room for changes that add something.

        Raises:
            Unavailable: it has none. What is removed, or decided, may still be written.
        """
        added = sum(isinstance(change, ADDING) for change in changes)
        if added:
            self.space.left -= added * CHANGE_BYTES
            if self.space.left < 0:
                raise Unavailable(
                    f"the disk of the coordinator is full at {self._rows.file.parent}; consume what is "
                    "queued, or make room, and try again"
                )

    @property
    def is_pending(self) -> bool:
        """Whether there are changes in the redo log that are not in the databases."""
        return self._rows.is_pending

    def rest(self, now: float) -> None:
        """Bring into the databases what has been in the redo log for long enough. `now` is in monotonic seconds."""
        self._rows.rest(now)

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far.

        Args:
            folder: of the copy; it must not exist yet.
            bytes_per_second: at most.

        Raises:
            OSError: the copy cannot be made.
            StoreRefused: the store is not on disk.
        """
        return self._rows.copy(folder, bytes_per_second)

    def close(self) -> None:
        """Close the engine; on disk, that unlocks the folder."""
        self._rows.close()

    def _contents(self) -> _Contents:
        try:
            return self._read()
        except (msgspec.DecodeError, struct.error, KeyError, ValueError) as fault:
            raise StoreDamaged(self._rows.file, f"it has an entry that cannot be read: {fault}") from fault

    def _read(self) -> _Contents:
        scan = self._rows.scan
        return _Contents(
            self._stored(b"exchanges", decode_exchange),
            self._stored(b"queues", decode_queue),
            self._stored(b"bindings", decode_binding),
            [decode_vhost(value) if value else Vhost(key.decode()) for key, value in scan(b"vhosts")],
            [decode_user(value) for _, value in scan(b"users")],
            [decode_permission(value) for _, value in scan(b"permissions")],
            [decode_topic(value) for _, value in scan(b"topics")],
            [decode_policy(value) for _, value in scan(b"policies")],
            [decode_topic_permission(value) for _, value in scan(b"topic_permissions")],
            [decode_parameter(value) for _, value in scan(b"parameters")],
            {number_of(key): number_of(value) for key, value in scan(b"tombstones")},
            dict(scan(b"state")),
            self._transactions.load(),
        )

    def _stored(self, database: bytes, decode: Any) -> list[tuple[str, Any]]:
        return [(row.boot, row.value) for row in (decode(value) for _, value in self._rows.scan(database))]

    def _is_over(self, boot: str) -> bool:
        """Whether an entry that is not durable is of an earlier life of the broker."""
        return boot not in (DURABLE, self._boot_id)


def _topology_of(found: _Contents) -> Topology:
    topology = Topology()
    topology.load(
        TopologySnapshot(
            version=0,
            vhosts=found.vhosts,
            exchanges=[exchange for _, exchange in found.exchanges],
            queues=[queue for _, queue in found.queues],
            bindings=[binding for _, binding in found.bindings],
            users=found.users,
            permissions=found.permissions,
            transactions=found.transactions.undecided,
            topics=found.topics,
            policies=found.policies,
            topic_permissions=found.topic_permissions,
            parameters=found.parameters,
        )
    )
    return topology


def _identity_of(state: Mapping[bytes, bytes], topology: Topology) -> BrokerIdentity:
    """Read the identity of the store; a store of an earlier version gets one now."""
    next_queue = number_of(state.get(NEXT_QUEUE), 1)
    generation = next_generation(number_of(state.get(GENERATION)))
    if BROKER in state:
        return BrokerIdentity(state[BROKER].decode(), generation, next_queue, decode_members(state[MEMBERS]))
    served = {queue.shard for queue in topology.queues.values() if queue.durable and not queue.owner}
    return BrokerIdentity(new_broker(), generation, next_queue, {shard: Member("") for shard in served})


def _put_identity(batch: WriteBatch, identity: BrokerIdentity) -> None:
    batch.put(b"state", BROKER, identity.broker.encode())
    batch.put(b"state", GENERATION, identity.generation.to_bytes(8, "big"))
    batch.put(b"state", MEMBERS, encode(identity.members))


def _check_shards(queues: list[Queue], shards: int) -> None:
    last = max((queue.shard for queue in queues), default=0)
    if last < shards:
        return
    count = sum(queue.shard == last for queue in queues)
    raise StartupRefused(
        f"the data directory has {count} queue{'s' * (count > 1)} on shard {last}, but only {shards} "
        f"shard{'s were' if shards > 1 else ' was'} asked for; start with --shards {last + 1} or more"
    )
