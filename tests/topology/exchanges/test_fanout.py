"""Fanout exchanges: a message goes to everything bound."""

from shardmq.topology.exchanges.fanout import Fanout


def test_fanout_routes_to_all_whatever_the_key() -> None:
    fanout = Fanout()
    fanout.add("x", 1, {})
    fanout.add("y", 2, {})
    fanout.add("z", 2, {})
    assert set(fanout.match("anything")) == {1, 2}
