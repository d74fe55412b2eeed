"""What is deleted along with a queue or an exchange.

Bindings go with either of their ends. An exchange declared auto-delete goes with its last binding, and so on.
"""

from collections import deque
from collections.abc import Iterable

from shardmq.topology.binding_ids import BindingId, binding_id
from shardmq.topology.changes import BindingRemoved, Change, ExchangeRemoved, QueueRemoved
from shardmq.topology.entities import Binding, Exchange, Queue
from shardmq.topology.topology import Topology


def cascade(
    topology: Topology,
    *,
    bindings: Iterable[Binding] = (),
    queues: Iterable[Queue] = (),
    exchanges: Iterable[Exchange] = (),
) -> list[Change]:
    """The changes that delete these things and all that goes along, in the order in which a topology applies them.

    Args:
        topology: what they are in; it is not changed.
        bindings: to be deleted.
        queues: to be deleted.
        exchanges: to be deleted.
    """
    ahead = deque(bindings)
    queues = list(queues)
    gone: dict[BindingId, Binding] = {}
    gone_exchanges: dict[tuple[str, str], Exchange] = {}
    left: dict[tuple[str, str], int] = {}  # bindings that stay, by exchange declared auto-delete

    def remove(exchange: Exchange) -> None:
        name = exchange.vhost, exchange.name
        gone_exchanges[name] = exchange
        ahead.extend(topology.bindings_of_exchange(*name))
        ahead.extend(topology.bindings_to_exchange(*name))

    for queue in queues:
        ahead.extend(topology.bindings_of_queue(queue.vhost, queue.name))
    for exchange in exchanges:
        remove(exchange)
    while ahead:
        binding = ahead.popleft()
        identity = binding_id(binding)
        if identity in gone:
            continue
        gone[identity] = binding
        name = binding.vhost, binding.exchange
        source = topology.exchanges[name]
        if source.auto_delete and name not in gone_exchanges:
            left[name] = left.get(name, topology.binding_count(*name)) - 1
            if not left[name]:
                remove(source)
    return [
        *map(BindingRemoved, gone.values()),
        *(QueueRemoved(queue.vhost, queue.name) for queue in queues),
        *(ExchangeRemoved(vhost, name) for vhost, name in gone_exchanges),
    ]
