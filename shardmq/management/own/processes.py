"""The processes of the broker, with their share of the processor since the last look."""

import time
from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right


async def list_processes(call: Call) -> Answer:
    """The processes of the broker."""
    status = await (await call.caller.administration()).status()
    rows = status["processes"]
    call.facts.shares.take(rows, time.monotonic())
    return Answer(rows)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/processes",
        list_processes,
        Right.MONITORING,
        "The processes of the broker.",
        list[Row],
        is_shared=True,
    ),
)
"""What this file answers."""
