"""What an operator may wish of hosts and groups: what makes no sense is refused, and the rest of a value stays."""

import pytest

from shardmq.errors import NotFound, PreconditionFailed
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host, Wish
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.wishes import draining, moving, transferring

HOSTS = {"a": Host("s", labels={"zone": "1"}), "b": Host("s"), "c": Host("s"), "d": Host("s", is_draining=True)}
HOSTS["e"] = Host("s", is_stopping=True)
CLUSTER = Cluster(Broker("b0b0", 1, 2), HOSTS, {"shard-0": Group("f00d", 3, "a", ("a",), ("a", "b"))})


def test_a_drain_changes_nothing_else_of_a_host_and_makes_none() -> None:
    assert draining(CLUSTER, "a")(HOSTS["a"]) == Host("s", labels={"zone": "1"}, is_draining=True)
    assert draining(CLUSTER, "d", False)(HOSTS["d"]) == Host("s")
    assert draining(CLUSTER, "a")(None) is None


def test_a_transfer_is_for_the_term_of_now_and_leaves_a_move_alone() -> None:
    before = Wish(source="b", target="c")
    assert transferring(CLUSTER, "shard-0", "a")(before) == Wish(3, "a", source="b", target="c", is_pinned=True)
    with pytest.raises(PreconditionFailed, match="cannot be led by 'b': in sync are a"):
        transferring(CLUSTER, "shard-0", "b")


def test_a_move_needs_a_replica_to_go_and_a_host_that_may_have_one() -> None:
    assert moving(CLUSTER, "shard-0", "b", "c")(None) == Wish(source="b", target="c")
    with pytest.raises(PreconditionFailed, match="its replicas are on a, b"):
        moving(CLUSTER, "shard-0", "c", "b")
    with pytest.raises(PreconditionFailed, match="'d', which drains"):
        moving(CLUSTER, "shard-0", "b", "d")
    with pytest.raises(PreconditionFailed, match="'e', which stops or has stopped; start it again"):
        moving(CLUSTER, "shard-0", "b", "e")


@pytest.mark.parametrize(("host", "why"), [("d", "host drain --undo d"), ("e", "host hand-over --undo e")])
def test_who_would_hand_over_again_at_once_gets_nothing_to_lead(host: str, why: str) -> None:
    group = Group("f00d", 3, "a", ("a", host), ("a", host))
    with pytest.raises(PreconditionFailed, match=f"shard-0 cannot be led by '{host}', which .*{why}"):
        transferring(Cluster(CLUSTER.broker, HOSTS, {"shard-0": group}), "shard-0", host)


def test_unknown_names_are_told_with_those_there_are() -> None:
    with pytest.raises(NotFound, match="there is no host 'z'; the hosts are a, b, c, d, e"):
        draining(CLUSTER, "z")
    with pytest.raises(NotFound, match="there is no shard-9; there are shard-0"):
        transferring(CLUSTER, "shard-9", "a")
