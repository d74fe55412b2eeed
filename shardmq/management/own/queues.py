"""The queues that may hold what somebody looks for."""

from shardmq.client.api.statistics import ListQuery
from shardmq.management.web.call import Call, Row


async def queues_of(call: Call, vhost: str) -> list[Row]:
    """The queues of a virtual host with their counters, but for streams, which keep what was consumed."""
    connection = await call.caller.administration()
    table = await connection.stats_list("queues", ListQuery(vhost))
    return [row for row in table["items"] if row["arguments"].get("x-queue-type") != "stream"]
