"""What all exchange types have in common."""

import pytest

from shardmq.message.properties import Properties
from shardmq.topology.entities import PARTITION_EXCHANGE
from shardmq.topology.exchanges import TYPES


@pytest.mark.parametrize("name", [name for name in TYPES if name != PARTITION_EXCHANGE])  # topics bind once
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
    assert len(found) == (1 if name in ("x-consistent-hash", PARTITION_EXCHANGE) else 2)
