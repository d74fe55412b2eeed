"""The endpoints about the hosts of a broker on several.

standing.py    How hosts and groups of replicas are.
operations.py  What is done with them: hosts drained, shards transferred and moved.
"""

from typing import Final

from shardmq.management.own.hosts import operations, standing
from shardmq.management.web.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (*standing.ENDPOINTS, *operations.ENDPOINTS)
"""All there are."""
