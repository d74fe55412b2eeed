"""Findings of queues: why messages stay there."""

from collections.abc import Iterator
from typing import Any, Final

from shardmq.management.findings.finding import ERROR, LATE, WARNING, Finding, command
from shardmq.management.findings.sight import DELIVERIES, Row, Sight, arguments_of

FULL_SHARE: Final = 0.95
NEVER_READ_SECONDS: Final = 1800.0
DEAD_LETTERS: Final = 100
RESERVED_SECONDS: Final = 600.0
HELD_SECONDS: Final = 3.0
"""Consumers that settle in batches stand still for shorter."""


def finding_of(row: Row, rule: str, severity: str, title: str, **more: Any) -> Finding:
    """A finding of a queue; `more` is what else `Finding` has."""
    name = row["name"]
    more.setdefault("command", command("queue", "peek", name))
    return Finding(rule, severity, row["vhost"], name, f"queue '{name}' {title}", **more)


def counted(sight: Sight) -> list[Row]:
    """Queues whose shards are there."""
    return [row for row in sight.queues if row.get("counts")]


def unread(sight: Sight) -> Iterator[Finding]:
    """Messages are ready, and nobody consumes or reserves any; dead letters and what waits for its end are no such."""
    for row in counted(sight):
        arguments = arguments_of(row)
        waits = "x-message-ttl" in arguments and "x-dead-letter-exchange" in arguments
        is_read = row["consumers"] or row["reserved"]
        if not row["ready"] or is_read or waits or (row["vhost"], row["name"]) in sight.dead:
            continue
        was_read = any(row["counts"][name] for name in DELIVERIES)
        yield finding_of(
            row,
            "consumers-gone" if was_read else "no-consumers",
            WARNING,
            "lost its consumers" if was_read else "has messages and no consumers",
            evidence=f"{row['ready']} messages are ready and nobody consumes.",
            advice="Start its consumers; purge or delete the queue where nobody needs it.",
            numbers={"ready": row["ready"], "consumers": 0},
            patience=LATE if was_read else NEVER_READ_SECONDS,
            lasted=row["idle_seconds"] or 0.0,
        )


def held(sight: Sight) -> Iterator[Finding]:
    """All consumers that get messages hold as many as they may, and settle none."""
    for key, row in sight.details.items():
        active = [each for each in row.get("consumer_list", ()) if each["active"] and not each["auto_ack"]]
        if not active or any(not each["prefetch"] or each["unacked"] < each["prefetch"] for each in active):
            continue
        idle = row["idle_seconds"] or 0.0
        if idle < HELD_SECONDS:
            continue
        is_single = bool(arguments_of(row).get("x-single-active-consumer"))
        names = sorted(set(sight.consumers.get(key, ())))
        yield finding_of(
            row,
            "single-active-consumer-idle" if is_single else "prefetch-full",
            WARNING,
            "waits for its single active consumer" if is_single else "waits: all its consumers are at their prefetch",
            evidence=f"{row['unacked']} messages are unacked, {row['ready']} more are ready, and nothing has moved for "
            f"{idle:.0f} s or more; its consumers are on {', '.join(names) or 'connections that you may not see'}.",
            advice="Look why the consumer acknowledges nothing; closing its connection gives its messages to others.",
            command=command("connection", "close", names[0]) if len(names) == 1 else command("consumer", "list"),
            numbers={"ready": row["ready"], "unacked": row["unacked"], "idle_seconds": idle, "connections": names},
            patience=LATE,
            lasted=idle,
        )


def dead_letters(sight: Sight) -> Iterator[Finding]:
    """Many dead letters wait for somebody to look at them."""
    for row in counted(sight):
        if (row["vhost"], row["name"]) in sight.dead and row["ready"] >= DEAD_LETTERS and not row["consumers"]:
            yield finding_of(
                row,
                "dead-letters-wait",
                WARNING,
                "holds dead letters that nobody looks at",
                evidence=f"{row['ready']} dead letters wait.",
                advice="See why they died in x-death, mend that, and move them back where they came from.",
                numbers={"ready": row["ready"]},
                lasted=row["idle_seconds"] or 0.0,
            )


def full(sight: Sight) -> Iterator[Finding]:
    """A queue is at its limit, or nearly."""
    for row in counted(sight):
        arguments = arguments_of(row)
        for argument, column in (("x-max-length", "ready"), ("x-max-length-bytes", "bytes")):
            most = arguments.get(argument)
            if not isinstance(most, int) or most < 1 or row[column] < FULL_SHARE * most:
                continue
            refuses = str(arguments.get("x-overflow", "")).startswith("reject-publish")
            yield finding_of(
                row,
                "near-limit",
                ERROR if refuses else WARNING,
                "is full" if row[column] >= most else "is nearly full",
                evidence=f"{column} is {row[column]}, {argument} is {most}; beyond it "
                + ("publishes are refused." if refuses else "the oldest messages are dropped."),
                advice="Start more consumers, or raise the limit by a policy.",
                numbers={column: row[column], argument: most},
            )
            break


def reserved(sight: Sight) -> Iterator[Finding]:
    """A reservation holds messages, and nothing is done with them."""
    for row in counted(sight):
        idle = row["idle_seconds"] or 0.0
        if row["reserved"] and not any(row["rates"].values()):
            yield finding_of(
                row,
                "reservation-holds",
                WARNING,
                "has messages that a reservation holds",
                evidence=f"{row['reserved']} messages are reserved, and nothing has moved for {idle:.0f} s or more.",
                advice="Look whether the job that reserved them (Spark's, say) still runs; they come back when the "
                "reservation's time is over.",
                numbers={"reserved": row["reserved"], "idle_seconds": idle},
                patience=RESERVED_SECONDS,
                lasted=idle,
            )


def damaged(sight: Sight) -> Iterator[Finding]:
    """Something that a queue or stream has stored cannot be read; monitors are told of all by its shard."""
    damages = [damage for row in sight.overview.get("processes", ()) for damage in row.get("damaged", ())]
    out = {
        (damage["vhost"], damage["name"]): damage["text"]
        for damage in damages
        if "group" not in damage and damage["name"] is not None
    }
    for row in sight.queues:
        if row.get("state") == "out of service":
            out.setdefault((row["vhost"], row["name"]), row["out_of_service"])
    for (vhost, name), text in sorted(out.items()):
        yield finding_of(
            {"vhost": vhost, "name": name},
            "queue-damaged",
            ERROR,
            "is out of service: something it has stored is damaged",
            evidence=f"{text[:1].upper()}{text[1:]}.",
            advice="Nobody gets its messages, and publishes to it are refused, until then: docs/operations/damage.md.",
            command=command("status"),
            patience=0.0,
        )
