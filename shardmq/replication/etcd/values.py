"""The values of the register: what is kept in etcd of a broker, its hosts and its replica groups. No I/O.

Keys are `/prefix/broker`, `/prefix/hosts/NAME` and `/prefix/groups/NAME`. Values are JSON objects, which people can
read with etcdctl; fields that are not known here are left alone in reading, as a newer version may have written them.
"""

from typing import Final, Generic, TypeVar

import msgspec

from shardmq.replication.etcd.errors import UnreadableValue


class Broker(msgspec.Struct, frozen=True):
    """One broker on several hosts.

    Attributes:
        id: made up when it was created; stores of other brokers are refused.
        shards: how many it has.
        replicas: how many hosts are to have each of them.
        version: of what created it.
    """

    id: str
    shards: int
    replicas: int
    version: str = ""

    def __post_init__(self) -> None:
        if not self.id or self.shards < 1 or self.replicas < 1:
            raise ValueError("a broker has an id, one shard or more, and one replica or more of each")


class Host(msgspec.Struct, frozen=True):
    """One host.

    Attributes:
        session: made up at each of its starts; what an older one says is not listened to.
        addresses: where its processes are reached, by what they are reached for.
        labels: that an operator gave it, such as its zone.
    """

    session: str
    addresses: dict[str, str] = {}
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not self.session:
            raise ValueError("a host has a session")


class Group(msgspec.Struct, frozen=True):
    """A replica group: one shard, or the coordinator, on its hosts.

    Attributes:
        incarnation: made up when it was created, and at an unclean election.
        term: raised by each election; 0 before the first one.
        primary: name of the host that leads; "" before the first election.
        in_sync: hosts that have all that is confirmed; never none.
        replicas: hosts that have it or are getting it.
        min_in_sync: with fewer hosts in sync, publishes are refused.
    """

    incarnation: str
    term: int
    primary: str
    in_sync: tuple[str, ...]
    replicas: tuple[str, ...]
    min_in_sync: int = 1

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise ValueError(fault)

    def _fault(self) -> str:
        if not self.incarnation or self.term < 0 or self.min_in_sync < 1:
            return "a group has an incarnation, a term of 0 or more, and a min_in_sync of 1 or more"
        if not self.in_sync:
            return "the in-sync set is empty"
        if len({*self.in_sync}) < len(self.in_sync) or len({*self.replicas}) < len(self.replicas):
            return "a host is named twice"
        if strangers := {*self.in_sync} - {*self.replicas}:
            return f"{', '.join(sorted(strangers))} of the in-sync set is no replica"
        if self.primary not in self.in_sync and (self.primary or self.term):
            return f"the primary '{self.primary}' of term {self.term} is not in the in-sync set"
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
HOSTS: Final = Kind("hosts", Host)
GROUPS: Final = Kind("groups", Group)


class _Mark(msgspec.Struct):
    swap: str = ""


def encode(value: msgspec.Struct, mark: str) -> bytes:
    """The bytes of a value, with the mark of the swap that writes it."""
    return msgspec.json.format(msgspec.json.encode({**msgspec.to_builtins(value), "swap": mark}), indent=0)


def decode(kind: Kind[Value], key: str, data: bytes) -> tuple[Value, str]:
    """A value, and the mark of the swap that wrote it; "" where somebody else did.

    Raises:
        UnreadableValue: it is not what should be there.
    """
    try:
        return msgspec.json.decode(data, type=kind.type), msgspec.json.decode(data, type=_Mark).swap
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise UnreadableValue.of(
            key,
            f"the value of {key} in etcd is no {kind.type.__name__.lower()} of a broker: {fault}; look at it with "
            f"`etcdctl get {key}`, and put right what was written there by hand",
        ) from fault
