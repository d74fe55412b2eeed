"""Exchange types: which queues a message goes to. Pure functions of bindings and routing key, no I/O.

exchange_type.py  what every exchange type can do, and the counting of bindings they share
direct.py         routing key equals binding key; the default exchange is one, with every queue bound by its name
fanout.py         every queue, whatever the key
topic.py          binding keys with wildcards, as a trie
"""

from typing import Final

from shardmq.routing.direct import Direct
from shardmq.routing.exchange_type import BoundQueues, ExchangeType
from shardmq.routing.fanout import Fanout
from shardmq.routing.topic import Topic

TYPES: Final[dict[str, type[ExchangeType]]] = {"direct": Direct, "fanout": Fanout, "topic": Topic}
"""By the name clients declare them with."""

__all__ = ["BoundQueues", "Direct", "ExchangeType", "Fanout", "TYPES", "Topic"]
