"""A disk that fills to the last byte, and what becomes of it: a file system in memory, of a size of our own."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import until

MB = 1 << 20
DISK_MB = 160
LIMIT_MB = 30
BODY_BYTES = 250_000
SMALL = b"x" * 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system that can be filled."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def broker(disk: Path, tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(disk / "data", shards=1, options=["--disk-free-limit", f"{LIMIT_MB}MB"])
    broker.log = tmp_path / "broker.log"  # not on that disk
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


def free_mb(disk: Path) -> int:
    stats = os.statvfs(disk)
    return stats.f_bavail * stats.f_frsize // MB


def exits(broker: Broker) -> int:
    """How many processes have ended so far."""
    return sum(notice.event == "exited" for notice in broker.notices)


def publish_until_blocked(broker: Broker, first: int = 0) -> list[bytes]:
    """Fill the queue until nothing more is taken; returns the beginnings of what was confirmed."""
    confirmed = []
    with shardmq.connect(broker.url, timeout=2.0) as connection, connection.channel() as channel:
        for number in range(first, first + 100_000):
            body = b"%06d" % number + os.urandom(BODY_BYTES)
            try:
                channel.basic_publish("", "work", body)
            except (errors.PublishRefused, errors.Timeout):
                return confirmed
            confirmed.append(body[:6])
    raise AssertionError("the disk was never full")


def drain(broker: Broker, count: int) -> set[bytes]:
    """Consume and acknowledge so many messages; returns their beginnings."""
    with shardmq.connect(broker.url, timeout=30.0) as connection, connection.channel() as channel:
        seen = set()
        for message in channel.consume("work", prefetch=20, inactivity_timeout=20.0):
            seen.add(message.body[:6])
            message.ack()
            if len(seen) == count:
                break
        return seen


def alarms(connection: shardmq.Connection) -> list[str]:
    return [text for table in connection.status()["processes"] for text in table.get("alarms", ())]


def test_an_alarm_ends_when_the_messages_are_gone_and_the_disk_has_its_space_again(broker: Broker, disk: Path) -> None:
    empty = free_mb(disk)
    for life in range(2):
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("work", durable=True)
            confirmed = publish_until_blocked(broker)
            assert free_mb(disk) < LIMIT_MB + 20
            assert drain(broker, len(confirmed)) >= set(confirmed)
            until(lambda: not alarms(connection), "the alarm is off")
            assert purged_after_publishing(channel, b"again") == b"again"
            until(lambda: free_mb(disk) > empty - 60, "the space is given back")
        if not life:
            broker.restart()
    assert exits(broker) == 0


def purged_after_publishing(channel: shardmq.Channel, body: bytes) -> bytes:
    """What is got of a queue that had nothing else in it but what was published as nobody confirmed it."""
    channel.basic_publish("", "work", body)
    found = b""
    while (message := channel.basic_get("work", auto_ack=True)) is not None:
        found = message.body
    return found


def test_with_no_byte_left_consumers_go_on_and_nothing_confirmed_is_lost(broker: Broker, disk: Path) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for name in ("work", "spare"):
            channel.queue_declare(name, durable=True)
        confirmed = publish_until_blocked(broker)
        fill(disk)
        until(lambda: is_declaration_refused(channel), "the coordinator notices")
        channel.queue_declare("work", durable=True)
        channel.queue_delete("spare")
        for name in ("shard-0", "coordinator"):
            broker.kill_and_wait(name)
        assert drain(broker, len(confirmed) // 2) <= set(confirmed) | {b"%06d" % len(confirmed)}
        broker.restart()
        fill(disk)
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        left = channel.queue_declare("work", passive=True).messages
        assert left >= len(confirmed) - len(confirmed) // 2
        assert len(drain(broker, left)) == left
        (disk / "foreign").unlink()
        until(lambda: not alarms(connection), "the alarm is off")
        assert purged_after_publishing(channel, b"again") == b"again"
        assert exits(broker) == 2, "nothing has ended but what was killed"


def is_declaration_refused(channel: shardmq.Channel) -> bool:
    try:
        channel.queue_declare("new", durable=True)
    except errors.Unavailable as refusal:
        return "the disk of the coordinator is full" in refusal.text
    channel.queue_delete("new")
    return False


def test_a_limit_on_the_size_of_files_is_a_disk_of_that_size(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", shards=1, options=["--disk-free-limit", f"{LIMIT_MB // 2}MB"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80 * MB, hard))
    try:
        broker.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    try:
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("work", durable=True)
            for _ in range(2):
                confirmed = publish_until_blocked(broker)
                assert drain(broker, len(confirmed)) >= set(confirmed)
                until(lambda: not alarms(connection), "the alarm is off")
                assert purged_after_publishing(channel, b"again") == b"again"
        assert exits(broker) == 0
    finally:
        broker.close()
        print(broker.last_words())


def fill(disk: Path) -> None:
    """Another program takes all that is left of the disk, to the last byte."""
    with (disk / "foreign").open("ab", buffering=0) as foreign:
        for size in (MB, 4096):
            try:
                while foreign.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(disk).f_bavail == 0
