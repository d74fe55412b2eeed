"""Findings of queues where some messages wait for too long, while others move or could."""

import time
from collections.abc import Iterator
from typing import Final

from shardmq.management.findings.finding import LATE, WARNING, Finding, command
from shardmq.management.findings.rules.queues import counted, finding_of
from shardmq.management.findings.sight import Sight

UNACKED_SECONDS: Final = 1800.0
"""RabbitMQ closes the channel of a consumer that holds a message for so long (consumer_timeout)."""


HEAD_SECONDS: Final = 5.0
"""Shorter waits are those of batches on their way."""


def head_waits(sight: Sight) -> Iterator[Finding]:
    """The message at the head has waited long although consumers are there."""
    now_ms = time.time() * 1000
    for row in counted(sight):
        at = row["head_at"]
        if at is None or not row["consumers"]:
            continue
        age = (now_ms - at) / 1000
        if age < HEAD_SECONDS:
            continue
        yield finding_of(
            row,
            "head-waits",
            WARNING,
            "has consumers, and the message at its head still waits",
            evidence=f"It came {age:.0f} s ago. Ready: {row['ready']}, unacked: {row['unacked']}, "
            f"consumers: {row['consumers']}.",
            advice="Look what its consumers do with what they have; start more, or give them a larger prefetch.",
            command=command("consumer", "list"),
            numbers={
                "head_age_seconds": round(age, 1),
                "ready": row["ready"],
                "unacked": row["unacked"],
                "consumers": row["consumers"],
            },
            patience=LATE,
            lasted=age,
        )


def unacked_waits(sight: Sight) -> Iterator[Finding]:
    """A consumer has held the same message for long."""
    for row in counted(sight):
        seconds = sight.unacked.get((row["vhost"], row["name"]))
        if not seconds:
            continue
        yield finding_of(
            row,
            "unacked-waits",
            WARNING,
            "has a consumer that holds a message and does not settle it",
            evidence=f"Its first unacked message has been the same for {seconds:.0f} s or more. "
            f"Unacked: {row['unacked']}, consumers: {row['consumers']}.",
            advice="The queue's page shows the age of each consumer's oldest message; closing a connection gives its "
            "messages to others. A consumer timeout (policy consumer-timeout) does so by itself.",
            command=command("consumer", "list"),
            numbers={"same_seconds": round(seconds, 1), "unacked": row["unacked"], "consumers": row["consumers"]},
            patience=UNACKED_SECONDS,
            lasted=seconds,
        )
