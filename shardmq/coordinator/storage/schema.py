"""The rows of the coordinator's store: databases, keys and values.

    exchanges       vhost 0 name                -> [boot, Exchange]
    queues          vhost 0 name                -> [boot, Queue]
    bindings        blake2b of the binding      -> [boot, Binding]    a key of all names would be too long for LMDB
    vhosts          vhost                       -> Vhost; nothing in rows of the first version
    users           name                        -> User
    permissions     user 0 vhost                -> Permission
    topics          vhost 0 name                -> Topic
    policies        blake2b of vhost, name, kind -> Policy             of either kind
    topic_permissions  blake2b of user, vhost, exchange -> TopicPermission
    parameters      blake2b of vhost, component, name -> Parameter
    tombstones      queue id, u64               -> shard, u32         deleted queues their shard has not dropped yet
    state           "next_queue"                -> u64
                    "boot"                      -> boot id of the last start
                    "permissions"               -> "1" once a permission was written; older stores lack it
                    "broker"                    -> the broker's id
                    "generation"                -> u64, raised at each start
                    "members"                   -> {shard: Member}    the stores that serve as shards
                    "next_transaction"          -> u64
                    "clock"                     -> ClockNote
                    "definitions"               -> digest of those that were imported at a start
                "redo"                      -> u64                number of the last entry of the redo log
                                                                      (storage/redo) that is in here
    transactions    number, u64                 -> OpenTransaction    undecided
    decisions       number, u64                 -> attempts           decided, while a shard has yet to follow
    conclusions     number, u64; shard, u32     -> ""                 decided, and not yet followed by that shard
    committed       vhost 0 name                -> number, u64; ended_ms, u64
    committed_times ended_ms, u64; number, u64  -> vhost 0 name       to forget the oldest
    replica         what a replica notes of itself (replication/store/note.py, touched_keys.py); empty on one machine
    births          vhost                       -> u64                numbers below are of an earlier virtual host of
                                                                      that name

Every value begins with a checksum, which is left out above. Stores of earlier versions get the databases of
transactions, topics, policies and parameters when they are opened.

`boot` is "" for what is durable. Anything else exists as long as the broker runs that has that boot id (from a start of
`shardmq up` to its end, however often this process restarts). An exclusive queue is never durable: no connection
outlives the broker.
"""

import struct
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.coordinator.rules.shard_identity import Member
from shardmq.runtime.clock import ClockNote
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, sealed_row
from shardmq.storage.engine import Bytes, Layout, ReplicaLayout
from shardmq.topology.binding_ids import binding_id
from shardmq.topology.entities import (
    Binding,
    Exchange,
    OpenTransaction,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
)

FORMAT: Final = b"shardmq-coordinator"
TRANSACTION_DATABASES: Final = (
    b"transactions",
    b"decisions",
    b"conclusions",
    b"committed",
    b"committed_times",
    b"births",
)
DATABASES: Final = (
    b"exchanges",
    b"queues",
    b"bindings",
    b"vhosts",
    b"users",
    b"permissions",
    b"tombstones",
    b"state",
    *TRANSACTION_DATABASES,
    b"topics",
    b"policies",
    b"topic_permissions",
    b"parameters",
    b"replica",
)

NUMBERS: Final = {name: number for number, name in enumerate(DATABASES)}
"""The number of each database, as edits have it."""

SEEDS: Final = tuple(xxh3_64_intdigest(name) for name in DATABASES)
"""What the checksums of a database's rows begin with."""

DURABLE: Final = ""
NEXT_QUEUE: Final = b"next_queue"
BOOT: Final = b"boot"
PERMISSIONS: Final = b"permissions"
BROKER: Final = b"broker"
GENERATION: Final = b"generation"
MEMBERS: Final = b"members"
NEXT_TRANSACTION: Final = b"next_transaction"
CLOCK: Final = b"clock"
DEFINITIONS: Final = b"definitions"
APPLIED: Final = b"redo"
REPLICA: Final = b"replica"

NUMBER: Final = struct.Struct(">Q")
CONCLUSION: Final = struct.Struct(">QI")
PAIR: Final = struct.Struct(">QQ")


class StoredExchange(msgspec.Struct, array_like=True):
    """An exchange, and the life of the broker in which it exists."""

    boot: str
    value: Exchange


class StoredQueue(msgspec.Struct, array_like=True):
    """A queue, and the life of the broker in which it exists."""

    boot: str
    value: Queue


class StoredBinding(msgspec.Struct, array_like=True):
    """A binding, and the life of the broker in which it exists."""

    boot: str
    value: Binding


encode = msgspec.msgpack.Encoder().encode
decode_exchange = msgspec.msgpack.Decoder(StoredExchange).decode
decode_queue = msgspec.msgpack.Decoder(StoredQueue).decode
decode_binding = msgspec.msgpack.Decoder(StoredBinding).decode
decode_vhost = msgspec.msgpack.Decoder(Vhost).decode
decode_user = msgspec.msgpack.Decoder(User).decode
decode_permission = msgspec.msgpack.Decoder(Permission).decode
decode_members = msgspec.msgpack.Decoder(dict[int, Member]).decode
decode_transaction = msgspec.msgpack.Decoder(OpenTransaction).decode
decode_topic = msgspec.msgpack.Decoder(Topic).decode
decode_policy = msgspec.msgpack.Decoder(Policy).decode
decode_topic_permission = msgspec.msgpack.Decoder(TopicPermission).decode
decode_parameter = msgspec.msgpack.Decoder(Parameter).decode
decode_attempts = msgspec.msgpack.Decoder(list[int]).decode
decode_clock = msgspec.msgpack.Decoder(ClockNote).decode

DECODERS: Final[Mapping[bytes, Callable[[bytes], Any]]] = {
    b"exchanges": decode_exchange,
    b"queues": decode_queue,
    b"bindings": decode_binding,
    b"users": decode_user,
    b"permissions": decode_permission,
    b"transactions": decode_transaction,
    b"decisions": decode_attempts,
    b"topics": decode_topic,
    b"policies": decode_policy,
    b"topic_permissions": decode_topic_permission,
    b"parameters": decode_parameter,
}
"""How the rows of each database are read; those of the others are numbers and names."""


def name_key(vhost: str, name: str) -> bytes:
    """The key of a name in a virtual host. A permission's key has the user in place of the virtual host."""
    return f"{vhost}\0{name}".encode()


def binding_key(binding: Binding) -> bytes:
    """The key of a binding."""
    return _hashed(binding_id(binding))


def policy_key(vhost: str, name: str, is_operator: bool) -> bytes:
    """The key of a policy."""
    return _hashed((vhost, name, is_operator))


def topic_permission_key(user: str, vhost: str, exchange: str) -> bytes:
    """The key of a topic permission."""
    return _hashed((user, vhost, exchange))


def parameter_key(vhost: str, component: str, name: str) -> bytes:
    """The key of a parameter."""
    return _hashed((vhost, component, name))


def _hashed(parts: tuple[Any, ...]) -> bytes:
    """A key of parts that would be too long for LMDB together."""
    return blake2b(encode(parts), digest_size=32).digest()


def number_of(value: bytes | None, default: int = 0) -> int:
    """Decode a number of a row or key; the default where there is no row."""
    return default if value is None else int.from_bytes(value, "big")


def stored_value(database: int, key: bytes, value: Bytes) -> bytes:
    """Return what is stored for an edit's value: the value behind its checksum."""
    return sealed_row(SEEDS[database], key, value)


def edit_value(database: int, key: bytes, value: memoryview) -> memoryview | None:
    """Return the edit's value that a stored one was made of; None where it is not what was written."""
    return value[CHECKSUM_BYTES:] if is_row(SEEDS[database], key, value) else None


LAYOUT: Final = Layout(
    FORMAT,
    DATABASES,
    stored_value,
    log_note=(NUMBERS[b"state"], APPLIED),
    replicas=ReplicaLayout(NUMBERS[REPLICA], frozenset(), edit_value),
)
