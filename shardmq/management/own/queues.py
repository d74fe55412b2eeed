"""The queues that may hold what somebody looks for."""

from shardmq.client.api.statistics import ListQuery
from shardmq.management.web.call import Call, Row


async def all_queues_of(call: Call, vhost: str) -> list[Row]:
    """The queues of a virtual host with their counters; partitions of topics are among them."""
    connection = await call.caller.administration()
    table = await connection.stats_list("queues", ListQuery(vhost))
    items: list[Row] = table["items"]
    return items


def is_stream(row: Row) -> bool:
    """Whether a queue is a stream or a partition, which keep what was consumed."""
    return bool(row["arguments"].get("x-queue-type") == "stream")


async def queues_of(call: Call, vhost: str) -> list[Row]:
    """The queues of a virtual host with their counters, but for streams."""
    return [row for row in await all_queues_of(call, vhost) if not is_stream(row)]
