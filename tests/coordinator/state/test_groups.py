"""A group and its members: one holder a partition, rising epochs, nothing moves without need, whatever is lost."""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from shardmq.bus.messages.membership import Held
from shardmq.coordinator.state.groups import Epochs, Group, Notice


@dataclass
class Member:
    """What a member has, as a gateway would know it."""

    held: dict[int, int] = field(default_factory=dict)
    revoked: set[int] = field(default_factory=set)


class Rig:
    """A group and its members, between whom words may be lost."""

    def __init__(self, partitions: int) -> None:
        self.starts = count(1)
        self.partitions: tuple[int, ...] = tuple(range(partitions))
        self.members: dict[str, Member] = {}
        self.granted: dict[int, int] = {}  # the highest epoch that anybody was given, by partition
        self.start()

    def start(self) -> None:
        epochs = Epochs(next(self.starts) << 12)
        self.group = Group(self.partitions, epochs.take)
        self.is_linked = True

    def restart(self) -> None:
        """The coordinator starts again, and all members report."""
        self.start()
        self.report()

    def report(self) -> None:
        """The link is there again."""
        self.is_linked = True
        for name in self.group.members:
            if name not in self.members:
                self.group.leave(name)
        for name, member in self.members.items():
            self.group.join(name, self.held(name))
            member.revoked.clear()  # it is told again

    def held(self, name: str) -> list[Held]:
        return sorted(self.members[name].held.items())

    def join(self, name: str) -> None:
        self.members[name] = Member()
        if self.is_linked:
            self.group.join(name, [])

    def leave(self, name: str) -> None:
        del self.members[name]
        if self.is_linked:
            self.group.leave(name)

    def let_go(self) -> None:
        """Members release what was revoked."""
        for name, member in self.members.items():
            gone = [(partition, member.held.pop(partition)) for partition in member.revoked if partition in member.held]
            member.revoked.clear()
            if self.is_linked:
                self.group.released(name, gone)

    def settle(self) -> dict[str, Notice]:
        notices = self.group.settle()
        for name, notice in notices.items():
            for partition, epoch in notice.assigned:
                assert epoch >= self.granted.get(partition, 0)
                self.granted[partition] = epoch
            if self.is_linked:
                member = self.members[name]
                for partition, epoch in notice.assigned:
                    member.held[partition] = epoch
                member.revoked.update(notice.revoked)
        return notices

    def resize(self, partitions: int) -> None:
        self.partitions = tuple(range(partitions))
        if self.is_linked:
            self.group.resize(self.partitions)
        for member in self.members.values():  # their shards say so
            member.held = {p: e for p, e in member.held.items() if p < partitions}

    def do(self, kind: str, number: int) -> None:
        name = f"m{number}"
        match kind:
            case "join" if name not in self.members:
                self.join(name)
            case "leave" if name in self.members:
                self.leave(name)
            case "resize":
                self.resize(number)
            case "settle":
                self.settle()
            case "let go":
                self.let_go()
            case "restart":
                self.restart()
            case "lose":
                self.is_linked = False
            case "report" if not self.is_linked:
                self.group.resize(self.partitions)
                self.report()

    def come_to_rest(self) -> None:
        if not self.is_linked:
            self.report()
        for _ in range(6):
            self.settle()
            self.let_go()
        assert self.group.settle() == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 5)),
        st.tuples(st.just("resize"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["settle", "settle", "let go", "restart", "lose", "report"]), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
@example([("join", 0), ("lose", 0), ("settle", 0), ("report", 0), ("resize", 0)])
def test_at_rest_every_partition_has_one_holder_whatever_was_lost(steps: list[tuple[str, int]]) -> None:
    rig = Rig(6)
    for kind, number in steps:
        rig.do(kind, number)
        holders = [held for member in rig.members.values() for held in member.held.items()]
        assert len(set(holders)) == len(holders), "two have a partition under the same epoch"
    rig.group.resize(rig.partitions)
    rig.come_to_rest()
    held = [partition for member in rig.members.values() for partition in member.held]
    assert sorted(held) == (list(rig.partitions) if rig.members else [])
    if rig.members:
        shares = [len(member.held) for member in rig.members.values()]
        assert max(shares) - min(shares) <= 1
    for member in rig.members.values():
        assert all(rig.granted.get(partition, 0) <= epoch for partition, epoch in member.held.items())


def rig_of(members: int, partitions: int) -> Rig:
    rig = Rig(partitions)
    for number in range(members):
        rig.join(f"m{number}")
    rig.come_to_rest()
    return rig


def test_a_partition_goes_to_another_only_when_its_member_has_released_it() -> None:
    rig = rig_of(1, 2)
    rig.join("late")
    notices = rig.settle()
    assert [notices["m0"].revoked, notices["m0"].assigned] == [[1], []]
    assert "late" not in notices
    rig.let_go()
    assert [partition for partition, _ in rig.settle()["late"].assigned] == [1]


def test_members_that_a_new_start_of_the_coordinator_hears_of_keep_what_they_have() -> None:
    rig = rig_of(3, 9)
    before = {name: rig.held(name) for name in rig.members}
    rig.restart()
    assert rig.settle() == {}
    assert {name: rig.held(name) for name in rig.members} == before


def test_what_a_member_that_left_had_is_granted_under_a_higher_epoch() -> None:
    rig = rig_of(2, 2)
    ((partition, epoch),) = rig.held("m1")
    rig.leave("m1")
    assert rig.settle()["m0"].assigned == [(partition, rig.granted[partition])]
    assert rig.granted[partition] > epoch


def test_of_two_who_say_they_have_a_partition_the_higher_epoch_has_it() -> None:
    group = Group((7,), Epochs(100).take)
    group.join("old", [(7, 5)])
    group.join("new", [(7, 6)])
    notices = group.settle()
    assert notices["old"].revoked == [7]
    group.released("old", [(7, 5)])
    assert group.settle() == {}


def test_one_who_joins_a_hundred_with_a_thousand_partitions_moves_nine_of_them() -> None:
    rig = rig_of(100, 1000)
    rig.join("late")
    told = rig.settle()
    assert sum(len(notice.revoked) for notice in told.values()) == 9
    assert all(not notice.assigned for notice in told.values())


def test_thousands_that_join_and_leave_leave_nothing_behind() -> None:
    rig = rig_of(1, 200)
    for number in range(1, 2000):
        rig.join(f"m{number}")
        rig.settle()
        rig.let_go()
    rig.come_to_rest()
    assert sorted({len(member.held) for member in rig.members.values()}) == [0, 1]
    for number in range(1, 2000):
        rig.leave(f"m{number}")
        rig.settle()
    rig.come_to_rest()
    assert len(rig.group) == 1
    assert len(rig.held("m0")) == 200
