"""What goes wrong with the broker itself is found: alarms, clients that hang, shards that are away, damaged queues."""

import asyncio
import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import shardmq
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.management.findings.evaluate import findings
from shardmq.management.findings.finding import KNOWN
from shardmq.management.findings.looks import Looks
from shardmq.management.findings.past import Past
from shardmq.management.findings.rules import flow
from tests.house.tree import ROOT
from tests.management.browser import Browser

from .looking import gathered, publish, told, until

NEEDLE: Final = b"a bit of this one flips"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("provoked") / "data", shards=2, management=True) as broker:
        yield broker
        print(broker.last_words())


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with Browser(broker.management_url) as browser:
        yield browser


def rules(admin: Browser) -> dict[str, dict[str, Any]]:
    return {rule: row for (rule, _), row in told(admin).items()}


def counted(broker: Broker) -> dict[tuple[str, str], int]:
    """The metric, by rule and severity."""
    request = urllib.request.Request(broker.management_url.rstrip("/") + "/metrics")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = re.findall(r'shardmq_findings\{rule="(.+)",severity="(.+)"\} (\d+)', answer.read().decode())
    return {(rule, severity): int(count) for rule, severity, count in found}


def event(channel: shardmq.Channel, key: str) -> dict[str, Any]:
    """The headers of an event about the alarm of the coordinator's, as soon as it comes; others are let go."""
    with channel:
        for message in channel.consume("findings", inactivity_timeout=25):
            message.ack()
            headers = message.properties.headers or {}
            if (message.routing_key, headers["rule"], headers["name"]) == (key, "alarm", "gateway-0"):
                return {name: value for name, value in headers.items() if name != "timestamp_in_ms"}
    raise AssertionError(f"no {key} came")


def test_a_spike_is_found_where_many_more_messages_come_than_are_usual(
    broker: Broker, channel: shardmq.Channel
) -> None:
    """The rule itself, over a real broker's counters; only what is usual is known after a second, not ten minutes."""
    looks = Looks(Past(usual_seconds=1.0))

    async def look(connection: aio.Connection) -> list[dict[str, Any]]:
        await asyncio.sleep(0.3)
        rows = await findings(connection, looks, "", after=0, age=0.0)
        return [row for row in rows if (row["rule"], row["name"]) == ("publish-spike", "spiky")]

    async def told_of() -> dict[str, Any]:
        async with aio.connect(broker.url) as connection, asyncio.timeout(25):
            publish(channel, "spiky", 5)
            while not (await connection.stats_get("queues", "/", "spiky"))["rates"]["publish"]:
                assert not await look(connection), "a few messages are no spike"
            publish(channel, "spiky", 5000)
            while not (found := await look(connection)):
                pass
            return found[0]

    row = asyncio.run(told_of())
    assert row["numbers"]["publish_rate"] >= max(flow.SPIKE_RATE, flow.SPIKE_TIMES * row["numbers"]["usual_rate"])
    assert (row["severity"], row["numbers"]["ready"]) == ("warning", 5005)
    channel.queue_delete("spiky")


def test_an_alarm_and_who_it_holds_are_found_and_counted(broker: Broker, browser: Browser) -> None:
    assert {rule for rule, _ in counted(broker)} == set(KNOWN)
    with shardmq.connect(broker.url) as connection, shardmq.connect(broker.url) as other:
        channel = other.channel()
        channel.queue_declare("held")
        events = connection.channel()
        events.queue_declare("findings")
        events.queue_bind("findings", "amq.rabbitmq.event", "finding.*")
        events.queue_declare("alarms")
        events.queue_bind("alarms", "amq.rabbitmq.event", "alarm.*")
        connection.watermarks_put(memory_bytes=10 << 20)
        until(lambda: "alarm" in rules(browser), "all have more memory than that")
        publisher = threading.Thread(target=channel.basic_publish, args=("", "held", b"x"))
        publisher.start()
        until(lambda: "publisher-blocked" in rules(browser), "it waits")
        assert "memory" in rules(browser)["publisher-blocked"]["evidence"]
        assert counted(broker)["alarm", "error"] > 0
        opened = event(connection.channel(), "finding.opened")
        assert (opened["rule"], opened["severity"], opened["vhost"]) == ("alarm", "error", "")
        assert "memory" in opened["evidence"]
        connection.watermarks_put(memory_bytes=100 << 30)
        publisher.join(20)
        until(lambda: not {"alarm", "publisher-blocked"} & set(rules(browser)), "the alarm is over")
        ended = event(connection.channel(), "finding.closed")
        assert ended == {**opened, "since": ended["since"], "evidence": ended["evidence"]}
        assert {each.routing_key for each in channel.queue_peek("alarms", 0, 99)} == {"alarm.set", "alarm.cleared"}


def test_passwords_of_old_definitions_are_found_until_they_are_set_anew(broker: Broker, browser: Browser) -> None:
    salted = b"salt" + hashlib.md5(b"saltold-secret", usedforsecurity=False).digest()
    user = {"name": "old", "password_hash": base64.b64encode(salted).decode(), "tags": "administrator"}
    browser.post("/definitions", {"users": [{**user, "hashing_algorithm": "rabbit_password_hashing_md5"}]})
    with Browser(broker.management_url, "old", "old-secret") as old:
        assert old.get("/whoami")["name"] == "old"
    until(lambda: "weak-password" in rules(browser), "its hash is of MD5")
    assert rules(browser)["weak-password"]["command"] == "shardmq user password old"
    with shardmq.connect(broker.url) as connection:
        connection.user_put("old", "old-secret", tags=["administrator"])
    until(lambda: "weak-password" not in rules(browser), "it is scrypt now")


def test_lost_messages_slow_groups_and_open_transactions_are_found(channel: shardmq.Channel, browser: Browser) -> None:
    channel.topic_declare("logs", 1)
    channel.group_commit("logs", "slow", {0: 0})
    with channel.publisher() as publisher:
        publisher.publish_many("logs", "key", [b"x"] * 10_100)
    reader = channel.consume("logs", prefetch=1, arguments={"x-group": "slow"})
    next(reader)
    transaction = channel.transaction("open")
    channel.basic_publish("amq.direct", "nowhere", b"x")
    keys = (("unroutable", ""), ("group-lags", "logs/slow"), ("transaction-open", "open"))
    rows = gathered(browser, *keys)
    assert rows["unroutable", ""]["numbers"]["drop_unroutable_rate"] > 0
    assert rows["group-lags", "logs/slow"]["numbers"]["lag"] >= 10_000
    transaction.abort()
    del reader


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_slow_disk_is_found(channel: shardmq.Channel, browser: Browser) -> None:
    channel.queue_declare("flushed", durable=True)
    name = f"shard-{browser.get('/queues/%2F/flushed')['shard']}"
    pid = next(row["pid"] for row in browser.get("/shardmq/processes") if row["process"] == name)
    delay = ["-e", "trace=pwrite64", "-e", "inject=pwrite64:delay_exit=300000"]
    with subprocess.Popen(["strace", "-f", "-qq", "-o", os.devnull, *delay, "-p", str(pid)]) as strace:

        def is_found() -> bool:
            channel.basic_publish("", "flushed", b"x")
            return "disk-slow" in rules(browser)

        try:
            until(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "strace did not attach")
            until(is_found, "each flush takes 0.3 s")
            assert rules(browser)["disk-slow"]["numbers"]["mean_seconds"] >= 0.2
        finally:
            strace.terminate()


def test_a_shard_that_is_away_is_found(broker: Broker, browser: Browser) -> None:
    supervisor = broker.pid
    os.kill(supervisor, signal.SIGSTOP)  # so that nobody starts it again meanwhile
    broker.kill("shard-1")
    try:
        gathered(browser, ("shard-away", "shard-1"))
    finally:
        os.kill(supervisor, signal.SIGCONT)
    until(lambda: "shard-away" not in rules(browser), "the shard is back")


def test_a_damaged_queue_is_found(broker: Broker, browser: Browser, channel: shardmq.Channel) -> None:
    publish(channel, "old", 10)
    assert channel.basic_get("old", auto_ack=True)
    old = browser.get("/queues/%2F/old")
    publish(channel, "hurt", 10)
    with channel.publisher() as publisher:
        publisher.publish_many("", "hurt", [NEEDLE] * 10)
    publish(channel, "hurt", 10)
    broker.stop()
    for file in Path(broker.data_dir).glob("shard-*/data.mdb"):
        file.write_bytes(file.read_bytes().replace(NEEDLE, NEEDLE[:-1] + b"t"))
    broker.start()
    with shardmq.connect(broker.url) as connection:
        messages = connection.channel().consume("hurt", prefetch=30)
        with pytest.raises(shardmq.errors.Unavailable):
            list(messages)
    with Browser(broker.management_url) as admin:
        assert admin.get("/queues/%2F/old")["head_message_timestamp"] == old["head_message_timestamp"]
        assert gathered(admin, ("queue-damaged", "hurt"))["queue-damaged", "hurt"]["severity"] == "error"


def test_the_document_names_all_rules() -> None:
    text = (ROOT / "docs" / "operations" / "management.md").read_text()
    section = text[text.index("## Findings") :]
    table = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", " ".join(table))) == set(KNOWN)
