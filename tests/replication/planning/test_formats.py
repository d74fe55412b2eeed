"""The format of stores rises when all hosts write the newer one, and never goes back."""

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host, StoreFormat
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.formats import holding_back, rise
from shardmq.replication.planning.plan import plan
from shardmq.replication.planning.steps import FormatStep

from .broker import Model


def cluster(format: int, **hosts: int) -> Cluster:
    """A broker whose stores have a format, and whose hosts write formats up to some."""
    return Cluster(Broker("b", 1, 2), {name: Host("s", format=most) for name, most in hosts.items()}, format=format)


def risen_to(broker: Cluster) -> int:
    """What the format of stores is to be."""
    steps = rise(broker)
    assert not steps or steps[0].before == StoreFormat(broker.format)
    return steps[0].after.version if steps else broker.format


def test_it_rises_to_what_all_hosts_write() -> None:
    assert risen_to(cluster(15, a=15, b=15, c=15)) == 15
    assert risen_to(cluster(15, a=16, b=15, c=16)) == 15
    assert risen_to(cluster(15, a=16, b=18, c=16)) == 16
    assert risen_to(cluster(15, a=18, b=18, c=18)) == 18
    assert risen_to(cluster(15)) == 15


def test_a_new_broker_waits_for_the_hosts_that_it_was_made_for() -> None:
    first = Host("s", format=16)
    broker = Broker("b", 1, 2, hosts=("a", "b"))
    assert not rise(Cluster(broker, {"a": first}))
    assert not rise(Cluster(broker, {"a": first, "b": Host("s", format=15)}))
    assert rise(Cluster(broker, {"a": first, "b": first}))
    groups = {"shard-0": Group("i", 1, "a", ("a",), ("a",))}
    assert rise(Cluster(broker, {"a": first}, groups)), "the other one was removed since"


def test_it_never_goes_back() -> None:
    assert risen_to(cluster(16, a=15, b=16)) == 16


def test_who_holds_it_back_is_told() -> None:
    assert holding_back(cluster(15, a=15, b=15)) == []
    assert holding_back(cluster(15, c=15, a=16, b=15)) == ["b", "c"]
    assert holding_back(cluster(16, a=16, b=18, c=18)) == ["a"]
    assert holding_back(cluster(16, a=15, b=16)) == [], "an entry in etcd that a version of before has written"


def test_a_host_that_is_away_may_come_back_and_one_that_is_removed_does_not_count() -> None:
    model = Model(Broker("b", 2, 2))
    for name in "abc":
        model.come(name)
    model.settle()
    model.hosts["a"] = model.hosts["b"] = Host("s", format=16)
    model.away.add("c")
    assert not plan(model.cluster, lambda: "")
    del model.hosts["c"]
    assert [step for step in plan(model.cluster, lambda: "") if isinstance(step, FormatStep)]
