"""Each guard of the core, removed. What is left must be found by the simulator."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shardmq.replication.core import events
from shardmq.replication.core.catch_up import CatchUp
from shardmq.replication.core.changes import GroupChanges
from shardmq.replication.core.follower import Follower
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Ack, Hello, Record, Rejoin
from shardmq.replication.core.note import Key, Log, common_point
from shardmq.replication.core.primary import Primary
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.state import ReplicaState
from tests.replication.simulator.application import Application

Mutation = tuple[type, str, Callable[..., Any] | property]
"""A class, one of its methods or properties, and what takes its place."""


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Run with a guard removed."""
    owner, name, replacement = mutation
    guard = owner.__dict__[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, guard)


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def nothing(*_: object) -> None:
    return None


def released_by_own_disk(self: Primary) -> int:
    return self._durable_index


def released_without_own_disk(self: Primary) -> int:
    return min([self._state.index, *(peer.acked for peer in self._awaited)])


def released_as_if_shrunk(self: Primary) -> int:
    group = self._register.asked or self._group
    acked = [peer.acked for name, peer in self._peers.items() if name in group.in_sync or name in self.changes.growing]
    return min([self._durable_index, *acked])


def forget_growth(self: GroupChanges) -> None:
    self.growing = {}


def promise_in_memory(self: ReplicaState, term: int) -> None:
    self.promised = self.durable_promised = term


def accept_any_term(self: Follower, sender: str, term: int) -> bool:
    state = self._state
    if term > state.promised:
        self.promise(term)
    self.leader = sender
    return state.durable_promised >= term


def campaign_incomplete(self: Follower, group: Group) -> bool:
    return self._is_in_sync(group)


def believe_lost_swap(self: Replica, _: events.SwapLost) -> None:
    self._swapped(events.Swapped(self._register.revision + 1))


def give_up_lost_swap(self: Replica, _: events.SwapLost) -> None:
    self._register.asked = None
    if self._primary is not None:
        self._primary.changes.growing = {}
        self._primary.group_learned()


def answered_now(self: Primary, _: object) -> float:
    return self._state.now


def no_quiet_time(_: Replica) -> float:
    return float("-inf")


def common_by_index(self: CatchUp, hello: Hello) -> int | None:
    common = common_point(self._state.log, Log(hello.history, hello.index, hello.leads))
    return None if common is None or hello.copied is not None else min(hello.index, self._state.index)


def fetch_own_keys_only(self: CatchUp, _: Hello, common: int) -> dict[Key, None]:
    return dict.fromkeys(key for _, keys in self._state.touched.above(common) for key in keys)


def rejoin_in_two_commits(self: Follower, sender: str, rejoin: Rejoin) -> None:
    if not self.accepts(sender, rejoin.term) or not self._may_read_stream(rejoin):
        return
    state = self._state
    state.index, state.term = rejoin.index, rejoin.last_term
    state.history, state.leads = rejoin.history, rejoin.leads
    state.touched.cut(rejoin.common)
    for row in rejoin.touched:
        state.touched.add(row, state.released)
    state.hear_clock(rejoin.clock)
    state.commit((), rejoin.touched, cut=rejoin.common)
    self._begin_stream(state.commit(rejoin.edits))


def complete_with_ranges(self: Follower) -> bool:
    return self._has_all_ranges


def complete_when_released(self: Follower) -> bool:
    return self._state.released >= self._join_start


def ack_at_once(self: Follower, sender: str, record: Record) -> None:
    GUARDED_RECORD(self, sender, record)
    if self._is_streaming and record.stream == self._stream:
        self._state.send(sender, Ack(record.term, record.stream, self._state.index, self._state.copied is None))


GUARDED_RECORD = Follower.record


def keep_incarnation(self: Group, name: str, _: str) -> Group:
    return Group(self.incarnation, self.term + 1, name, (name,), self.replicas, self.min_in_sync)


def clock_that_stands(self: ReplicaState) -> float:
    return self._clock


def own_clock(self: ReplicaState) -> float:
    return self.now


def begin_any_group(self: Replica, group: Group) -> bool:
    return self._state.incarnation == "" and self._state.name in group.in_sync


def grow_early(self: GroupChanges, peer: Any) -> bool:
    return bool(peer.stream) and peer.is_complete and not self._is_gone(peer)


MUTATIONS: dict[str, Mutation] = {
    "a confirm waits for the in-sync set": (Primary, "releasable", released_by_own_disk),
    "a confirm waits for the primary's disk": (Primary, "releasable", released_without_own_disk),
    "shrink first, confirm after": (Primary, "releasable", released_as_if_shrunk),
    "a newcomer is waited for from sending the swap on": (GroupChanges, "wait_for", nothing),
    "a growth that was not answered may take place late": (GroupChanges, "learned", forget_growth),
    "a learner lacks nothing when it is taken in": (GroupChanges, "may_grow", grow_early),
    "who is dropped is not taken in again": (GroupChanges, "is_leaving", never),
    "the primary does not drop itself": (GroupChanges, "may_drop", always),
    "a transfer waits until all is released": (GroupChanges, "may_transfer", always),
    "a promise is on disk before it counts": (ReplicaState, "promise", promise_in_memory),
    "lower terms are refused": (Follower, "accepts", accept_any_term),
    "an acknowledgement is of what is on disk": (Follower, "record", ack_at_once),
    "a stalled disk ends the beats": (ReplicaState, "is_stalled", property(never)),
    "a mark is released before the delivery": (Application, "waits_for_mark", never),
    "only members of the set campaign": (Follower, "_is_in_sync", always),
    "only complete stores campaign": (Follower, "may_campaign", campaign_incomplete),
    "below min_in_sync publishes are refused": (Primary, "has_too_few", never),
    "a lost swap is not taken for done": (Replica, "_swap_lost", believe_lost_swap),
    "a lost swap is not taken for void": (Replica, "_swap_lost", give_up_lost_swap),
    "no message counts before etcd was asked": (Replica, "knows_group", always),
    "an empty store lacks nothing in a new group alone": (Replica, "is_first_of", begin_any_group),
    "only who has led goes on at once": (ReplicaState, "has_led", always),
    "a term is not led twice": (Replica, "is_over", never),
    "the lease counts from sending the beat": (Primary, "answered_at", answered_now),
    "the lease is checked before each flush": (Primary, "_has_lease", always),
    "a new primary waits for the end of the lease it granted": (Replica, "quiet_until", no_quiet_time),
    "the common point is found by terms": (CatchUp, "_common", common_by_index),
    "a rejoin takes back what only the rejoiner has": (CatchUp, "keys_to_fetch", fetch_own_keys_only),
    "a rejoin is one commit": (Follower, "rejoin", rejoin_in_two_commits),
    "a join ends when all before it is released": (Follower, "_may_complete", complete_with_ranges),
    "a join ends with its last range": (Follower, "_may_complete", complete_when_released),
    "acknowledgements of streams of before are dropped": (Primary, "is_of_stream", always),
    "what was written before a stream is not acknowledged in it": (Follower, "is_of_stream", always),
    "records of streams of before are dropped": (Follower, "_may_read_stream", always),
    "an unclean election changes the incarnation": (Group, "elected_unclean", keep_incarnation),
    "the group's clock is the primary's": (ReplicaState, "hear_clock", nothing),
    "the group's clock goes on by itself": (ReplicaState, "clock", clock_that_stands),
    "the group's clock is not the host's": (ReplicaState, "clock", own_clock),
}
"""Guards, by what they say."""

CAUGHT_BY: dict[str, tuple[int, ...]] = {
    "a confirm waits for the in-sync set": (0, 1),
    "a confirm waits for the primary's disk": (0, 2),
    "shrink first, confirm after": (1, 38),
    "a newcomer is waited for from sending the swap on": (60, 69),
    "a growth that was not answered may take place late": (659,),
    "a learner lacks nothing when it is taken in": (28,),
    "who is dropped is not taken in again": (5997,),
    "the primary does not drop itself": (179,),
    "a transfer waits until all is released": (351,),
    "a promise is on disk before it counts": (24, 38),
    "lower terms are refused": (1490, 3857),
    "an acknowledgement is of what is on disk": (0, 1),
    "a stalled disk ends the beats": (76, 123),
    "a mark is released before the delivery": (0, 1),
    "only members of the set campaign": (11, 14),
    "only complete stores campaign": (237, 244),
    "below min_in_sync publishes are refused": (4, 14),
    "a lost swap is not taken for done": (1,),
    "a lost swap is not taken for void": (659,),
    "no message counts before etcd was asked": (61,),
    "an empty store lacks nothing in a new group alone": (129,),
    "only who has led goes on at once": (85,),
    "a term is not led twice": (2922,),
    "the lease counts from sending the beat": (408,),
    "the lease is checked before each flush": (44,),
    "a new primary waits for the end of the lease it granted": (1097,),
    "the common point is found by terms": (21,),
    "a rejoin takes back what only the rejoiner has": (33,),
    "a rejoin is one commit": (674,),
    "a join ends when all before it is released": (2317,),
    "a join ends with its last range": (2, 21),
    "acknowledgements of streams of before are dropped": (428,),
    "what was written before a stream is not acknowledged in it": (247,),
    "records of streams of before are dropped": (671,),
    "an unclean election changes the incarnation": (27,),
    "the group's clock is the primary's": (40, 63),
    "the group's clock goes on by itself": (0, 1),
    "the group's clock is not the host's": (0, 1),
}
"""Seeds that find something without the guard, to be tried first."""
