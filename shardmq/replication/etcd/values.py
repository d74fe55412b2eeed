"""The values of the register: what is kept in etcd of a broker, its hosts, its groups, and wishes for them. No I/O.

A group's value is the core's. Keys are `/prefix/broker`, `/prefix/format`, `/prefix/hosts/NAME`, `/prefix/groups/NAME`
and `/prefix/wishes/NAME` of a group. Values are JSON objects, which people can read with etcdctl; fields that are not
known here are left alone in reading, as a newer version may have written them.
"""

from typing import Final, Generic, TypeVar

import msgspec

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.errors import UnreadableValue
from shardmq.storage.versions import REPLICAS_SINCE


class Growth(msgspec.Struct, frozen=True):
    """What an operator asks all hosts before shards are added: whether they have what more of them need.

    Attributes:
        shards: how many there would be.
        asked: made up for this question.
    """

    shards: int
    asked: str


class Readiness(msgspec.Struct, frozen=True):
    """What a host answers to that.

    Attributes:
        asked: the question.
        fault: what it lacks; "" for nothing.
    """

    asked: str
    fault: str = ""


class Broker(msgspec.Struct, frozen=True):
    """One broker on several hosts.

    Attributes:
        id: made up when it was created; stores of other brokers are refused.
        shards: how many it has; they become more, never fewer.
        replicas: how many hosts are to have each of them.
        version: of what created it.
        min_in_sync: of its groups: with fewer replicas in sync, publishes are refused.
        hosts: that are waited for before its groups are made; none to make them on the first host that comes.
        shards_at_first: how many it was created with, where shards were added since; 0 where none were.
        growth: what hosts are asked before shards are added; None where nobody asks.
    """

    id: str
    shards: int
    replicas: int
    version: str = ""
    min_in_sync: int = 1
    hosts: tuple[str, ...] = ()
    shards_at_first: int = 0
    growth: Growth | None = None


class StoreFormat(msgspec.Struct, frozen=True):
    """Of the stores of all replicas. It is not in `Broker`, which versions write that know of no format.

    Attributes:
        version: the newest that may be in them.
    """

    version: int


class Host(msgspec.Struct, frozen=True):
    """One host.

    Attributes:
        session: made up at each of its starts; what an older one says is not listened to.
        addresses: where its processes are reached, by what they are reached for.
        labels: that an operator gave it, such as its zone.
        is_draining: whether it is to have no replicas any more, until an operator says otherwise.
        is_stopping: whether it is to lead nothing, until its next start.
        readiness: its answer to the newest question whether shards can be added; None before the first one.
        format: the newest format of stores that its shardmq writes; versions that say nothing write the first.
    """

    session: str
    addresses: dict[str, str] = {}
    labels: dict[str, str] = {}
    is_draining: bool = False
    is_stopping: bool = False
    readiness: Readiness | None = None
    format: int = REPLICAS_SINCE


class Wish(msgspec.Struct, frozen=True):
    """What an operator, or the balance of the broker, wants of a group. It holds for one term, but for a move.

    Attributes:
        term: of the group when it was made: an election makes the wish void.
        primary: who is to lead; "" for no matter who.
        unclean: the group's new incarnation, where `primary` is to lead though it may lack what was released.
        source: who is to be a replica no more, in a move; "" for none.
        target: who is to be one instead, and stays one after the move.
        is_pinned: whether the primary is to lead for as long as it can: an operator says so, not the balance.
    """

    term: int = 0
    primary: str = ""
    unclean: str = ""
    source: str = ""
    target: str = ""
    is_pinned: bool = False


class Load(msgspec.Struct, frozen=True):
    """What the primary of a group takes of the processor.

    Attributes:
        term: in which it was measured.
        cores: on average over a minute.
    """

    term: int
    cores: float


class Loads(msgspec.Struct, frozen=True):
    """What a host has measured of groups that it leads, or has led before.

    Attributes:
        groups: by name of the group.
    """

    groups: dict[str, Load] = {}


def fault_of(value: msgspec.Struct) -> str:
    """What is wrong with a value whose fields have their types; "" for nothing."""
    if isinstance(value, Broker) and not (value.id and value.shards > 0 and value.replicas > 0):
        return "a broker has an id, one shard or more, and one replica or more of each"
    if isinstance(value, Broker) and not 0 < value.min_in_sync <= value.replicas:
        return f"a broker with {value.replicas} replicas has a min_in_sync of 1 to {value.replicas}"
    if isinstance(value, Wish) and value.source and not value.target:
        return "a move has a target"
    if isinstance(value, Host) and not value.session:
        return "a host has a session"
    if isinstance(value, StoreFormat) and value.version < REPLICAS_SINCE:
        return f"stores of replicas have format {REPLICAS_SINCE} or a later one"
    return _fault_of_group(value) if isinstance(value, Group) else ""


def _fault_of_group(group: Group) -> str:
    if not group.incarnation or group.term < 0 or group.min_in_sync < 1:
        return "a group has an incarnation, a term of 0 or more, and a min_in_sync of 1 or more"
    if not group.in_sync:
        return "the in-sync set is empty"
    if len({*group.in_sync}) < len(group.in_sync) or len({*group.replicas}) < len(group.replicas):
        return "a host is named twice"
    if strangers := {*group.in_sync} - {*group.replicas}:
        return f"{', '.join(sorted(strangers))} of the in-sync set is no replica"
    if group.primary not in group.in_sync and (group.primary or group.term):
        return f"the primary '{group.primary}' of term {group.term} is not in the in-sync set"
    return ""


Value = TypeVar("Value", bound=msgspec.Struct)


class Kind(msgspec.Struct, Generic[Value], frozen=True):
    """One kind of value.

    Attributes:
        folder: what its keys begin with, behind the prefix.
        type: of its values.
        is_single: whether there is only one, whose key is the folder itself.
    """

    folder: str
    type: type[Value]
    is_single: bool = False


BROKER: Final = Kind("broker", Broker, is_single=True)
FORMAT: Final = Kind("format", StoreFormat, is_single=True)
HOSTS: Final = Kind("hosts", Host)
GROUPS: Final = Kind("groups", Group)
WISHES: Final = Kind("wishes", Wish)
LOADS: Final = Kind("loads", Loads)


class _Mark(msgspec.Struct):
    swap: str = ""


def encode(value: msgspec.Struct, mark: str) -> bytes:
    """The bytes of a value, with the mark of the swap that writes it.

    Raises:
        ValueError: it is not what a value may be.
    """
    if fault := fault_of(value):
        raise ValueError(fault)
    return msgspec.json.format(msgspec.json.encode({**msgspec.to_builtins(value), "swap": mark}), indent=0)


def decode(kind: Kind[Value], key: str, data: bytes) -> tuple[Value, str]:
    """A value, and the mark of the swap that wrote it; "" where somebody else did.

    Raises:
        UnreadableValue: it is not what should be there.
    """
    try:
        value, mark = msgspec.json.decode(data, type=kind.type), msgspec.json.decode(data, type=_Mark).swap
        if fault := fault_of(value):
            raise msgspec.ValidationError(fault)
        return value, mark
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise UnreadableValue.of(
            key,
            f"the value of {key} in etcd is no {kind.type.__name__.lower()} of a broker: {fault}; look at it with "
            f"`etcdctl get {key}`, and put right what was written there by hand",
        ) from fault
