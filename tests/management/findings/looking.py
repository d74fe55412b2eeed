"""What the tests of this folder do all the time."""

import shlex
import time
from collections.abc import Callable
from typing import Any

import shardmq
from shardmq.cmd.main import run
from tests.management.browser import Browser

Key = tuple[str, str]
"""A rule and a name."""


def told(admin: Browser) -> dict[Key, dict[str, Any]]:
    """All that a look finds, however new."""
    return {(row["rule"], row["name"]): row for row in admin.get("/shardmq/findings?after=0")}


def gathered(admin: Browser, *keys: Key) -> dict[Key, dict[str, Any]]:
    """These findings, each as soon as a look has it: some end soon. Their command lines are such of `shardmq`."""
    found: dict[Key, dict[str, Any]] = {}

    def is_whole() -> bool:
        found.update(told(admin))
        return set(keys) <= set(found)

    until(is_whole, lambda: (sorted(set(keys) - set(found)), found))
    for key in keys:
        assert run([*shlex.split(found[key]["command"])[1:], "--help"]) == 0, found[key]["command"]
    return found


def found(admin: Browser, rule: str, name: str) -> dict[str, Any]:
    """The finding, as soon as a look has it."""
    return gathered(admin, (rule, name))[rule, name]


def until(condition: Callable[[], bool], shown: Callable[[], object] | str) -> None:
    """Ask again and again until it is so."""
    deadline = time.monotonic() + 25
    while not condition():
        assert time.monotonic() < deadline, shown if isinstance(shown, str) else shown()
        time.sleep(0.2)


def publish(channel: shardmq.Channel, queue: str, count: int, **arguments: Any) -> None:
    """Declare a queue, with arguments without their "x-", and publish to it."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=named)
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"x"] * count)
