"""Replicas and leaders are spread over the hosts as they come and go, and never so that something is lost."""

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host, Load, Loads, Wish
from shardmq.replication.planning.cluster import IDLE_CORES, Cluster
from shardmq.replication.planning.leaders import by_load, is_worth_it
from shardmq.replication.planning.plan import plan
from shardmq.replication.planning.stops import reasons_to_stay

from .broker import Model


def spread(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)


def broker_on(hosts: str, *, shards: int = 8, replicas: int = 2, min_in_sync: int = 1, waits: str = "") -> Model:
    model = Model(Broker("b", shards, replicas, min_in_sync=min_in_sync, hosts=tuple(waits)))
    for name in hosts:
        model.come(name)
    model.settle()
    return model


def test_the_first_host_has_everything_alone() -> None:
    model = broker_on("a", shards=2)
    assert {name: group.replicas for name, group in model.groups.items()} == dict.fromkeys(model.names, ("a",))


def test_groups_are_made_when_all_hosts_have_come_that_are_waited_for() -> None:
    model = broker_on("ab", waits="abc")
    assert not model.groups
    model.groups["coordinator"] = Group("1", 0, "", ("a",), ("a", "b"))  # by who has heard of c already
    assert not model.plan()
    del model.groups["coordinator"]
    model.come("c")
    assert model.plan_all() == 9
    assert spread(model.loads()) == 0
    assert spread(model.leads()) == 0
    assert {len(group.in_sync) for group in model.groups.values()} == {1}, "the others have yet to join"
    model.settle()
    assert {len(group.in_sync) for group in model.groups.values()} == {2}


def test_groups_of_shards_that_are_added_are_made_at_once_and_spread() -> None:
    model = broker_on("abc", shards=2, waits="abc")
    model.set_host("c", is_draining=True)
    model.settle()
    del model.hosts["c"]  # removed; nobody waits for it any more
    before = dict(model.groups)
    model.broker = msgspec.structs.replace(model.broker, shards=5, shards_at_first=2)
    model.settle()
    assert [*model.groups] == [*before, "shard-2", "shard-3", "shard-4"]
    assert spread([model.cluster.loads()[name] for name in "ab"]) == 0
    assert spread([model.cluster.leads()[name] for name in "ab"]) == 0


def test_followers_of_a_host_are_on_all_others() -> None:
    model = broker_on("abcd", shards=23, waits="abcd")
    for host in "abcd":
        mates = {name for group in model.groups.values() if host in group.replicas for name in group.replicas}
        assert mates == {*"abcd"}, "its load goes to one host alone when it dies"


def test_hosts_that_come_later_get_their_share() -> None:
    model = broker_on("abc")
    assert spread(model.loads()) == 0
    model.come("d")
    model.settle()
    assert spread(model.loads()) <= 1
    assert spread(model.leads()) <= 1


def test_one_host_copies_a_few_replicas_at_a_time() -> None:
    model = broker_on("a")
    model.come("b")
    assert model.plan() == 4
    assert model.plan() == 0


def test_a_host_that_dies_keeps_its_place_until_it_drains() -> None:
    model = broker_on("abc")
    before = {name: {*group.replicas} for name, group in model.groups.items()}
    model.away.add("b")
    model.settle()
    assert {name: {*group.replicas} for name, group in model.groups.items()} == before
    model.set_host("b", is_draining=True)
    model.settle()
    assert all("b" not in group.replicas and len(group.in_sync) == 2 for group in model.groups.values())


def test_a_host_that_stops_hands_over_what_it_leads_and_keeps_its_replicas() -> None:
    model = broker_on("abc")
    before = {name: {*group.replicas} for name, group in model.groups.items()}
    model.set_host("a", is_stopping=True)
    model.settle()
    assert model.cluster.leads()["a"] == 0
    assert {name: {*group.replicas} for name, group in model.groups.items()} == before
    model.come("a")
    model.settle()
    assert spread(model.leads()) == 0


def test_a_host_may_stop_once_it_leads_nothing_and_all_its_groups_are_whole_without_it() -> None:
    model = broker_on("abc")
    assert any("is led by it" in reason for reason in reasons_to_stay(model.cluster, "a"))
    model.set_host("a", is_stopping=True)
    model.settle()
    assert reasons_to_stay(model.cluster, "a") == []

    model.away.add("a")
    model.replicate()
    model.set_host("b", is_stopping=True)
    model.settle()
    assert any("on a, which is stopping, too" in reason for reason in reasons_to_stay(model.cluster, "b"))
    model.come("a")
    assert any("is not in sync on a" in reason for reason in reasons_to_stay(model.cluster, "b"))
    model.settle()
    assert reasons_to_stay(model.cluster, "b") == []


def test_hosts_that_all_stop_wait_for_nobody() -> None:
    model = broker_on("abc")
    for name in "abc":
        model.set_host(name, is_stopping=True)
    assert [reasons_to_stay(model.cluster, name) for name in "abc"] == [[], [], []]


def test_a_host_that_has_the_only_replicas_may_stop_where_one_is_all_that_was_asked_for() -> None:
    assert reasons_to_stay(broker_on("ab", replicas=1).cluster, "a") == []
    alone = broker_on("a").cluster
    assert reasons_to_stay(alone, "a") == [], "there is no other host"


def test_a_drained_host_has_nothing_and_gets_nothing() -> None:
    model = broker_on("abc")
    model.set_host("c", is_draining=True)
    model.settle()
    assert model.cluster.loads()["c"] == 0
    assert spread(model.loads()) == 0


def test_the_last_replicas_that_publishes_need_do_not_leave() -> None:
    model = broker_on("ab", min_in_sync=2)
    model.set_host("b", is_draining=True)
    model.settle()
    assert all({*group.replicas} == {"a", "b"} for group in model.groups.values())
    assert model.cluster.leads()["b"] == 0


def test_a_move_ends_with_the_target_in_place_of_the_source_and_stays_so() -> None:
    model = broker_on("abc")
    name, group = next((name, group) for name, group in model.groups.items() if group.primary == "a")
    (target,) = {*"abc"} - {*group.replicas}
    model.wishes[name] = Wish(source="a", target=target)
    model.settle()
    assert {*model.groups[name].replicas} == {*group.replicas} - {"a"} | {target}
    assert spread(model.loads()) <= 1


def test_a_group_that_never_began_is_made_elsewhere_when_its_host_drains() -> None:
    model = broker_on("abc", waits="abcd")
    model.come("d")
    model.away.add("d")
    model.settle()
    assert any(group.in_sync == ("d",) and not group.term for group in model.groups.values())
    model.set_host("d", is_draining=True)
    model.settle()
    assert all(group.primary and "d" not in group.replicas for group in model.groups.values())


def test_what_an_operator_made_uneven_by_one_stays() -> None:
    model = broker_on("abc", shards=2, replicas=3)
    name = next(name for name, group in model.groups.items() if group.primary == "a")
    model.wishes[name] = Wish(model.groups[name].term, "b")
    assert model.replicate() == 1
    assert model.groups[name].primary == "b"


def test_what_an_operator_has_handed_over_stays_until_its_host_dies() -> None:
    model = broker_on("abc", shards=2, replicas=3)
    name = next(name for name, group in model.groups.items() if group.primary == "a")
    model.wishes[name] = Wish(model.groups[name].term, "b", is_pinned=True)
    model.settle()
    assert model.groups[name].primary == "b"
    assert model.leads() == [1, 1, 1], "another group goes the other way"
    model.away.add("b")
    model.settle()
    model.come("b")
    model.settle()
    assert model.leads() == [1, 1, 1]


happening = st.one_of(
    st.tuples(st.just("come"), st.sampled_from("abcde")),
    st.tuples(st.just("kill"), st.sampled_from("abcde")),
    st.tuples(st.just("drain"), st.sampled_from("abcde")),
    st.tuples(st.just("stop"), st.sampled_from("abcde")),
    st.tuples(st.just("plan"), st.integers(1, 5)),
    st.tuples(st.just("move"), st.permutations("abcde").map(tuple)),
)


def befall(model: Model, what: str, whom: object) -> None:
    if isinstance(whom, int):
        for _ in range(whom):
            model.plan()
            model.replicate()
    elif isinstance(whom, tuple):
        source, target, *_ = whom
        if source in model.hosts and target in model.hosts:
            model.wishes["shard-0"] = Wish(source=source, target=target)
    elif what == "come":
        model.come(str(whom))
    elif str(whom) in model.hosts:
        name = str(whom)
        if what == "kill":
            model.away.add(name)
        else:
            model.set_host(name, **{"drain": {"is_draining": True}, "stop": {"is_stopping": True}}[what])


@given(
    shards=st.integers(1, 12),
    replicas=st.integers(1, 3),
    happenings=st.lists(happening, max_size=25),
)
@settings(max_examples=60)
def test_whatever_happens_all_is_even_once_all_hosts_are_there(
    shards: int, replicas: int, happenings: list[tuple[str, object]]
) -> None:
    model = Model(Broker("b", shards, replicas))
    model.come("a")
    for what, whom in happenings:
        befall(model, what, whom)
    for name in model.hosts:
        model.come(name)
        model.set_host(name, is_draining=False)
    model.settle()
    wanted = min(replicas, len(model.hosts))
    assert {len(group.replicas) for group in model.groups.values()} == {wanted}
    assert {len(group.in_sync) for group in model.groups.values()} == {wanted}
    pins = sum(bool(wish.target) for wish in model.wishes.values())
    assert spread(model.loads()) <= 1 + pins
    assert spread(model.leads()) <= 2


def test_a_group_that_nobody_led_yet_is_not_made_anew_again_and_again_for_a_move() -> None:
    groups = {name: Group("i", 0, "", (host,), (host,)) for name, host in (("coordinator", "a"), ("shard-0", "b"))}
    wishes = {"shard-0": Wish(source="b", target="c")}
    cluster = Cluster(Broker("b", 1, 1), {name: Host("s") for name in "abc"}, groups, wishes)
    (step,) = plan(cluster, lambda: "new")
    assert step.after == groups["shard-0"].with_replica("c")


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_with_three_hosts_leaders_are_even_again_after_a_failover(victim: str) -> None:
    model = broker_on("abc")
    model.away.add(victim)
    model.settle()
    assert model.cluster.leads()[victim] == 0
    model.come(victim)
    model.settle()
    assert model.leads() == [3, 3, 3]


def test_an_unclean_election_is_no_handing_over() -> None:
    model = broker_on("abc")
    group = model.groups["shard-0"]
    other = next(name for name in group.in_sync if name != group.primary)
    model.wishes["shard-0"] = Wish(group.term, other, unclean="new")
    assert not model.cluster.is_open("shard-0")
    assert msgspec.structs.asdict(model.wishes["shard-0"])["unclean"] == "new"


def test_a_replica_on_a_host_that_was_not_heard_of_stays() -> None:
    model = broker_on("abc")
    del model.hosts["b"]
    assert model.plan() == 0


def test_a_group_goes_to_another_host_only_where_that_makes_two_loads_clearly_more_alike() -> None:
    for giver in range(1, 81):
        for taker in range(81):
            for weight in range(1, giver + 1):
                a, b, w = giver * IDLE_CORES, taker * IDLE_CORES, weight * IDLE_CORES
                moves = is_worth_it(giver, taker, weight)
                assert moves == (round(a - b - w - 0.025 - 0.1 * (a + b), 9) >= 0)
                if moves:
                    assert abs(a - b - 2 * w) < a - b, "the two are more alike"
                    assert not is_worth_it(taker + weight, giver - weight, weight), "it does not come back"
                    assert not is_worth_it(taker + weight + 1, giver - weight, weight + 1), "nor if it does a bit more"


def test_two_groups_with_much_to_do_on_one_host_are_spread_and_an_idle_one_is_no_reason_to_move_them_back() -> None:
    model = broker_on("ab", shards=3, waits="ab")
    first, second = [name for name, group in model.groups.items() if group.primary == "a"]
    model.cores = {first: 0.9, second: 0.8}
    model.settle()
    assert {model.groups[first].primary, model.groups[second].primary} == {"a", "b"}
    model.cores = {first: 0.9, second: 0.82}
    assert model.plan() == 0


def test_a_group_with_all_the_load_stays_and_the_idle_ones_go_elsewhere() -> None:
    model = broker_on("ab", shards=5, waits="ab")
    hot = next(name for name, group in model.groups.items() if group.primary == "a")
    model.cores = {hot: 1.0}
    model.settle()
    assert model.groups[hot].primary == "a"
    assert model.cluster.leads()["a"] == 1


def test_a_group_that_has_just_come_with_its_load_stays_until_it_was_measured_and_a_pinned_one_for_good() -> None:
    model = broker_on("ab", shards=3, waits="ab")
    first, second = [name for name, group in model.groups.items() if group.primary == "a"]
    group = model.groups[second]
    old = {"b": Loads({first: Load(0, 0.9), second: Load(0, 0.8)})}
    assert by_load(dataclasses.replace(model.cluster, measured=old)) is None
    model.cores = {first: 0.9, second: 0.8}
    for name in (first, second):
        model.wishes[name] = Wish(group.term - 1, "a", is_pinned=True)
    model.settle()
    assert {model.groups[first].primary, model.groups[second].primary} == {"a"}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_the_loads_are_balancing_comes_to_an_end_with_no_host_that_could_better_give_one_away(
    data: st.DataObject,
) -> None:
    hosts = "abcd"[: data.draw(st.integers(2, 4))]
    model = broker_on(hosts, shards=data.draw(st.integers(1, 9)), replicas=data.draw(st.integers(2, len(hosts))))
    cores = st.sampled_from([0.0, 0.01, 0.06, 0.1, 0.3, 0.5, 0.9, 1.0])
    model.cores = {name: data.draw(cores) for name in model.names if data.draw(st.booleans())}
    model.settle()
    assert by_load(model.cluster) is None
    weights = model.cluster.weights()
    for group_name, group in model.groups.items():
        for heir in group.in_sync:
            assert not is_worth_it(weights[group.primary], weights[heir], model.cluster.weight(group_name))
