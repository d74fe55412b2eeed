"""Permits of shared groups' members, against shards that are played here, in any order of what is on its way."""

import random
from collections import deque
from collections.abc import Callable

import pytest

from shardmq.gateway.session.groups.permits import BUSY_SECONDS, IDLE_SECONDS, Permits, even_share


class Partition:
    """One member's consumer of a partition, as gateway and shard know it.

    Attributes:
        unacked: messages that the client has of it.
    """

    def __init__(self) -> None:
        self.unacked = 0
        self.to_shard: deque[Callable[[], None]] = deque()
        self.to_gateway: deque[Callable[[], None]] = deque()
        self.prefetch = self.held = 0
        self.may_ask = True


class Group:
    """Members of a shared group, and the shards of its partitions."""

    def __init__(self, members: int, partitions: int, limit: int) -> None:
        self.limit = limit
        self.backlog = [0] * partitions
        self.members = [[Partition() for _ in range(partitions)] for _ in range(members)]
        self.permits: list[Permits[Partition]] = []
        self.done = 0
        for turn, parts in enumerate(self.members):
            permits = Permits[Partition](limit, turn, self.tell, self.decline)
            self.permits.append(permits)
            for place, part in enumerate(parts):
                permits.add(part, even_share(limit, partitions, (place + turn) % partitions))
                part.prefetch = permits.count(part) or 0

    def tell(self, part: Partition, count: int, answered: Callable[[], None]) -> None:
        def take() -> None:
            part.prefetch, part.may_ask = count, True
            part.to_gateway.append(answered)

        part.to_shard.append(take)

    def decline(self, part: Partition) -> None:
        part.to_shard.append(lambda: None)

    def shard(self, place: int) -> None:
        """One pass of a partition's shard."""
        for parts in self.members:
            part = parts[place]
            if part.to_shard:
                part.to_shard.popleft()()
        for member, parts in enumerate(self.members):
            part = parts[place]
            while self.backlog[place] and part.held < part.prefetch:
                self.backlog[place] -= 1
                part.held += 1
                part.to_gateway.append(lambda part=part, member=member: self.arrive(member, part))
        left = self.backlog[place]
        for member, parts in enumerate(self.members):
            part = parts[place]
            if left and part.may_ask and part.held >= part.prefetch:
                left -= 1
                part.may_ask = False
                part.to_gateway.append(lambda part=part, member=member: self.permits[member].want(part))

    def arrive(self, member: int, part: Partition) -> None:
        part.unacked += 1
        self.permits[member].delivered(part)
        assert sum(each.unacked for each in self.members[member]) <= self.limit, "a message waits behind another"

    def ack(self, member: int, part: Partition) -> None:
        part.unacked -= 1
        self.done += 1

        def settle() -> None:
            part.held -= 1

        part.to_shard.append(settle)
        self.permits[member].settled()

    def step(self, chance: random.Random, busy: tuple[int, ...] = ()) -> None:
        """Something happens: a pass of a shard, something arrives, a message is handled, or a while goes by."""
        member = chance.randrange(len(self.members))
        place = chance.randrange(len(self.backlog))
        part = self.members[member][place]
        match chance.randrange(8):
            case 0 | 1 | 2:
                self.shard(place)
            case 3 | 4 | 5:
                if part.to_gateway:
                    part.to_gateway.popleft()()
            case 6:
                if part.unacked and member not in busy:
                    self.ack(member, part)
            case _:
                self.permits[member].look() if chance.random() < 0.5 else self.permits[member].rotate()
                self.permits[member].rest()


@pytest.mark.parametrize(("members", "partitions", "limit"), [(1, 4, 1), (3, 4, 1), (2, 5, 3), (2, 3, 10)])
def test_a_member_never_holds_more_than_its_prefetch_and_every_message_is_handled(
    members: int, partitions: int, limit: int
) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        group = Group(members, partitions, limit)
        published = 0
        for _ in range(60):
            place, count = chance.randrange(partitions), chance.randrange(12)
            group.backlog[place] += count
            published += count
            for _ in range(chance.randrange(200)):
                group.step(chance)
        for _ in range(60_000):
            if group.done == published:
                break
            group.step(chance)
        assert group.done == published, (seed, group.backlog)


def test_a_member_that_is_busy_takes_nothing_that_another_could_handle() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        group = Group(2, 4, 1)
        group.backlog = [5] * 4
        for _ in range(20_000):
            if group.done == 19:
                break
            group.step(chance, busy=(0,))
        assert group.done == 19, (seed, group.backlog)


def test_a_limit_that_changes_is_split_evenly_again() -> None:
    chance = random.Random(1)
    group = Group(1, 4, 8)
    (permits,) = group.permits
    group.limit = 5
    permits.limit(5)
    assert [permits.count(part) for part in group.members[0]] == [2, 1, 1, 1]
    group.limit = 12
    permits.limit(12)
    for _ in range(200):
        group.step(chance)
    permits.limit(12)
    assert [permits.count(part) for part in group.members[0]] == [3, 3, 3, 3]


def test_permits_of_a_partition_that_is_gone_are_given_to_others() -> None:
    group = Group(1, 2, 1)
    (permits,) = group.permits
    first, second = group.members[0]
    assert [permits.count(part) for part in (first, second)] == [1, 0]
    first.unacked = 1
    permits.want(second)
    assert permits.is_wanted
    permits.remove(first)
    assert permits.count(first) is None
    assert permits.count(second) == 1
    assert not permits.is_wanted


def test_a_permit_that_was_used_until_now_stays_and_one_that_lay_idle_goes_where_messages_wait() -> None:
    group = Group(1, 2, 4)
    (permits,) = group.permits
    first, second = group.members[0]
    first.unacked = second.unacked = 2
    permits.want(first)
    permits.want(second)
    permits.rest()
    first.unacked = 0
    permits.settled()
    permits.look()
    assert [permits.count(part) for part in (first, second)] == [2, 2]
    permits.rest()
    permits.look()
    assert [permits.count(part) for part in (first, second)] == [1, 2]


def test_where_no_permit_lies_idle_it_is_looked_less_often() -> None:
    group = Group(1, 2, 2)
    (permits,) = group.permits
    for part in group.members[0]:
        part.unacked = 1
        permits.want(part)
    assert permits.idle_seconds == IDLE_SECONDS
    for _ in range(5):
        permits.rest()
        permits.look()
    assert permits.idle_seconds == BUSY_SECONDS
