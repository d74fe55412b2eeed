"""The endpoints of RabbitMQ's HTTP API, one noun a file.

cluster.py      The broker as one node: overview, nodes, name, version.
clients.py      Connections, channels, consumers.
exchanges.py    Exchanges.
queues.py       Queues.
bindings.py     Bindings, and the key that names one.
vhosts.py       Virtual hosts.
messages.py     Publishing and getting messages.
limits.py       Limits of virtual hosts and users.
health.py       Health checks.
users.py        Users, who the caller is.
permissions.py  Permissions.
policies.py     Policies, operator policies, topic permissions.
shovels/        Parameters of components, which are shovels; their states.
definitions.py  All that is durable, in RabbitMQ's shape.
"""

from typing import Final

from shardmq.management.api import (
    bindings,
    clients,
    cluster,
    definitions,
    exchanges,
    health,
    limits,
    messages,
    permissions,
    policies,
    queues,
    users,
    vhosts,
)
from shardmq.management.api.shovels import parameters
from shardmq.management.web import absent
from shardmq.management.web.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *cluster.ENDPOINTS,
    *clients.ENDPOINTS,
    *exchanges.ENDPOINTS,
    *queues.ENDPOINTS,
    *bindings.ENDPOINTS,
    *vhosts.ENDPOINTS,
    *users.ENDPOINTS,
    *permissions.ENDPOINTS,
    *policies.ENDPOINTS,
    *parameters.ENDPOINTS,
    *definitions.ENDPOINTS,
    *messages.ENDPOINTS,
    *limits.ENDPOINTS,
    *health.ENDPOINTS,
    *absent.ENDPOINTS,
)
"""All there are."""
