"""Findings of what flows through queues: they end when it does."""

from collections.abc import Iterator
from typing import Final

from shardmq.management.findings.finding import LATE, WARNING, Finding
from shardmq.management.findings.rules.queues import counted, finding_of
from shardmq.management.findings.sight import DELIVERIES, Sight, arguments_of

LOOP_COUNT: Final = 100
LOOP_TIMES: Final = 10
OVERDUE_COUNT: Final = 3
OVERDUE_TURNS: Final = 3
TURN_SECONDS: Final = 10.0
EXPIRED: Final = 100
BEHIND: Final = 1000
BEHIND_TIMES: Final = 1.05
SPIKE_TIMES: Final = 3
SPIKE_RATE: Final = 100


def redelivered(sight: Sight) -> Iterator[Finding]:
    """The same messages are delivered again and again, and hardly any is acknowledged."""
    for row in counted(sight):
        again, done = row["rates"]["redeliver"], row["rates"]["ack"]
        if not again or again < LOOP_TIMES * done or row["counts"]["redeliver"] < LOOP_COUNT:
            continue
        yield finding_of(
            row,
            "redelivery-loop",
            WARNING,
            "delivers the same messages again and again",
            evidence=f"{again:g} deliveries a second are repeated, {done:g} messages a second are acknowledged; "
            f"{row['counts']['redeliver']} were repeated in all.",
            advice="Look at the first message; give the queue a delivery limit and a dead-letter exchange.",
            numbers={"redeliver": row["counts"]["redeliver"], "redeliver_rate": again, "ack_rate": done},
        )


def overdue(sight: Sight) -> Iterator[Finding]:
    """Consumers do not settle in the time that the queue gives them, so messages come back to them."""
    for row in counted(sight):
        timeout_ms = arguments_of(row).get("x-consumer-timeout")
        counts, idle = row["counts"], row["idle_seconds"]
        if not timeout_ms or idle is None or not row["consumers"] or row["rates"]["ack"]:
            continue
        is_over = idle > TURN_SECONDS + OVERDUE_TURNS * timeout_ms / 1000
        if is_over or counts["redeliver"] < OVERDUE_COUNT or counts["redeliver"] <= counts["ack"]:
            continue
        yield finding_of(
            row,
            "ack-timeout-loop",
            WARNING,
            "gives the same messages to consumers that do not settle them in time",
            evidence=f"{counts['redeliver']} deliveries were repeated, {counts['ack']} messages were acknowledged; "
            f"consumers have {timeout_ms / 1000:g} s (x-consumer-timeout).",
            advice="Give consumers more time by a policy (consumer-timeout), a smaller prefetch, or a delivery limit.",
            numbers={"redeliver": counts["redeliver"], "ack": counts["ack"], "timeout_ms": timeout_ms},
        )


def expired(sight: Sight) -> Iterator[Finding]:
    """Messages end unread, and nothing keeps them."""
    for row in counted(sight):
        rate = row["rates"]["expire"]
        read = sum(row["rates"][name] for name in DELIVERIES)
        if "x-dead-letter-exchange" in arguments_of(row) or row["counts"]["expire"] < EXPIRED or rate <= read:
            continue
        yield finding_of(
            row,
            "expires-unread",
            WARNING,
            "loses messages that expire before anybody reads them",
            evidence=f"{rate:g} messages a second expire, {read:g} are delivered; {row['counts']['expire']} have "
            "expired in all; no dead-letter exchange.",
            advice="Start consumers, give messages longer, or give the queue a dead-letter exchange.",
            numbers={"expire": row["counts"]["expire"], "expire_rate": rate, "delivered_rate": read},
        )


def falls_behind(sight: Sight) -> Iterator[Finding]:
    """Consumers do less than what comes, and messages pile up."""
    for row in counted(sight):
        rates = row["rates"]
        comes, takes = rates["publish"], sum(rates[name] for name in DELIVERIES) - rates["redeliver"]
        if not row["consumers"] or row["ready"] < BEHIND or rates["ready"] < 0 or comes <= BEHIND_TIMES * takes:
            continue
        yield finding_of(
            row,
            "falls-behind",
            WARNING,
            "gets more messages than its consumers take",
            evidence=f"{comes:g} messages a second come, its consumers ({row['consumers']}) take {takes:g}; "
            f"{row['ready']} wait.",
            advice="Start more consumers, make them faster, or give them a larger prefetch.",
            numbers={
                "publish_rate": comes,
                "deliver_rate": takes,
                "ready": row["ready"],
                "consumers": row["consumers"],
            },
            patience=LATE,
            lasted=0.0,
        )


def spikes(sight: Sight) -> Iterator[Finding]:
    """Much more is published than usual, and it piles up."""
    for row in counted(sight):
        rate, usual = row["rates"]["publish"], sight.usual.get((row["vhost"], row["name"]))
        if usual is None or rate < SPIKE_RATE or rate < SPIKE_TIMES * usual or row["rates"]["ready"] <= 0:
            continue
        yield finding_of(
            row,
            "publish-spike",
            WARNING,
            "gets many more messages than usual",
            evidence=f"{rate:g} messages a second come, {usual:.1f} are usual; {row['ready']} wait.",
            advice="Look which publisher does it; limit the queue's length where it must not grow.",
            numbers={"publish_rate": rate, "usual_rate": round(usual, 1), "ready": row["ready"]},
            lasted=0.0,
        )
