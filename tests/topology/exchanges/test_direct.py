"""Direct exchanges: a message goes where a binding key equals its routing key."""

from shardmq.topology.exchanges.direct import Direct


def test_direct_routes_by_equal_keys() -> None:
    direct = Direct()
    direct.add("red", 1, {})
    direct.add("red", 2, {})
    direct.add("blue", 3, {})
    assert set(direct.match("red")) == {1, 2}
    assert set(direct.match("blue")) == {3}
    assert not direct.match("re*")
    assert not direct.match("")
