"""What all exchange types have in common, and what direct and fanout do with keys."""

import pytest

from shardmq.routing import TYPES
from shardmq.routing.direct import Direct
from shardmq.routing.fanout import Fanout


def test_direct_routes_by_equal_keys() -> None:
    direct = Direct()
    direct.add("red", 1, {})
    direct.add("red", 2, {})
    direct.add("blue", 3, {})
    assert set(direct.match("red")) == {1, 2}
    assert set(direct.match("blue")) == {3}
    assert not direct.match("re*")
    assert not direct.match("")


def test_fanout_routes_to_all_whatever_the_key() -> None:
    fanout = Fanout()
    fanout.add("x", 1, {})
    fanout.add("y", 2, {})
    fanout.add("z", 2, {})
    assert set(fanout.match("anything")) == {1, 2}


@pytest.mark.parametrize("name", TYPES)
def test_a_queue_bound_twice_stays_until_both_bindings_go(name: str) -> None:
    exchange = TYPES[name]()
    exchange.add("k", 1, {})
    exchange.add("k", 1, {"x": 1})
    assert list(exchange.match("k")) == [1]
    exchange.remove("k", 1, {})
    assert list(exchange.match("k")) == [1]
    exchange.remove("k", 1, {"x": 1})
    assert not exchange.match("k")
    assert exchange.is_empty


@pytest.mark.parametrize("name", TYPES)
def test_removing_what_is_not_there_is_our_own_fault(name: str) -> None:
    with pytest.raises(KeyError):
        TYPES[name]().remove("k", 1, {})
