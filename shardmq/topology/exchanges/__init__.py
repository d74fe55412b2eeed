"""Exchange types, one file each; pure functions of bindings, key and properties.

exchange_type.py    What every exchange type can do.
direct.py           Routing key equals binding key.
fanout.py           Everything bound.
topic.py            Wildcards, as a trie.
headers.py          Headers equal to the binding's arguments, all or any.
consistent_hash.py  One of the destinations, by a hash.
partition.py        One of a topic's partitions: by the routing key, in turns, or by a header.
"""

from typing import Final

from shardmq.topology.exchanges.consistent_hash import ConsistentHash
from shardmq.topology.exchanges.direct import Direct
from shardmq.topology.exchanges.exchange_type import BindingCounts, Destination, ExchangeType
from shardmq.topology.exchanges.fanout import Fanout
from shardmq.topology.exchanges.headers import Headers
from shardmq.topology.exchanges.partition import Partition
from shardmq.topology.exchanges.topic import Topic

TYPES: Final[dict[str, type[ExchangeType]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
    "x-consistent-hash": ConsistentHash,
    "x-partition": Partition,
}
"""By the name clients declare them with."""

__all__ = [
    "BindingCounts",
    "ConsistentHash",
    "Destination",
    "Direct",
    "ExchangeType",
    "Fanout",
    "Headers",
    "Partition",
    "TYPES",
    "Topic",
]
