"""Findings of connections, groups of consumers and transactions."""

from collections.abc import Iterator
from typing import Final

from shardmq.management.findings.finding import LATE, WARNING, Finding, command
from shardmq.management.findings.sight import Sight

CHANNELS_MANY: Final = 200
LAG_LARGE: Final = 10_000
OPEN_SECONDS: Final = 300.0


def blocked(sight: Sight) -> Iterator[Finding]:
    """An alarm holds a connection's publishes."""
    texts = "; ".join(sight.overview.get("alarms", ())) or "an alarm is in effect"
    for row in sight.blocked:
        yield Finding(
            "publisher-blocked",
            WARNING,
            row["vhost"],
            row["name"],
            f"publishes of connection '{row['name']}' of user '{row['user']}' are held",
            f"By this: {texts}",
            "Clear the alarm; the connection then goes on by itself.",
            command("status"),
            {"peer_host": row["peer_host"], "peer_port": row["peer_port"]},
            patience=5.0,
        )


def many_channels(sight: Sight) -> Iterator[Finding]:
    """A client opens channels and does not close them."""
    for row in sight.wide:
        if row["channels"] >= CHANNELS_MANY:
            yield Finding(
                "many-channels",
                WARNING,
                row["vhost"],
                row["name"],
                f"connection '{row['name']}' of user '{row['user']}' has {row['channels']} channels",
                f"{row['channels']} channels are open; {CHANNELS_MANY} are many for one connection.",
                "Have the client close its channels or share them.",
                command("channel", "list"),
                {"channels": row["channels"]},
            )


def groups(sight: Sight) -> Iterator[Finding]:
    """A group has messages before it, and nobody reads them, or not fast enough."""
    for row in sight.groups:
        lag = row["lag"]
        if not lag:
            continue
        is_left = not row["members"] and not row["consumers"]
        if not is_left and lag < LAG_LARGE:
            continue
        what = "has no members" if is_left else "is far behind"
        yield Finding(
            "group-without-members" if is_left else "group-lags",
            WARNING,
            row["vhost"],
            f"{row['topic']}/{row['group']}",
            f"group '{row['group']}' of '{row['topic']}' {what}",
            f"{lag} messages are before it; it has {row['members'] or row['consumers']} members.",
            "Start its consumers, or delete the group." if is_left else "Start more consumers, or make them faster.",
            command("group", "describe", row["topic"], row["group"]),
            {"lag": lag, "members": row["members"]},
            patience=LATE,
        )


def transactions(sight: Sight) -> Iterator[Finding]:
    """A transaction is not decided about, and what it staged takes room."""
    for row in sight.transactions:
        yield Finding(
            "transaction-open",
            WARNING,
            row["vhost"],
            row["name"],
            f"transaction '{row['name']}' of user '{row['user']}' is not decided about",
            f"Idle for {row['idle_ms'] / 1000:.0f} s, with {row['messages'] or 0} messages staged.",
            "Have its client commit or abort it; abort it where the client is gone.",
            command("transaction", "abort", row["name"]),
            {"idle_ms": row["idle_ms"], "messages": row["messages"], "bytes": row["bytes"]},
            OPEN_SECONDS,
            row["idle_ms"] / 1000,
        )
