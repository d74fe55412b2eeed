"""How the hosts of a broker on several are, and its groups of replicas: primaries, who is in sync, who is behind."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right


async def list_hosts(call: Call) -> Answer:
    """The hosts, and the groups of replicas; there are none in a broker on one host."""
    found = await call.overview()
    return Answer({"hosts": found.get("hosts", []), "groups": found.get("groups", [])})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/hosts",
        list_hosts,
        Right.MONITORING,
        "The hosts of a broker on several, and its groups of replicas.",
        Row,
        is_shared=True,
    ),
)
"""What this file answers."""
