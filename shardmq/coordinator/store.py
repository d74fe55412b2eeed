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

`boot` is "" for what is durable; anything else lives as long as the broker that has that boot id (a life of
`shardmq up`, not of this process).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import lmdb
import msgspec

from shardmq.commands import (
    BindingAdded,
    BindingRemoved,
    Change,
    ConnectionExpelled,
    ExchangeAdded,
    ExchangeRemoved,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
)
from shardmq.environment import open_environment
from shardmq.errors import StartupRefused, StoreRefused
from shardmq.model import Binding, Exchange, Permission, Queue, User, Vhost
from shardmq.topology import TopologySnapshot, binding_id

FORMAT: Final = b"shardmq-coordinator"
DATABASES: Final = (b"exchanges", b"queues", b"bindings", b"vhosts", b"users", b"permissions", b"tombstones", b"state")
DURABLE: Final = ""
NEXT_QUEUE: Final = b"next_queue"
BOOT: Final = b"boot"

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
    """

    topology: TopologySnapshot
    tombstones: dict[int, int]
    next_queue: int
    is_restart: bool


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
        self._dbs = self._environment.dbs

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
        except msgspec.DecodeError as fault:
            raise StoreRefused(f"{self._environment.file} has an entry that cannot be read: {fault}; "
                               "restore it from a copy") from fault  # fmt: skip
        _check_shards([queue for boot, queue in queues if boot in (DURABLE, self._boot_id)], shards)
        state = dict(self._entries(b"state"))
        gone: list[Change] = [BindingRemoved(binding) for boot, binding in bindings if self._is_over(boot)]
        gone += [ExchangeRemoved(exchange.vhost, exchange.name) for boot, exchange in exchanges if self._is_over(boot)]
        gone += [QueueRemoved(queue.vhost, queue.name) for boot, queue in queues if self._is_over(boot)]
        with self._env.begin(write=True) as transaction:
            transaction.put(BOOT, self._boot_id.encode(), db=self._dbs[b"state"])
            for change in gone:
                self._write(transaction, change)
        topology = TopologySnapshot(
            version=0,
            vhosts=vhosts,
            exchanges=[exchange for boot, exchange in exchanges if not self._is_over(boot)],
            queues=[queue for boot, queue in queues if not self._is_over(boot)],
            bindings=[binding for boot, binding in bindings if not self._is_over(boot)],
            users=users,
            permissions=permissions,
        )
        tombstones = {
            int.from_bytes(key, "big"): int.from_bytes(value, "big") for key, value in self._entries(b"tombstones")
        }
        next_queue = int.from_bytes(state.get(NEXT_QUEUE, b"\1"), "big")
        return Stored(topology, tombstones, next_queue, state.get(BOOT) == self._boot_id.encode())

    def write(self, changes: Sequence[Change], dropped: Iterable[int] = ()) -> None:
        """Put changes on disk, all or none; return when they are there.

        Args:
            changes: in order.
            dropped: ids of deleted queues that their shard has dropped.

        Raises:
            lmdb.Error: they are not; this process cannot go on.
        """
        dropped = list(dropped)
        if not changes and not dropped:
            return
        with self._env.begin(write=True) as transaction:
            for change in changes:
                self._write(transaction, change)
            for queue in dropped:
                transaction.delete(queue.to_bytes(8, "big"), db=self._dbs[b"tombstones"])

    def close(self) -> None:
        """Close the file and let go of the folder."""
        self._environment.close()

    def _write(self, transaction: lmdb.Transaction, change: Change) -> None:
        dbs = self._dbs
        match change:
            case ExchangeAdded(exchange):
                kept = _encode((self._boot(exchange.durable), exchange))
                transaction.put(_key(exchange.vhost, exchange.name), kept, db=dbs[b"exchanges"])
            case ExchangeRemoved(vhost, name):
                transaction.delete(_key(vhost, name), db=dbs[b"exchanges"])
            case QueueAdded(queue):
                kept = _encode((self._boot(queue.durable and not queue.owner), queue))
                transaction.put(_key(queue.vhost, queue.name), kept, db=dbs[b"queues"])
                transaction.put(NEXT_QUEUE, (queue.id + 1).to_bytes(8, "big"), db=dbs[b"state"])
            case QueueRemoved(vhost, name):
                queue = _decode_queue(_found(transaction.pop(_key(vhost, name), db=dbs[b"queues"]))).value
                tombstone = queue.id.to_bytes(8, "big")
                transaction.put(tombstone, queue.shard.to_bytes(4, "big"), db=dbs[b"tombstones"])
            case BindingAdded(binding):
                kept = _encode((self._boot(self._is_durable(transaction, binding)), binding))
                transaction.put(_binding_key(binding), kept, db=dbs[b"bindings"])
            case BindingRemoved(binding):
                transaction.delete(_binding_key(binding), db=dbs[b"bindings"])
            case UserPut(user):
                transaction.put(user.name.encode(), _encode(user), db=dbs[b"users"])
            case UserRemoved(name):
                transaction.delete(name.encode(), db=dbs[b"users"])
            case VhostPut(vhost):
                transaction.put(vhost.name.encode(), _encode(vhost), db=dbs[b"vhosts"])
            case VhostRemoved(name):
                transaction.delete(name.encode(), db=dbs[b"vhosts"])
            case PermissionPut(permission):
                kept = _encode(permission)
                transaction.put(_key(permission.user, permission.vhost), kept, db=dbs[b"permissions"])
            case PermissionRemoved(user, vhost):
                transaction.delete(_key(user, vhost), db=dbs[b"permissions"])
            case ConnectionExpelled():
                pass  # it is told, and nothing of it stays

    def _is_durable(self, transaction: lmdb.Transaction, binding: Binding) -> bool:
        """A binding is durable when both its ends are; they are on disk, or in this transaction."""
        exchanges, queues = self._dbs[b"exchanges"], self._dbs[b"queues"]
        source = _decode_exchange(_found(transaction.get(_key(binding.vhost, binding.exchange), db=exchanges))).value
        end = _key(binding.vhost, binding.destination)
        if binding.to_exchange:
            return source.durable and _decode_exchange(_found(transaction.get(end, db=exchanges))).value.durable
        queue = _decode_queue(_found(transaction.get(end, db=queues))).value
        return source.durable and queue.durable and not queue.owner

    def _boot(self, durable: bool) -> str:
        return DURABLE if durable else self._boot_id

    def _is_over(self, boot: str) -> bool:
        return boot not in (DURABLE, self._boot_id)

    def _entries(self, database: bytes) -> list[tuple[bytes, bytes]]:
        with self._env.begin(db=self._dbs[database]) as transaction:
            return list(transaction.cursor())

    def _kept(self, database: bytes, decode: Any) -> list[tuple[str, Any]]:
        return [(kept.boot, kept.value) for kept in (decode(value) for _, value in self._entries(database))]


def _key(vhost: str, name: str) -> bytes:
    return f"{vhost}\0{name}".encode()


def _found(value: bytes | memoryview | None) -> bytes | memoryview:
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
