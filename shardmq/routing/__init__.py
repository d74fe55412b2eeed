"""Exchange types: where a message goes to. Pure functions of bindings, routing key and properties, no I/O.

exchange_type.py    what every exchange type can do, and the counting of bindings they share
direct.py           routing key equals binding key; the default exchange is one, with every queue bound by its name
fanout.py           everything bound, whatever the key
topic.py            binding keys with wildcards, as a trie
headers.py          the message's headers equal those of the binding's arguments, all or any of them
consistent_hash.py  exactly one of what is bound, by a hash of the key, a header or a property; binding keys are weights
"""

from typing import Final

from shardmq.routing.consistent_hash import ConsistentHash
from shardmq.routing.direct import Direct
from shardmq.routing.exchange_type import Bound, Destination, ExchangeType
from shardmq.routing.fanout import Fanout
from shardmq.routing.headers import Headers
from shardmq.routing.topic import Topic

TYPES: Final[dict[str, type[ExchangeType]]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": Headers,
    "x-consistent-hash": ConsistentHash,
}
"""By the name clients declare them with."""

__all__ = ["Bound", "ConsistentHash", "Destination", "Direct", "ExchangeType", "Fanout", "Headers", "TYPES", "Topic"]
