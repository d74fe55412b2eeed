"""Assignment of partitions: balanced, sticky, with no more moves than balance takes; beside a plain reference."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from shardmq.coordinator.rules.assignment import Assignment

Owners = Mapping[int, str]


def fewest_moves(before: Owners, members: Sequence[str], partitions: Sequence[int]) -> int:
    """How many partitions with an owner that is still there must move: the fullest members keep the larger shares."""
    held = sorted(Counter(dict.fromkeys(members, 0)).items())
    counts = Counter(owner for partition, owner in before.items() if owner in members and partition in partitions)
    full = sorted((counts[member] for member, _ in held), reverse=True)
    share, rest = divmod(len(partitions), len(members))
    shares = [share + 1] * rest + [share] * (len(members) - rest)
    return sum(max(0, count - own) for count, own in zip(full, shares, strict=True))


def owners_of(assignment: Assignment) -> dict[int, str]:
    owners = {partition: assignment.owner(partition) for partition in assignment.partitions}
    return {partition: owner for partition, owner in owners.items() if owner is not None}


def group(members: int, partitions: int) -> Assignment:
    assignment = Assignment()
    for partition in range(partitions):
        assignment.add(partition)
    for member in range(members):
        assignment.join(f"m{member}")
    assignment.balance()
    return assignment


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 9)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("add"), st.integers(0, 30)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.just(("balance", 0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_balance_is_even_and_moves_as_few_as_the_reference(steps: list[tuple[str, int]]) -> None:
    assignment = Assignment()
    settled: dict[int, str] = {}
    for kind, number in [*steps, ("balance", 0)]:
        match kind:
            case "join":
                assignment.join(f"m{number}")
            case "leave" if f"m{number}" in assignment.members:
                assignment.leave(f"m{number}")
            case "add":
                assignment.add(number)
            case "remove":
                settled.pop(number, None)
                assignment.remove(number)
            case "balance":
                before = owners_of(assignment)
                moved = assignment.balance()
                now = owners_of(assignment)
                members, partitions = assignment.members, assignment.partitions
                if members:
                    counts = [len(assignment.of(member)) for member in members]
                    assert max(counts) - min(counts) <= 1
                    assert sorted(now) == sorted(partitions)
                    left = [partition for partition in before if now[partition] != before[partition]]
                    assert len(left) == fewest_moves(before, members, partitions)
                else:
                    assert now == {}
                changed = {p for p in partitions if settled.get(p) != now.get(p)}
                assert changed <= set(moved)
                settled = now


def test_members_who_hold_partitions_already_keep_them() -> None:
    assignment = Assignment()
    for partition in range(6):
        assignment.add(partition)
    assignment.join("m0", [0, 2, 4])
    assignment.join("m1", [1, 3, 5, 0])
    assignment.balance()
    assert owners_of(assignment) == {0: "m0", 2: "m0", 4: "m0", 1: "m1", 3: "m1", 5: "m1"}


def test_one_who_joins_a_hundred_takes_its_share_and_no_other_partition_moves() -> None:
    assignment = group(100, 1000)
    before = owners_of(assignment)
    assignment.join("late")
    assignment.balance()
    now = owners_of(assignment)
    moved = [partition for partition in now if now[partition] != before[partition]]
    assert len(moved) == 9
    assert {now[partition] for partition in moved} == {"late"}


def test_what_a_member_had_goes_to_those_who_stay_and_nothing_else_moves() -> None:
    assignment = group(4, 10)
    before = owners_of(assignment)
    gone = assignment.of("m2")
    assignment.leave("m2")
    assignment.balance()
    now = owners_of(assignment)
    assert [partition for partition in now if now[partition] != before[partition]] == sorted(gone)


def test_more_members_than_partitions_wait_with_none() -> None:
    assignment = group(5, 2)
    assert sorted(len(assignment.of(member)) for member in assignment.members) == [0, 0, 0, 1, 1]
