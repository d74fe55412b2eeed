"""Types of what health checks answer: with 200 where all is well, with 503 where it is not."""

from typing import Any, Final, Literal, NotRequired, TypedDict


class Checked(TypedDict):
    """How a check ended: "ok", or "failed" and why."""

    status: Literal["ok", "failed"]
    reason: NotRequired[str]


class Alarm(TypedDict):
    """An alarm that blocks publishers."""

    node: str
    resource: Literal["memory", "disk"]
    text: str


class AlarmsChecked(Checked):
    """Whether there are alarms, and which."""

    alarms: NotRequired[list[Alarm]]


class PortChecked(Checked):
    """Whether somebody listens at a port: that port, or the one that is missing and those that there are."""

    port: NotRequired[int]
    missing: NotRequired[int]
    ports: NotRequired[list[int]]


class ProtocolsChecked(Checked):
    """Whether protocols are served: those, with commas between them, or those that are missing and those there are."""

    protocol: NotRequired[str]
    missing: NotRequired[list[str]]
    protocols: NotRequired[list[str]]


class ExpiringListener(TypedDict):
    """A listener whose certificate does not hold for so long."""

    node: str
    protocol: str
    port: int
    ip_address: str
    certfile_expires_on: list[str]
    cacertfile_expires_on: list[str]


class CertificatesChecked(Checked):
    """Whether certificates hold for so long, and which do not."""

    expired: NotRequired[list[ExpiringListener]]


PLACE: Final = "/health/checks"

PLAIN: Final = (
    *("virtual-hosts", "node-is-quorum-critical", "node-is-mirror-sync-critical"),
    *("is-in-service", "below-node-connection-limit", "ready-to-serve-clients"),
)
"""Checks that say nothing but how they ended, and why."""

CHECKS: Final[dict[str, Any]] = {
    f"{PLACE}/alarms": AlarmsChecked,
    f"{PLACE}/local-alarms": AlarmsChecked,
    f"{PLACE}/port-listener/{{port}}": PortChecked,
    f"{PLACE}/protocol-listener/{{protocols}}": ProtocolsChecked,
    f"{PLACE}/certificate-expiration/{{within}}/{{unit}}": CertificatesChecked,
    **dict.fromkeys([f"{PLACE}/{name}" for name in PLAIN], Checked),
    **dict.fromkeys(("/healthchecks/node", "/healthchecks/node/{node}", "/aliveness-test/{vhost}"), Checked),
    **dict.fromkeys(("/livez", "/readyz"), Checked),
}
"""What a check answers, by path."""
