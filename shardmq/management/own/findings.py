"""What is wrong with the broker, of what the caller may see."""

from typing import Final

from shardmq.client.api.url import parse
from shardmq.management.findings.evaluate import findings
from shardmq.management.findings.finding import SEVERITIES
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError


def _after(given: str | None) -> float | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 6):
        raise ApiError.bad_request(f"after is '{given[:20]}'; give seconds as a whole number")
    return float(given)


async def list_findings(call: Call) -> Answer:
    """What is wrong, since when, and what to do."""
    after = _after(call.query.get("after"))
    severity, vhost = call.query.get("severity"), call.query.get("vhost")
    if severity is not None and severity not in SEVERITIES:
        raise ApiError.bad_request(f"severity is '{severity[:20]}'; give one of {', '.join(SEVERITIES)}")
    if vhost is not None:
        await call.check_vhost(vhost)
    address = parse(call.facts.url)
    connection = await call.caller.administration()
    rows = await findings(connection, call.caller.looks, f"{address.host}:{address.port}", after, call.overview)
    return Answer(
        [row for row in rows if severity in (None, row["severity"]) and (vhost is None or row["vhost"] == vhost)]
    )


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/findings",
        list_findings,
        Right.MANAGEMENT,
        "What is wrong, since when, and what to do.",
        list[Row],
        parameters=("vhost", "severity", "after"),
        is_shared=True,
    ),
)
"""What this file answers."""
