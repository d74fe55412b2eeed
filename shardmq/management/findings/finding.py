"""What a rule has found."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from shardmq.client.api.url import DEFAULT_VHOST

ERROR: Final = "error"
WARNING: Final = "warning"
SEVERITIES: Final = (ERROR, WARNING)

KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "ack-timeout-loop": (WARNING,),
    "alarm": (ERROR,),
    "consumers-gone": (WARNING,),
    "dead-letters-wait": (WARNING,),
    "disk-slow": (WARNING,),
    "etcd-away": (ERROR,),
    "expires-unread": (WARNING,),
    "falls-behind": (WARNING,),
    "format-held": (WARNING,),
    "group-damaged": (ERROR,),
    "group-lags": (WARNING,),
    "group-unled": (ERROR,),
    "group-without-members": (WARNING,),
    "head-waits": (WARNING,),
    "host-away": (ERROR,),
    "many-channels": (WARNING,),
    "near-limit": (ERROR, WARNING),
    "no-consumers": (WARNING,),
    "prefetch-full": (WARNING,),
    "publish-spike": (WARNING,),
    "publisher-blocked": (WARNING,),
    "queue-damaged": (ERROR,),
    "redelivery-loop": (WARNING,),
    "replica-behind": (WARNING,),
    "replica-incomplete": (WARNING,),
    "replicas-alone": (ERROR,),
    "replicas-too-few": (ERROR,),
    "reservation-holds": (WARNING,),
    "shard-away": (ERROR,),
    "single-active-consumer-idle": (WARNING,),
    "transaction-open": (WARNING,),
    "unacked-waits": (WARNING,),
    "unroutable": (WARNING,),
    "weak-password": (WARNING,),
}
"""All rules, with the severities of what they find."""

SOON: Final = 30.0
LATE: Final = 300.0
"""Seconds that something has to last before it is told of, where a rule says nothing else."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and where.

    Attributes:
        rule: which rule has found it.
        severity: ERROR or WARNING.
        vhost: where; "" for the broker.
        name: of the queue, connection, group or process.
        title: a sentence of what is wrong.
        evidence: the numbers that say so, in a sentence.
        advice: what to do.
        command: the command line that does it or shows more.
        numbers: the evidence, for programs.
        patience: seconds it has to last before it is told of.
        lasted: seconds that the broker itself knows it to have lasted; None where it does not know.
    """

    rule: str
    severity: str
    vhost: str
    name: str
    title: str
    evidence: str
    advice: str
    command: str
    numbers: dict[str, Any] = field(default_factory=dict)
    patience: float = SOON
    lasted: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same finding in the next look."""
        return self.rule, self.vhost, self.name

    def is_told_at_once(self, after: float | None) -> bool:
        """Whether who looks only once is told of it.

        Args:
            after: seconds it has to have lasted; None for what its rule says.
        """
        patience = self.patience if after is None else after
        return patience <= SOON if self.lasted is None else self.lasted >= patience

    def row(self, since: float, address: str) -> dict[str, Any]:
        """What is told of it.

        Args:
            since: when it began, in seconds since 1970.
            address: of the broker, as host:port, for command lines that name a virtual host.
        """
        where = ""
        if self.vhost not in ("", DEFAULT_VHOST):
            where = " --url " + shlex.quote(f"shardmq://{address}/{quote(self.vhost, safe='')}")
        return {
            "rule": self.rule,
            "severity": self.severity,
            "vhost": self.vhost,
            "name": self.name,
            "title": self.title,
            "evidence": self.evidence,
            "numbers": self.numbers,
            "since": round(since * 1000),
            "advice": self.advice,
            "command": self.command + where,
        }


def command(*words: str) -> str:
    """A command line, quoted for a shell."""
    return shlex.join(("shardmq", *words))
