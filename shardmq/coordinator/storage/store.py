"""The coordinator's store: everything that exists, on disk before anybody is told.

    exchanges   vhost 0 name            -> [boot, Exchange]
    queues      vhost 0 name            -> [boot, Queue]
    bindings    blake2b of the binding  -> [boot, Binding]       a key of all its names would be too long for LMDB
    vhosts      vhost                   -> Vhost, or nothing (as the first version wrote it)
    users       name                    -> User
    permissions user 0 vhost            -> Permission
    tombstones  queue id, u64           -> shard, u32            deleted queues their shard has not dropped yet
    state       "next_queue"            -> u64
                "boot"                  -> boot id of the last start
                "permissions"           -> "1" since one was ever written; stores older than permissions lack it
                "broker"                -> the broker's id
                "generation"            -> u64, raised at each start
                "members"               -> {shard: Member}         the stores that serve as shards (shard_identity.py)

Transactions are in databases of their own (transactions.py), which older stores lack until they are opened.

Every value begins with a checksum (storage/rows.py), which is left out above.

`boot` is "" for what is durable; anything else lives as long as the broker that has that boot id (a life of
`shardmq up`, not of this process). An exclusive queue is never durable: no connection outlives the broker.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from shardmq.coordinator.rules.shard_identity import Founding, Member, new_broker, next_generation
from shardmq.coordinator.storage.transactions import (
    LEDGER_DATABASES,
    NEXT_TRANSACTION,
    StoredTransactions,
    TransactionTable,
)
from shardmq.errors import StartupRefused, StoreDamaged, Unavailable
from shardmq.runtime.clock import ClockNote
from shardmq.storage.disk_space import Space, writing
from shardmq.storage.lmdb_engine import VERSION, open_environment
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.table import Table, rewrite
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ConnectionClosed,
    ExchangeAdded,
    ExchangeRemoved,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    TransactionBegun,
    TransactionEnded,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
)
from shardmq.topology.entities import Binding, Exchange, Permission, Queue, User, Vhost
from shardmq.topology.topology import Topology, TopologySnapshot, binding_id

FORMAT: Final = b"shardmq-coordinator"
DATABASES: Final = (
    b"exchanges",
    b"queues",
    b"bindings",
    b"vhosts",
    b"users",
    b"permissions",
    b"tombstones",
    b"state",
    *LEDGER_DATABASES,
)
DURABLE: Final = ""
NEXT_QUEUE: Final = b"next_queue"
BOOT: Final = b"boot"
PERMISSIONS: Final = b"permissions"
BROKER: Final = b"broker"
GENERATION: Final = b"generation"
MEMBERS: Final = b"members"

RESERVE_BYTES: Final = 2 << 20
MARGIN_BYTES: Final = 1 << 20
"""Of the disk, kept for what must be written when it is full: what is deleted, and what is decided."""

CHANGE_BYTES: Final = 16 << 10
"""What a change that adds something takes at most for the pages it alters, while it is written."""

_encode = msgspec.msgpack.Encoder().encode


class _KeptExchange(msgspec.Struct, array_like=True):
    boot: str
    value: Exchange


class _KeptQueue(msgspec.Struct, array_like=True):
    boot: str
    value: Queue


class _KeptBinding(msgspec.Struct, array_like=True):
    boot: str
    value: Binding


_decode_exchange = msgspec.msgpack.Decoder(_KeptExchange).decode
_decode_queue = msgspec.msgpack.Decoder(_KeptQueue).decode
_decode_binding = msgspec.msgpack.Decoder(_KeptBinding).decode
_decode_members = msgspec.msgpack.Decoder(dict[int, Member]).decode
_decode_user = msgspec.msgpack.Decoder(User).decode
_decode_vhost = msgspec.msgpack.Decoder(Vhost).decode
_decode_permission = msgspec.msgpack.Decoder(Permission).decode


@dataclass(frozen=True, slots=True)
class Stored:
    """What a start finds.

    Attributes:
        topology: at version 0.
        tombstones: queue id -> shard, of queues deleted and not yet dropped.
        next_queue: id of the next new queue.
        is_restart: this process ran before in the same life of the broker.
        knows_permissions: some were given once, though maybe none are left. Where not, this is a first start, or the
            store of a version without them.
        transactions: what is known of them; the undecided ones are in the topology, too.
        founding: whose the store is.
    """

    topology: TopologySnapshot
    tombstones: dict[int, int]
    next_queue: int
    is_restart: bool
    knows_permissions: bool
    transactions: StoredTransactions
    founding: Founding


class Store:
    """See the module. One writer, every write one transaction, synced.

    Args:
        folder: of this store alone.
        boot_id: of this life of the broker.

    Raises:
        StoreRefused: in use, or not ours to open.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._boot_id = boot_id
        self._environment = open_environment(folder, FORMAT, DATABASES)
        self._env = self._environment.env
        self._tables = {name: Table(self._environment.file, name, db) for name, db in self._environment.dbs.items()}
        self._ledger = TransactionTable(self._env, self._tables)
        self._shards = 0
        self.space = Space(self._environment, RESERVE_BYTES, MARGIN_BYTES)
        if self._environment.version < VERSION:
            self._upgrade()

    def load(self, shards: int) -> Stored:
        """Read everything, and remove what belonged to an earlier life of the broker.

        Args:
            shards: how many there are now.

        Raises:
            StartupRefused: queues are on shards that are not there; nothing was removed.
            StoreRefused: an entry cannot be read; nothing was removed.
        """
        try:
            exchanges = self._kept(b"exchanges", _decode_exchange)
            queues = self._kept(b"queues", _decode_queue)
            bindings = self._kept(b"bindings", _decode_binding)
            users = [_decode_user(value) for _, value in self._entries(b"users")]
            vhosts = [_decode_vhost(value) if value else Vhost(key.decode()) for key, value in self._entries(b"vhosts")]
            permissions = [_decode_permission(value) for _, value in self._entries(b"permissions")]
            transactions = self._ledger.load()
            state = dict(self._entries(b"state"))
            self._entries(b"tombstones")
        except (msgspec.DecodeError, struct.error, KeyError, ValueError) as fault:
            raise StoreDamaged(self._environment.file, f"it has an entry that cannot be read: {fault}") from fault
        _check_shards([queue for boot, queue in queues if boot in (DURABLE, self._boot_id)], shards)
        self._shards = shards
        topology = Topology()
        topology.load(
            TopologySnapshot(
                version=0,
                vhosts=vhosts,
                exchanges=[exchange for _, exchange in exchanges],
                queues=[queue for _, queue in queues],
                bindings=[binding for _, binding in bindings],
                users=users,
                permissions=permissions,
                transactions=transactions.undecided,
            )
        )
        gone = cascade(
            topology,
            bindings=[binding for boot, binding in bindings if self._is_over(boot)],
            queues=[queue for boot, queue in queues if self._is_over(boot)],
            exchanges=[exchange for boot, exchange in exchanges if self._is_over(boot)],
        )
        next_queue = int.from_bytes(state.get(NEXT_QUEUE, b"\1"), "big")
        founding = self._founding(state, topology, next_queue)
        with writing(self._environment) as transaction:
            self._tables[b"state"].put(transaction, BOOT, self._boot_id.encode())
            self._tables[b"state"].put(transaction, BROKER, founding.broker.encode())
            self._tables[b"state"].put(transaction, GENERATION, founding.generation.to_bytes(8, "big"))
            self._tables[b"state"].put(transaction, MEMBERS, _encode(founding.members))
            for change in gone:
                _WRITE[type(change)](self, transaction, change)
        for change in gone:
            topology.apply(change)
        tombstones = {
            int.from_bytes(key, "big"): int.from_bytes(value, "big") for key, value in self._entries(b"tombstones")
        }
        is_restart = state.get(BOOT) == self._boot_id.encode()
        return Stored(
            topology.snapshot(), tombstones, next_queue, is_restart, PERMISSIONS in state, transactions, founding
        )

    def _founding(self, state: Mapping[bytes, bytes], topology: Topology, next_queue: int) -> Founding:
        """Whose the store is; a store of an earlier version learns it now."""
        generation = next_generation(int.from_bytes(state.get(GENERATION, b""), "big"))
        if BROKER in state:
            return Founding(state[BROKER].decode(), generation, next_queue, _decode_members(state[MEMBERS]))
        served = {queue.shard for queue in topology.queues.values() if queue.durable and not queue.owner}
        return Founding(new_broker(), generation, next_queue, {shard: Member("") for shard in served})

    def found(self, founding: Founding) -> None:
        """Put on disk whose the store is; numbers are raised, and never lowered."""
        state = self._tables[b"state"]
        with writing(self._environment) as transaction:
            state.put(transaction, BROKER, founding.broker.encode())
            state.put(transaction, GENERATION, founding.generation.to_bytes(8, "big"))
            state.put(transaction, MEMBERS, _encode(founding.members))
            for key, number in ((NEXT_QUEUE, founding.next_queue), (NEXT_TRANSACTION, founding.next_transaction)):
                if number > int.from_bytes(state.get(transaction, key) or b"", "big"):
                    state.put(transaction, key, number.to_bytes(8, "big"))

    def rename_broker(self, broker: str) -> None:
        """Put on disk that the store is another broker's."""
        with writing(self._environment) as transaction:
            self._tables[b"state"].put(transaction, BROKER, broker.encode())

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far.

        Args:
            folder: where to; it must not be there yet.
            bytes_per_second: at most.

        Raises:
            OSError: it cannot be made.
        """
        with self._env.begin() as transaction:
            stats = [transaction.stat(table.db) for table in self._tables.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return StoreCopy(self._env, folder, bytes_per_second, pages * stats[0]["psize"], lambda _count: None)

    def enroll(self, members: Mapping[int, Member]) -> None:
        """Put on disk which stores serve as shards."""
        with writing(self._environment) as transaction:
            self._tables[b"state"].put(transaction, MEMBERS, _encode(members))

    def write(
        self,
        changes: Sequence[Change],
        dropped: Iterable[int] = (),
        concluded: Sequence[tuple[int, int]] = (),
        note: ClockNote | None = None,
    ) -> None:
        """Put changes on disk, all or none; return when they are there.

        Args:
            changes: in order. Transactions end only after `load`, which tells for how many shards.
            dropped: ids of deleted queues that their shard has dropped.
            concluded: transactions whose decision a shard has followed, and which shard.
            note: what time it is, where that is to be kept.

        Raises:
            StoreUnwritable: they are not, as where the disk is full; this process cannot go on.
        """
        dropped = list(dropped)
        if not changes and not dropped and not concluded and note is None:
            return
        with writing(self._environment) as transaction:
            for change in changes:
                _WRITE[type(change)](self, transaction, change)
            for queue in dropped:
                self._tables[b"tombstones"].delete(transaction, queue.to_bytes(8, "big"))
            for number, shard in concluded:
                self._ledger.conclude(transaction, number, shard)
            if note is not None:
                self._ledger.note(transaction, note)
        self.space.committed()

    def committed(self, vhost: str, name: str, now_ms: int) -> int | None:
        """The number under which a transaction of that name was committed; None where it was not, or is forgotten.

        Args:
            vhost: its virtual host.
            name: its own.
            now_ms: steady time.
        """
        return self._ledger.committed(vhost, name, now_ms)

    def forget_committed(self, now_ms: int) -> None:
        """Forget a portion of the committed names whose time is over.

        Args:
            now_ms: steady time.
        """
        if self._ledger.has_to_forget(now_ms):
            with writing(self._environment) as transaction:
                self._ledger.forget(transaction, now_ms)

    def _upgrade(self) -> None:
        """Give the rows of a store of the first version their checksums."""
        with writing(self._environment) as transaction:
            for table in self._tables.values():
                rewrite(transaction, table.db, table.sealed)
            self._environment.raise_version(transaction)

    def close(self) -> None:
        """Close the file and let go of the folder."""
        self._environment.close()

    def check_room(self, changes: Sequence[Change]) -> None:
        """Make sure that the disk has room for changes that add something.

        Raises:
            Unavailable: it has none. What is removed, or decided, may still be written.
        """
        added = sum(isinstance(change, _ADDING) for change in changes)
        if added:
            self.space.left -= added * CHANGE_BYTES
            if self.space.left < 0:
                raise Unavailable(
                    f"the disk of the coordinator is full at {self._environment.folder}; consume what is "
                    "queued, or make room, and try again"
                )

    # --- one change each ----------------------------------------------------------------------------------------------

    def _add_exchange(self, transaction: lmdb.Transaction, change: ExchangeAdded) -> None:
        exchange = change.exchange
        kept = _encode((self._boot(exchange.durable), exchange))
        self._tables[b"exchanges"].put(transaction, _key(exchange.vhost, exchange.name), kept)

    def _remove_exchange(self, transaction: lmdb.Transaction, change: ExchangeRemoved) -> None:
        self._tables[b"exchanges"].delete(transaction, _key(change.vhost, change.name))

    def _add_queue(self, transaction: lmdb.Transaction, change: QueueAdded) -> None:
        queue = change.queue
        kept = _encode((self._boot(queue.durable and not queue.owner), queue))
        self._tables[b"queues"].put(transaction, _key(queue.vhost, queue.name), kept)
        self._tables[b"state"].put(transaction, NEXT_QUEUE, (queue.id + 1).to_bytes(8, "big"))

    def _remove_queue(self, transaction: lmdb.Transaction, change: QueueRemoved) -> None:
        key = _key(change.vhost, change.name)
        queue = _decode_queue(_found(self._tables[b"queues"].pop(transaction, key))).value
        tombstone = queue.id.to_bytes(8, "big")
        self._tables[b"tombstones"].put(transaction, tombstone, queue.shard.to_bytes(4, "big"))

    def _add_binding(self, transaction: lmdb.Transaction, change: BindingAdded) -> None:
        binding = change.binding
        kept = _encode((self._boot(self._is_durable(transaction, binding)), binding))
        self._tables[b"bindings"].put(transaction, _binding_key(binding), kept)

    def _remove_binding(self, transaction: lmdb.Transaction, change: BindingRemoved) -> None:
        self._tables[b"bindings"].delete(transaction, _binding_key(change.binding))

    def _put_user(self, transaction: lmdb.Transaction, change: UserPut) -> None:
        self._tables[b"users"].put(transaction, change.user.name.encode(), _encode(change.user))

    def _remove_user(self, transaction: lmdb.Transaction, change: UserRemoved) -> None:
        self._tables[b"users"].delete(transaction, change.name.encode())

    def _put_vhost(self, transaction: lmdb.Transaction, change: VhostPut) -> None:
        vhosts, name = self._tables[b"vhosts"], change.vhost.name
        if vhosts.get(transaction, name.encode()) is None:
            self._ledger.bear(transaction, name)
        vhosts.put(transaction, name.encode(), _encode(change.vhost))

    def _remove_vhost(self, transaction: lmdb.Transaction, change: VhostRemoved) -> None:
        self._tables[b"vhosts"].delete(transaction, change.name.encode())
        self._ledger.bury(transaction, change.name)

    def _put_permission(self, transaction: lmdb.Transaction, change: PermissionPut) -> None:
        permission = change.permission
        key = _key(permission.user, permission.vhost)
        self._tables[b"permissions"].put(transaction, key, _encode(permission))
        self._tables[b"state"].put(transaction, PERMISSIONS, b"1")

    def _remove_permission(self, transaction: lmdb.Transaction, change: PermissionRemoved) -> None:
        self._tables[b"permissions"].delete(transaction, _key(change.user, change.vhost))

    def _tell_only(self, transaction: lmdb.Transaction, change: ConnectionClosed) -> None:
        """A connection is sent away once; nothing of it is kept."""

    def _begin_transaction(self, transaction: lmdb.Transaction, change: TransactionBegun) -> None:
        self._ledger.begin(transaction, change.transaction)

    def _end_transaction(self, transaction: lmdb.Transaction, change: TransactionEnded) -> None:
        assert self._shards, "a transaction ends for all shards, and how many there are, nobody has said"
        self._ledger.end(transaction, change, self._shards)

    # --- what it takes ------------------------------------------------------------------------------------------------

    def _is_durable(self, transaction: lmdb.Transaction, binding: Binding) -> bool:
        """A binding is durable when both its ends are; they are on disk, or in this transaction."""
        exchanges, queues = self._tables[b"exchanges"], self._tables[b"queues"]
        source = _decode_exchange(_found(exchanges.get(transaction, _key(binding.vhost, binding.exchange)))).value
        end = _key(binding.vhost, binding.destination)
        if binding.to_exchange:
            return source.durable and _decode_exchange(_found(exchanges.get(transaction, end))).value.durable
        queue = _decode_queue(_found(queues.get(transaction, end))).value
        return source.durable and queue.durable and not queue.owner

    def _boot(self, durable: bool) -> str:
        return DURABLE if durable else self._boot_id

    def _is_over(self, boot: str) -> bool:
        return boot not in (DURABLE, self._boot_id)

    def _entries(self, database: bytes) -> list[tuple[bytes, bytes]]:
        with self._env.begin() as transaction:
            return list(self._tables[database].items(transaction))

    def _kept(self, database: bytes, decode: Any) -> list[tuple[str, Any]]:
        return [(kept.boot, kept.value) for kept in (decode(value) for _, value in self._entries(database))]


_WRITE: Final[Mapping[type[Any], Callable[[Store, lmdb.Transaction, Any], None]]] = {
    ExchangeAdded: Store._add_exchange,
    ExchangeRemoved: Store._remove_exchange,
    QueueAdded: Store._add_queue,
    QueueRemoved: Store._remove_queue,
    BindingAdded: Store._add_binding,
    BindingRemoved: Store._remove_binding,
    UserPut: Store._put_user,
    UserRemoved: Store._remove_user,
    VhostPut: Store._put_vhost,
    VhostRemoved: Store._remove_vhost,
    PermissionPut: Store._put_permission,
    PermissionRemoved: Store._remove_permission,
    ConnectionClosed: Store._tell_only,
    TransactionBegun: Store._begin_transaction,
    TransactionEnded: Store._end_transaction,
}


_ADDING: Final = (ExchangeAdded, QueueAdded, BindingAdded, UserPut, VhostPut, PermissionPut, TransactionBegun)


def _key(vhost: str, name: str) -> bytes:
    return f"{vhost}\0{name}".encode()


def _found(value: bytes | None) -> bytes:
    """What must be there, as changes come in order."""
    if value is None:
        raise KeyError("the coordinator's store lacks what a change builds on")
    return value


def _binding_key(binding: Binding) -> bytes:
    return blake2b(_encode(binding_id(binding)), digest_size=32).digest()


def _check_shards(queues: list[Queue], shards: int) -> None:
    last = max((queue.shard for queue in queues), default=0)
    if last < shards:
        return
    count = sum(queue.shard == last for queue in queues)
    raise StartupRefused(
        f"the data directory has {count} queue{'s' * (count > 1)} on shard {last}, but only {shards} "
        f"shard{'s were' if shards > 1 else ' was'} asked for; start with --shards {last + 1} or more"
    )
