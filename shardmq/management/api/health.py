"""Health checks: 200 where all is well, 503 with a reason where it is not."""

import time
from typing import Any, Final

from shardmq.client.api.url import parse
from shardmq.management.api.cluster import listeners
from shardmq.management.probes.certificates import holds_until
from shardmq.management.probes.readiness import why_not_ready
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

OK: Final = Answer({"status": "ok"})


def failed(reason: str, **more: Any) -> Answer:
    """The answer of a check that has failed."""
    return Answer({"status": "failed", "reason": reason, **more}, 503)


async def _processes(call: Call) -> list[Row]:
    found = await (await call.caller.administration()).stats_overview()
    processes: list[Row] = found.get("processes", [])
    return processes


async def alarms(call: Call) -> Answer:
    """Whether no alarm blocks publishers."""
    found = [
        {"node": call.facts.node, "resource": "disk" if "disk" in text else "memory", "text": text}
        for row in await _processes(call)
        for text in row.get("alarms", [])
    ]
    return failed("There are alarms in effect", alarms=found) if found else OK


async def port_listener(call: Call) -> Answer:
    """Whether somebody listens at a port."""
    given = call.part("port")
    if not (given.isascii() and given.isdigit() and len(given) <= 5):
        raise ApiError.bad_request(f"'{given}' is no port")
    ports = [row["port"] for row in listeners(call.facts, await _processes(call))]
    if int(given) in ports:
        return Answer({"status": "ok", "port": int(given)})
    return failed("No active listener", missing=int(given), ports=ports)


PROTOCOLS: Final = {
    **dict.fromkeys(("amqp", "amqp091", "amqp0.9.1"), "amqp"),
    **dict.fromkeys(("amqps", "amqp/ssl", "amqp+ssl", "amqp+tls"), "amqp/ssl"),
    "http": "http",
    "https": "https",
}


async def protocol_listener(call: Call) -> Answer:
    """Whether somebody listens for each of these protocols."""
    wanted = call.part("protocols").split(",")
    found = sorted({row["protocol"] for row in listeners(call.facts, await _processes(call))})
    missing = [name for name in wanted if PROTOCOLS.get(name.lower()) not in found]
    if missing:
        return failed("No active listener", missing=missing, protocols=found)
    return Answer({"status": "ok", "protocol": ",".join(wanted)})


async def always_well(call: Call) -> Answer:
    """What cannot fail while the broker answers."""
    await _processes(call)
    return OK


async def reached(call: Call) -> Answer:
    """Whether a gateway takes clients in, and reaches the coordinator and all shards; nobody logs in."""
    reason = await why_not_ready(call.facts.url)
    return failed(reason) if reason else OK


UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
"""RabbitMQ's, in days."""

DAY: Final = 86_400.0


async def certificates(call: Call) -> Answer:
    """Whether the certificates of all listeners hold for so long, as they are shown to clients."""
    within, unit = call.part("within"), call.part("unit")
    days = UNITS.get(unit if unit.endswith("s") else f"{unit}s")
    if not (within.isascii() and within.isdigit() and len(within) <= 6) or days is None:
        raise ApiError.bad_request(f"'{within}/{unit}' is no time; give a number and one of {', '.join(UNITS)}")
    end = time.time() + int(within) * days * DAY
    broker, own = parse(call.facts.url).host, call.facts.host
    expired, silent = [], []
    for row in listeners(call.facts, await _processes(call)):
        if row["protocol"] not in SECURE:
            continue
        host = broker if row["protocol"] == "amqp/ssl" else LOOPBACK.get(own, own)
        try:
            until = await holds_until(host, row["port"])
        except OSError as fault:
            silent.append(f"{host} port {row['port']}: {fault}")
            continue
        if until < end:
            day = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(until)) if until else "expired"
            expired.append({**row, "certfile_expires_on": [day], "cacertfile_expires_on": []})
    if expired:
        return failed("Certificates expiring", expired=expired)
    return failed(f"certificates that could not be looked at: {'; '.join(silent)}") if silent else OK


SECURE: Final = frozenset({"amqp/ssl", "https"})
"""Protocols with certificates."""

LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def _check(path: str, handler: Any, summary: str, right: Right = Right.MONITORING) -> Endpoint:
    return Endpoint("GET", path, handler, right, summary, Row)


CHECKS: Final = "/health/checks"

ENDPOINTS: Final = (
    _check(CHECKS + "/alarms", alarms, "Whether no alarm blocks publishers."),
    _check(CHECKS + "/local-alarms", alarms, "Whether no alarm blocks publishers."),
    _check(CHECKS + "/port-listener/{port}", port_listener, "Whether somebody listens at a port."),
    _check(CHECKS + "/protocol-listener/{protocols}", protocol_listener, "Whether protocols are served."),
    _check(CHECKS + "/certificate-expiration/{within}/{unit}", certificates, "Whether certificates hold for so long."),
    _check(CHECKS + "/virtual-hosts", always_well, "Whether virtual hosts run."),
    _check(CHECKS + "/node-is-quorum-critical", always_well, "Whether the broker may stop: there is no quorum."),
    _check(CHECKS + "/node-is-mirror-sync-critical", always_well, "Whether it may stop: there are no mirrors."),
    _check(CHECKS + "/is-in-service", reached, "Whether clients can connect.", Right.NOTHING),
    _check(CHECKS + "/below-node-connection-limit", reached, "Whether clients can connect.", Right.NOTHING),
    _check(CHECKS + "/ready-to-serve-clients", reached, "Whether clients can connect.", Right.NOTHING),
    _check("/healthchecks/node", always_well, "Whether the broker answers."),
    _check("/healthchecks/node/{node}", always_well, "Whether the broker answers."),
)
"""What this file answers."""
