"""What RabbitMQ's HTTP API has and this one has not, and why: answered with 501."""

from collections.abc import Iterator
from typing import Any, Final

from shardmq.management.web.call import Call
from shardmq.management.web.endpoint import Answer, Endpoint, Handler, Right
from shardmq.management.web.errors import ApiError

ABSENT: Final = (
    ("PUT", "/cluster-name", "the broker is named after its host"),
    ("GET", "/feature-flags/{name}", "there are no feature flags"),
    ("GET", "/config/effective", "options are told by `shardmq --help` and the command lines of the processes"),
    ("POST", "/rebalance/queues", "a queue stays on its shard"),
    ("POST", "/vhosts/{vhost}/deletion/protection", "virtual hosts cannot be protected"),
    ("DELETE", "/vhosts/{vhost}/deletion/protection", "virtual hosts cannot be protected"),
    ("PUT", "/global-parameters/{name}", "there are no global parameters"),
    ("DELETE", "/global-parameters/{name}", "there are no global parameters"),
)
"""Method, path, and why it is not there."""

EMPTY: Final = (
    ("/auth/attempts/{node}/source", "who was refused, and from where, is in the log"),
    ("/feature-flags", "there are no feature flags"),
    ("/global-parameters", "there are no global parameters"),
    ("/federation-links", "there is no federation"),
    ("/deprecated-features", "nothing is deprecated"),
    ("/deprecated-features/used", "nothing is deprecated"),
)
"""Lists in which there is nothing, and why."""


def _absent(why: str) -> Handler:
    async def refuse(call: Call) -> Answer:
        del call
        raise ApiError(501, "not_implemented", f"shardmq does not have this: {why}")

    return refuse


async def _nothing(call: Call) -> Answer:
    del call
    return Answer([])


def _endpoints() -> Iterator[Endpoint]:
    for method, path, why in ABSENT:
        yield Endpoint(method, path, _absent(why), Right.MANAGEMENT, f"Not implemented: {why}.")
    for path, why in EMPTY:
        yield Endpoint("GET", path, _nothing, Right.MANAGEMENT, f"An empty list: {why}.", list[dict[str, Any]])


ENDPOINTS: Final = tuple(_endpoints())
"""What this file answers."""
