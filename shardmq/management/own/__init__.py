"""The endpoints below /api/shardmq, for what RabbitMQ's HTTP API has no words.

dead_letters.py  Dead letters counted by queue, reason and source; which ones a request means.
findings.py   What is wrong, since when, and what to do.
hosts/        The hosts of a broker on several, and its replicas.
messages.py   Messages of queues and topics, searched without a trace.
moving.py     Messages moved from one queue to another.
policies.py   What a policy would change.
processes.py  The processes of the broker.
queues.py     The queues that may hold what somebody looks for; what was counted of some, for small charts.
redriving.py  Dead letters redriven to the queues that they died in.
republishing.py  A changed copy of a message, published.
routes.py     Where a message with a routing key would go.
topics.py     Topics and consumer groups.
traces.py     Where a message went: the queues and streams that hold it, its deaths, its route.
transactions.py  Transactions that nobody has decided about.
"""

from typing import Final

from shardmq.management.own import (
    dead_letters,
    findings,
    hosts,
    messages,
    moving,
    policies,
    processes,
    queues,
    redriving,
    republishing,
    routes,
    topics,
    traces,
    transactions,
)
from shardmq.management.web.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *dead_letters.ENDPOINTS,
    *findings.ENDPOINTS,
    *hosts.ENDPOINTS,
    *messages.ENDPOINTS,
    *moving.ENDPOINTS,
    *policies.ENDPOINTS,
    *processes.ENDPOINTS,
    *queues.ENDPOINTS,
    *redriving.ENDPOINTS,
    *republishing.ENDPOINTS,
    *routes.ENDPOINTS,
    *topics.ENDPOINTS,
    *traces.ENDPOINTS,
    *transactions.ENDPOINTS,
)
"""All there are."""
