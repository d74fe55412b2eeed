"""What is done with hosts and replicas: a host drained, a shard transferred or moved. It goes on after the answer."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError


async def drain(call: Call) -> Answer:
    """Have everything that a host has move to others; with `undo`, let it have replicas again."""
    undo = (await call.body()).get("undo", False)
    if not isinstance(undo, bool):
        raise ApiError.bad_request(f"undo is {undo!r:.40}; give true or false")
    await (await call.caller.administration()).host_drain(call.part("host"), not undo)
    return NO_CONTENT


async def transfer(call: Call) -> Answer:
    """Have a shard led by another host."""
    host = _host(await call.body(), "host", "that is to lead")
    await (await call.caller.administration()).shard_transfer(call.part("shard"), host)
    return NO_CONTENT


async def move(call: Call) -> Answer:
    """Have a replica of a shard on another host."""
    body = await call.body()
    source, target = _host(body, "from", "that has a replica"), _host(body, "to", "that is to have it")
    await (await call.caller.administration()).shard_move(call.part("shard"), source, target)
    return NO_CONTENT


def _host(body: Row, name: str, which: str) -> str:
    host = body.get(name)
    if not isinstance(host, str) or not host:
        raise ApiError.bad_request(f'the body names no host {which}; give {{"{name}": its name}}')
    return host


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/shardmq/hosts/{host}/drain",
        drain,
        Right.ADMINISTRATOR,
        "Have everything that a host has move to others.",
        None,
        Row,
    ),
    Endpoint(
        "POST",
        "/shardmq/shards/{shard}/transfer",
        transfer,
        Right.ADMINISTRATOR,
        "Have a shard led by another host that is in sync.",
        None,
        Row,
    ),
    Endpoint(
        "POST",
        "/shardmq/shards/{shard}/move",
        move,
        Right.ADMINISTRATOR,
        "Have a replica of a shard on another host.",
        None,
        Row,
    ),
)
"""What this file answers."""
