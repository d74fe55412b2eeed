"""Findings of hosts and replicas. Gateways find them, as they know what etcd says; here is what to do about each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shardmq.management.findings.finding import KNOWN, LATE, SOON, Finding, command
from shardmq.management.findings.sight import Sight

AT_ONCE: Final = 5.0
"""Seconds: an election takes 2 to 3."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about a finding.

    Attributes:
        advice: a sentence or two.
        command: words of the command line that shows more.
        patience: seconds it has to last before it is told of.
    """

    advice: str
    command: tuple[str, ...]
    patience: float = AT_ONCE


REMEDIES: Final[dict[str, Remedy]] = {
    "host-away": Remedy(
        "Start it again. If it does not come back, add another host, and drain this one: `shardmq host drain`.",
        ("host", "list"),
    ),
    "group-unled": Remedy(
        "Look into the logs of the hosts that have its replicas: one of them has to run, and to reach etcd.",
        ("shard", "list"),
    ),
    "replicas-too-few": Remedy(
        "Bring back the hosts that are away, or drain them so that their replicas are made anew on others.",
        ("shard", "list"),
    ),
    "replicas-alone": Remedy(
        "Bring back the host that is away, or drain it so that its replicas are made anew on another one.",
        ("shard", "list"),
    ),
    "replica-incomplete": Remedy("Wait for it; the log of its host says where it does not come on.", ("status",), SOON),
    "replica-behind": Remedy(
        "Look at its host's disk (iostat -x) and at the network between the two hosts.", ("status",), SOON
    ),
    "format-held": Remedy(
        "Go on with the upgrade. A host that will not come back is drained and removed: `shardmq host remove`.",
        ("host", "list"),
        LATE,
    ),
    "etcd-away": Remedy(
        "Look whether a majority of etcd's members runs and is reached from there: `etcdctl endpoint health`.",
        ("shard", "list"),
    ),
}
"""By rule."""


def of_hosts(sight: Sight) -> Iterator[Finding]:
    """Hosts, groups of replicas and etcd, as gateways found them."""
    for row in sight.overview.get("findings", ()):
        rule = row["rule"]
        remedy = REMEDIES.get(rule)
        if remedy is not None:  # else the broker is newer than this process
            (severity,) = KNOWN[rule]
            yield Finding(
                rule,
                severity,
                "",
                row["name"],
                row["title"],
                row["evidence"],
                remedy.advice,
                command(*remedy.command),
                row["numbers"],
                patience=remedy.patience,
            )
