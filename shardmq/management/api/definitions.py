"""All that is durable, in the shape of RabbitMQ's definitions."""

from typing import Final
from urllib.parse import quote

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right


async def get_definitions(call: Call) -> Answer:
    """All that is durable; with `download` as a file of that name."""
    connection = await call.caller.administration()
    return downloaded(call, await connection.definitions_export())


def downloaded(call: Call, definitions: Row) -> Answer:
    """The answer with definitions, as a file where the caller names one."""
    name = call.query.get("download", "")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"} if name else {}
    return Answer(definitions, headers=headers)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/definitions",
        get_definitions,
        Right.ADMINISTRATOR,
        "All that is durable.",
        Row,
        parameters=("download",),
    ),
)
"""What this file answers."""
