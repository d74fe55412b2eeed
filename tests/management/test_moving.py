"""Messages are moved, redriven and replaced exactly once, whichever process is killed; over real processes."""

import http.client
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.management.moving import BATCH
from tests.e2e.traffic import until
from tests.management.browser import Browser, Refused

DYING: Final = """
import asyncio, os, signal, sys
from shardmq import aio
from shardmq.management.dead_letters.redriving import Redriving
from shardmq.management.moving import BATCH, Mover, copy_to
from shardmq.management.republishing import Change, replace

async def die(self, batch):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, how):
    Mover.acknowledge = Redriving._acknowledge = die
    async with aio.connect(url) as connection:
        channel = await connection.channel()
        if how == "move":
            await Mover(channel, "move-from", "guest").move_all(BATCH, lambda message: copy_to("", "move-to", message))
        elif how == "redrive":
            await Redriving(channel, "redrive-from", "guest", None, {"redrive-to"}).carry_out([(0, 5)])
        else:
            await replace(channel, "replace-from", 0, Change(lambda old: old, "", "replace-to", b"0"), "guest")

asyncio.run(main(*sys.argv[1:]))
"""
"""Is killed when copies are committed, and the originals are not acknowledged yet."""

AGAIN: Final = {
    "move": ["queue", "move", "move-from", "move-to"],
    "redrive": ["dead-letters", "redrive", "redrive-from"],
    "replace": ["queue", "republish", "replace-from", "1", "-e", "", "--routing-key", "replace-to", "--remove"],
}

COUNTS: Final = {"move": (BATCH + 10, BATCH, BATCH + 10), "redrive": (10, 5, 10), "replace": (10, 1, 2)}
"""Messages there are, those that are there when it is killed, and those that went when it is done again."""


def bodies(channel: shardmq.Channel, queue: str) -> list[int]:
    return [int(message.body) for message in channel.queue_peek(queue, count=65_536)]


def fill(channel: shardmq.Channel, source: str, target: str, count: int) -> None:
    for name in (source, target):
        channel.queue_declare(name, durable=True)
    died = [{"queue": target, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": [target]}]
    with channel.publisher() as publisher:
        properties = shardmq.Properties(headers={"x-death": died})
        publisher.publish_many("", source, [b"%d" % number for number in range(count)], properties)


@pytest.mark.parametrize("how", list(AGAIN))
def test_who_is_killed_behind_the_commit_has_moved_each_once(
    managed: Broker, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMQ_URL", managed.url)
    source, target = f"{how}-from", f"{how}-to"
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        count, first, last = COUNTS[how]
        fill(channel, source, target, count)
        dying = subprocess.run([sys.executable, "-c", DYING, managed.url, how], timeout=30, check=False)
        assert dying.returncode == -signal.SIGKILL
        assert (bodies(channel, source), bodies(channel, target)) == ([*range(first, count)], [*range(first)])
        assert run(AGAIN[how]) == 0
        assert (bodies(channel, source), bodies(channel, target)) == ([*range(last, count)], [*range(last)])
        assert channel.queue_reserve(source, "whoever").messages == count - last


@pytest.mark.parametrize("victim", ["management", "shard-0", "shard-1", "gateway-0"])
def test_a_move_that_a_kill_broke_off_is_sent_again_and_everything_arrives_once(managed: Broker, victim: str) -> None:
    source, target, count = f"from-{victim}", f"to-{victim}", 5000
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        fill(channel, source, target, count)

        def ask() -> Any:
            with Browser(managed.management_url) as browser:
                return browser.post(f"/shardmq/queues/%2F/{source}/move", {"to": target})

        def asked_again() -> Any:
            try:
                return ask()
            except (OSError, Refused, http.client.HTTPException) as fault:
                print(victim, repr(fault)[:300])
                return None

        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(ask)
            until(lambda: channel.queue_declare(target, passive=True).messages or first.done(), "the first ones arrive")
            managed.kill_and_wait(victim)
            first.exception(60)
        until(asked_again, "the move is done", 60)
        assert sorted(bodies(channel, target) + bodies(channel, source)) == list(range(count))
        until(lambda: asked_again() and not bodies(channel, source), "all went")
        assert sorted(bodies(channel, target)) == list(range(count))
