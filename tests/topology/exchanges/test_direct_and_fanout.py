"""What all exchange types have in common, and what direct and fanout do with keys."""

import pytest

from shardmq.message.properties import Properties
from shardmq.topology.exchanges import TYPES
from shardmq.topology.exchanges.direct import Direct
from shardmq.topology.exchanges.fanout import Fanout


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
    exchange, message = TYPES[name](), Properties(headers={"x": 1})
    exchange.add("7", 1, {})
    exchange.add("7", 1, {"x": 1})
    assert list(exchange.match("7", message)) == [1]
    exchange.remove("7", 1, {})
    assert list(exchange.match("7", message)) == [1]
    exchange.remove("7", 1, {"x": 1})
    assert not exchange.match("7", message)
    assert exchange.is_empty


@pytest.mark.parametrize("name", TYPES)
def test_removing_what_is_not_there_is_our_own_fault(name: str) -> None:
    with pytest.raises(KeyError):
        TYPES[name]().remove("7", 1, {})


@pytest.mark.parametrize("name", TYPES)
def test_a_message_with_several_keys_goes_to_each_destination_once(name: str) -> None:
    exchange = TYPES[name]()
    exchange.add("7", 1, {})
    exchange.add("8", 2, {})
    found = list(exchange.match_any(["7", "8", "7"]))
    assert len(found) == len(set(found))
    assert len(found) == (1 if name == "x-consistent-hash" else 2)
