"""What the page says while a shard is away, and of a queue that is damaged."""

import os
import signal
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .browser import Browser
from .window import Page

NEEDLE = b"a bit of this one flips"

CHATTER = """const kind = "[role=status], [role=alert], [aria-live]";
const words = ({ textContent }) => textContent.replace(/[0-9.,]+/g, "#");
const known = new Map([...document.querySelectorAll(kind)].map((region) => [region, words(region)]));
window.chatter = [...known.keys()].map((each) => each.textContent).filter((text) => / ago\\b/.test(text));
const regionOf = (node) => (node.closest ? node : node.parentElement)?.closest(kind);
const heard = (changes) => {
  for (const region of new Set(changes.map(({ target }) => regionOf(target)).filter(Boolean))) {
    if (known.get(region) === words(region)) window.chatter.push(region.textContent);
    known.set(region, words(region));
  }
};
new MutationObserver(heard).observe(document.body, { subtree: true, childList: true, characterData: true });"""
"""Gathers what a screen reader would say by itself of ages, and of figures that change while the words stay.

What is new is said, and rightly: on a slow machine a disk is found to be slow at any time.
"""

HURT = "queues/%2F/hurt"


def lose_a_shard(page: Page, broker: Broker, channel: shardmq.Channel) -> None:
    """A shard ends and nobody starts it: each view says so, since when and what to do, and that it is back."""
    channel.topic_declare("halved", 2)
    channel.queue_declare("hurt", durable=True)
    channel.basic_publish("", "hurt", NEEDLE)
    with Browser(broker.management_url) as admin:
        shard = f"shard-{admin.get('/queues/%2F/hurt')['shard']}"
    page.open("queues?name=hurt")
    page.sees("running")
    supervisor = broker.pid
    os.kill(supervisor, signal.SIGSTOP)  # so that nobody starts it again meanwhile
    try:
        os.kill(broker.pids[shard], signal.SIGTERM)
        page.sees_soon("down")
        page.open("topics/%2F/halved")
        page.sees("A partition does not answer: the numbers here are without it")
        page.open("overview")
        page.sees(f"{shard} does not answer: its queues are not in these numbers, and wait for it.")
        page.sees_soon(f"{shard} is away since ")
        _says_nothing_by_itself(page)
        page.open("queues?name=hurt")
        page.sees(f"{shard} is away since ")
        assert page.violations() == []
        page.open(HURT)
        page.sees("Its shard does not answer: nobody gets its messages")
        page.sees(f"{shard} is away since ")
        page.sees("Look into the log for why it ended or hangs")
        assert page.violations() == []
        _flip(broker.data_dir / shard / "data.mdb")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    page.until(lambda _: "does not answer" not in page.text("main"))
    page.sees("1 messages wait, and nobody consumes this queue.")
    page.open("topics/%2F/halved")
    page.sees("Partitions")
    assert "does not answer" not in page.text("main")


def _says_nothing_by_itself(page: Page) -> None:
    """Ages grow on the page without a screen reader being told of each."""
    page.driver.execute_script(CHATTER)
    shown = page.text("main")
    page.until(lambda _: page.text("main") != shown)
    chatter = page.driver.execute_script("return window.chatter")
    assert chatter == [], chatter


def _flip(file: Path) -> None:
    content = file.read_bytes()
    assert NEEDLE in content
    file.write_bytes(content.replace(NEEDLE, NEEDLE[:-1] + b"t"))


def lose_the_broker(page: Page, broker: Broker) -> None:
    """The only gateway ends and nobody starts it: the page says so, shows what it had, and goes on by itself."""
    page.open("queues?name=billing")
    page.sees("billing")
    supervisor = broker.pid
    os.kill(supervisor, signal.SIGSTOP)
    try:
        broker.kill("gateway-0")
        page.sees_soon("The broker does not answer.")
        assert "billing" in page.text("main")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    page.until(lambda _: "does not answer" not in page.text("main"))
    assert "billing" in page.text("main")


def read_what_is_damaged(page: Page, channel: shardmq.Channel) -> None:
    """What is damaged is found when somebody reads it: the page names it, since when, and says what to do."""
    page.open(HURT)
    page.sees("1 messages wait")
    with pytest.raises(shardmq.errors.Unavailable):
        channel.basic_get("hurt")
    page.sees_soon("It is out of service: something that is stored of it is damaged.")
    page.sees("queue 'hurt' is out of service: something it has stored is damaged since ")
    page.sees("stop the broker, run `shardmq store check`, then restore a copy or `shardmq store repair`")
    assert page.violations() == []
    page.open("queues?name=hurt")
    page.sees("crashed")
    page.sees("queue 'hurt' is out of service: something it has stored is damaged since ")
    page.open("overview")
    page.sees("queue 'hurt' is out of service: something it has stored is damaged since ")
