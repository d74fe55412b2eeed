"""The endpoints below /api/shardmq, for what RabbitMQ's HTTP API has no words.

messages.py   Messages of a queue, looked at without a trace, chosen by key, header and body.
moving.py     Messages moved from one queue to another.
policies.py   What a policy would change.
processes.py  The processes of the broker.
routes.py     Where a message with a routing key would go.
topics.py     Topics and consumer groups.
"""

from typing import Final

from shardmq.management.own import messages, moving, policies, processes, routes, topics
from shardmq.management.web.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *messages.ENDPOINTS,
    *moving.ENDPOINTS,
    *policies.ENDPOINTS,
    *processes.ENDPOINTS,
    *routes.ENDPOINTS,
    *topics.ENDPOINTS,
)
"""All there are."""
