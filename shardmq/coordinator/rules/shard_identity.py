"""Which store serves as which shard, and whether a shard that calls is the one that is expected.

A coordinator has a generation, a number that is raised at each start. Each shard records the generation of the newest
coordinator that enrolled it, and the coordinator records which generation it is about to tell each shard. So a store
that was restored from an old copy is noticed from both sides. A shard with a newer generation than the coordinator ever
told it shows that the coordinator's store is the old one. A shard with an older generation than it once confirmed has
an old store itself.

Generations are milliseconds since 1970 where the clock goes forward, so that a copy of a whole data directory goes on
with a generation that nobody had before. Queue ids begin with the generation: no id is given twice, whatever is
restored.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from shardmq.bus.messages.stores import Identity
from shardmq.errors import StartupRefused

QUEUES_BITS: Final = 12
"""An id is the generation, followed by this many bits for a count. A count may run over into the generation: to reach
the ids of the next one, clients would have to declare 4,096 queues in every millisecond. Until 2039, ids stay below
2**53, up to which all JSON readers are exact."""

ADOPT: Final = "or stop everything and run `shardmq store adopt DATA_DIR`, which rebuilds it from what the shards have"
LOST: Final = "if there is none, stop everything and run `shardmq store adopt DATA_DIR`, which goes on without"


_log = logging.getLogger(__name__)


class Member(msgspec.Struct, array_like=True, frozen=True):
    """The store that serves as a shard.

    Attributes:
        store: its id; "" for a store of an earlier version, which had none.
        told: the newest generation it was told, or is about to be told.
        heard: the newest generation that it confirmed to have recorded.
    """

    store: str
    told: int = 0
    heard: int = 0


class ShardRefused(Exception):
    """The shard's store is not the one that belongs there. The text is for the operator."""


class GenerationPassed(Exception):
    """A shard has heard of a newer generation, and nobody can be of that: this coordinator is to begin anew above it.

    Args:
        generation: the newest that a shard has heard of.
    """

    def __init__(self, generation: int) -> None:
        super().__init__(
            f"shards have heard of a coordinator of generation {generation}, whose store is lost; this one begins anew "
            "with a newer generation"
        )
        self.generation = generation


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of the broker and of this coordinator, as known at its start.

    Attributes:
        broker: the broker's id.
        generation: of this start.
        next_queue: id of the next new queue, as it was stored.
        members: by shard number.
        next_transaction: number of the next new transaction at least; 0 where the store knows.
    """

    broker: str
    generation: int
    next_queue: int
    members: Mapping[int, Member]
    next_transaction: int = 0

    @property
    def is_new(self) -> bool:
        """Whether no shard was ever enrolled."""
        return not self.members

    @property
    def first_queue(self) -> int:
        """The id that the next new queue gets."""
        return max(self.next_queue, self.generation << QUEUES_BITS)


def new_broker() -> str:
    """Make the id of a new broker."""
    return secrets.token_hex(8)


def next_generation(last: int) -> int:
    """The generation after that one."""
    return max(last + 1, time.time_ns() // 1_000_000)


@dataclass(frozen=True, slots=True)
class ExpectedQueues:
    """What the coordinator expects on a shard.

    Attributes:
        queues: (vhost, name) of the shard's queues, by id.
        durable: how many of them are durable.
        gone: ids of deleted queues that the shard has yet to drop.
        decisions: how many decided transactions the shard has yet to follow.
    """

    queues: Mapping[int, tuple[str, str]]
    durable: int
    gone: frozenset[int]
    decisions: int


class Members:
    """The stores that serve as shards. What a shard is told is on disk before.

    Args:
        identity: what the coordinator knew when it started.
        write: writes all members to disk.
        is_one_of_several: whether other hosts have coordinators. One that was elected since is met at the shards then,
            before this one hears of it, and is no sign of an old store.
        is_alone: returns whether certainly none of them serves now.
        on_transaction: called with the highest number of a transaction that a shard knows.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        write: Callable[[Mapping[int, Member]], None],
        is_one_of_several: bool = False,
        is_alone: Callable[[], bool] = lambda: False,
        on_transaction: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._identity = identity
        self._members = dict(identity.members)
        self._write = write
        self._is_one_of_several = is_one_of_several
        self._is_alone = is_alone
        self._on_transaction = on_transaction
        self._newest = 0  # generation that a shard has heard of, of those above this one's

    @property
    def broker(self) -> str:
        """The broker's id."""
        return self._identity.broker

    @property
    def generation(self) -> int:
        """The coordinator's generation."""
        return self._identity.generation

    def enroll(self, shard: int, said: Identity, known: ExpectedQueues) -> int:
        """Accept a shard; returns the generation it is to be told, 0 where another host's coordinator is newer.

        Raises:
            StartupRefused: the coordinator's store is not the newest, or the shards' addresses are in another order.
            ShardRefused: the shard's store is not the one that belongs there.
            GenerationPassed: see `look`.
        """
        if self._is_one_of_several and said.broker == self.broker and said.generation > self.generation:
            _log.warning("shard %d has heard of a newer coordinator, generation %d", shard, said.generation)
            self._newest = max(self._newest, said.generation)
            self.look()
            return 0
        judge(self._identity, self._members, shard, said, known, self._is_one_of_several)
        heard = said.generation if said.broker else 0
        self._put(shard, Member(said.store, self.generation, heard))
        self._on_transaction(said.transaction)
        return self.generation

    def look(self) -> None:
        """Find out whether a newer coordinator that a shard has heard of is lost; called now and then.

        It was of a replica whose clock was ahead, and this one was elected without what that one wrote.

        Raises:
            GenerationPassed: it is.
        """
        if self._newest and self._is_alone():
            raise GenerationPassed(self._newest)

    def heard(self, shard: int) -> None:
        """Note that a shard has recorded the generation."""
        self._put(shard, msgspec.structs.replace(self._members[shard], heard=self.generation))

    def refused(self, address: str, text: str) -> None:
        """Take in that a shard refuses to be enrolled: another host's coordinator is newer, or something is wrong.

        Raises:
            StartupRefused: no other host has a coordinator.
        """
        refusal = f"{address}: {text}; this coordinator is of broker {self.broker}, generation {self.generation}"
        if not self._is_one_of_several:
            raise StartupRefused(refusal)
        _log.warning("%s", refusal)

    def _put(self, shard: int, member: Member) -> None:
        if self._members.get(shard) != member:
            self._members[shard] = member
            self._write(self._members)


def judge(
    identity: BrokerIdentity,
    members: Mapping[int, Member],
    shard: int,
    said: Identity,
    known: ExpectedQueues,
    is_one_of_several: bool = False,
) -> None:
    """Accept a shard, or raise what is wrong with it.

    On several hosts replicas say whose store is the newest. One that is older was elected by an operator, who knows
    what is lost with that: it is told of, and the store serves.

    Args:
        identity: what the coordinator knew when it started.
        members: the stores that serve as shards now.
        shard: the number by which the coordinator calls the shard.
        said: what the shard says of itself.
        known: what the coordinator expects on the shard.
        is_one_of_several: whether shard and coordinator have replicas on other hosts.

    Raises:
        StartupRefused: the coordinator's store is not the newest, or the shards' addresses are in another order.
        ShardRefused: the shard's store is not the one that belongs there.
    """
    if said.shard != shard:
        raise StartupRefused(
            f"the address given for shard {shard} is answered by shard {said.shard}; give the shards' "
            "addresses in order of their numbers"
        )
    member = members.get(shard)
    if said.broker and said.broker != identity.broker:
        _refuse_stranger(identity, shard, said)
    if member is None or member.store != said.store:
        _check_place(member, shard, said, known)
    elif not is_one_of_several:
        _check_age(member, shard, said)
    elif not member.heard <= said.generation <= member.told:
        _log.warning(
            "shard %d has heard of generation %d, and the coordinator has it between %d and %d: one of them was "
            "elected unclean, and lacks what came later",
            *(shard, said.generation, member.heard, member.told),
        )
    _check_queues(identity, shard, said, known, is_one_of_several)


def _refuse_stranger(identity: BrokerIdentity, shard: int, said: Identity) -> None:
    has = f"its store belongs to broker {said.broker}"
    if identity.is_new:
        raise StartupRefused(
            f"the coordinator's store is new (broker {identity.broker}), but shard {shard} has served another one: "
            f"{has} and has {_count(len(said.queues), 'durable queue')}; restore the coordinator's store from a copy, "
            f"{ADOPT}"
        )
    raise ShardRefused(
        f"expected shard {shard} of broker {identity.broker}, but {has}; start it with that shard's store"
    )


def _check_place(member: Member | None, shard: int, said: Identity, known: ExpectedQueues) -> None:
    """Refuse a store that is not the one that served there last, where the shard would miss something."""
    if member is None or (not member.store and said.is_adopted):
        return
    missing = []
    if known.durable:
        missing.append(f"{_count(known.durable, 'queue')} registered")
    if known.decisions:
        missing.append(f"{_count(known.decisions, 'committed transaction')} to carry out")
    if missing:
        what = "another one" if said.broker else "new"
        expected = f"store {member.store}" if member.store else "a store of an earlier version"
        raise ShardRefused(
            f"shard {shard} has {' and '.join(missing)}, but its store is {what}: expected {expected}, found "
            f"{said.store} with {_count(len(said.queues), 'durable queue')}; restore the shard's store from a copy; "
            f"{LOST} the messages that are lost"
        )


def _check_age(member: Member, shard: int, said: Identity) -> None:
    if said.generation > member.told:
        raise _older(
            shard,
            f"the shard has heard of generation {said.generation}, and the coordinator told it {member.told or 'none'}",
        )
    if said.generation < member.heard:
        raise ShardRefused(
            f"shard {shard}'s store is older than the coordinator's: it has heard of generation {said.generation}, and "
            f"confirmed generation {member.heard} before; restore the newer copy of the shard's store; {LOST} what "
            "only the newer one has"
        )


def _check_queues(
    identity: BrokerIdentity, shard: int, said: Identity, known: ExpectedQueues, is_one_of_several: bool
) -> None:
    for queue, vhost, name in said.queues:
        there = known.queues.get(queue)
        is_unknown = there is None and queue not in known.gone
        if is_unknown and is_one_of_several:
            _log.warning(
                "shard %d has queue '%s' in vhost '%s', which is not declared: it rests there", shard, name, vhost
            )
        elif is_unknown:
            raise _older(
                shard,
                f"the shard has queue '{name}' in vhost '{vhost}' (id {queue}), which the coordinator does not know",
            )
        if there is not None and there != (vhost, name):
            raise _older(
                shard,
                f"the id {queue} is queue '{name}' in vhost '{vhost}' on the shard, and '{there[1]}' "
                f"in vhost '{there[0]}' for the coordinator",
            )
    was_told_now = said.generation == identity.generation  # its newer ids were given by this coordinator
    if not was_told_now and said.queue >= identity.first_queue:
        raise _older(
            shard,
            f"the shard was given queue id {said.queue}, and the coordinator's next one would be "
            f"{identity.first_queue}",
        )


def _older(shard: int, how: str) -> StartupRefused:
    return StartupRefused(
        f"the coordinator's store is older than shard {shard}'s: {how}; restore the newer copy of the "
        f"coordinator's store, {ADOPT}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
