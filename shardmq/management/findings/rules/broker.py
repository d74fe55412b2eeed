"""Findings of the broker's processes."""

from collections.abc import Iterator
from typing import Final

from shardmq.management.findings.finding import ERROR, WARNING, Finding, command
from shardmq.management.findings.sight import Sight

FLUSH_SECONDS_MANY: Final = 0.2
"""A disk that takes so long for each flush is slow; a usual one takes some milliseconds."""

SHOWN_MAX: Final = 5
"""Names in a sentence."""


def alarms(sight: Sight) -> Iterator[Finding]:
    """A process has too little memory or disk, and publishers are held."""
    for row in sight.overview.get("processes", ()):
        for text in row.get("alarms", ()):
            yield Finding(
                "alarm",
                ERROR,
                "",
                row["process"],
                f"{row['process']} raised an alarm; publishers are blocked",
                text,
                "Consume or purge what has piled up, free the disk, or raise the watermark.",
                command("status"),
                patience=0.0,
            )


def groups_damaged(sight: Sight) -> Iterator[Finding]:
    """Where a group is in a partition cannot be read: it gets nothing from there."""
    for row in sight.overview.get("processes", ()):
        for damage in row.get("damaged", ()):
            if "group" in damage:
                yield Finding(
                    "group-damaged",
                    ERROR,
                    damage["vhost"],
                    damage["group"],
                    f"group '{damage['group']}' is out of service in stream '{damage['name']}'",
                    "Its cursor there is damaged: where the group was is not known any more.",
                    "See docs/operations/damage.md: stop the broker, look with `shardmq store check`, repair.",
                    command("status"),
                    patience=0.0,
                )


def shards_away(sight: Sight) -> Iterator[Finding]:
    """A shard does not answer: its queues can be neither written nor read."""
    for name in sight.overview["away"]:
        yield Finding(
            "shard-away",
            ERROR,
            "",
            name,
            f"{name} is away",
            "It does not answer the gateway that was asked; its queues wait for it.",
            "Look into the log for why it ended or hangs; `shardmq up` starts it again by itself.",
            command("status"),
            patience=5.0,
        )


def disks_slow(sight: Sight) -> Iterator[Finding]:
    """Flushes of a shard's redo log take long, and confirms wait for them."""
    for name, (count, seconds) in sight.flushes.items():
        mean = seconds / count if count else 0.0
        if mean >= FLUSH_SECONDS_MANY:
            yield Finding(
                "disk-slow",
                WARNING,
                "",
                name,
                f"the disk of {name} is slow; confirms wait for it",
                f"{count} flushes since the last look took {mean:.2f} s each.",
                "Look at what else writes to that disk (iostat -x), or move the data directory to a faster one.",
                command("status"),
                {"flushes": count, "mean_seconds": round(mean, 3)},
                lasted=0.0,
            )


def unroutable(sight: Sight) -> Iterator[Finding]:
    """Messages go to no queue and are dropped."""
    for vhost, row in sight.overview["vhosts"].items():
        rate = row.get("flow", {}).get("rates", {}).get("drop_unroutable", 0.0)
        if rate > 0:
            yield Finding(
                "unroutable",
                WARNING,
                vhost,
                "",
                f"messages in virtual host '{vhost}' go to no queue and are dropped",
                f"{rate:g} a second are dropped.",
                "Bind a queue for their routing keys, or give the exchange an alternate exchange.",
                command("binding", "list"),
                {"drop_unroutable_rate": rate},
            )


def weak_passwords(sight: Sight) -> Iterator[Finding]:
    """Users came with MD5 hashes out of old definitions: who reads these soon has the passwords."""
    users = sight.overview.get("weak_passwords", ())
    if users:
        shown = ", ".join(f"'{name}'" for name in users[:SHOWN_MAX])
        more = f" and {len(users) - SHOWN_MAX} more" if len(users) > SHOWN_MAX else ""
        yield Finding(
            "weak-password",
            WARNING,
            "",
            users[0],
            f"{len(users)} {'user has' if len(users) == 1 else 'users have'} a password that is kept as an MD5 hash",
            f"Users: {shown}{more}. Their hashes came with definitions of a RabbitMQ before 3.6.",
            "Set the passwords anew, to the same ones if they are good: they are kept as scrypt hashes then.",
            command("user", "password", users[0]),
            {"users": len(users)},
            patience=0.0,
            lasted=0.0,
        )
