"""A bit of a store flips while nobody looks: the broker refuses to start, with a sentence, or a queue is out of service
and says so, or nothing has changed. Never is a message wrong, lost or back without a word.

Which structures of a store notice which bits is tested closer to them (tests/shards, tests/coordinator); here, whole
brokers start on stores with a bit flipped anywhere. `make test` runs a few, `make faults` many (SHARDMQ_FAULT_FLIPS).
"""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lmdb
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError

from . import mutants

FLIPS = int(os.environ.get("SHARDMQ_FAULT_FLIPS", "6"))
IS_LONG = "SHARDMQ_FAULT_FLIPS" in os.environ
ATTEMPTS = 80
"""Bits that are flipped in a broker without a guard before it is taken for safe; every other where it matters."""

SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
SHARDS = 2
QUEUES = [f"flipped-{number}" for number in range(6)]
TOPICS = [f"flipped-topic-{number}" for number in range(2)]
"""Each has one partition, and two groups."""

GROUPS = ("ordered", "shared")
MESSAGES = 40
EXIT_REFUSED = 78
REDO_BYTES = 48 << 10
"""Of the redo logs, which are mostly zeros, bits are flipped up to here."""

Contents = dict[str, list[tuple[str, bool]] | str]
"""By queue or partition, its messages in order (body, whether marked redelivered), or why they cannot be had. Behind
those of a partition is where its groups are.
"""


@dataclass(frozen=True)
class Flip:
    """A bit of a file."""

    file: Path
    byte: int
    bit: int

    def apply(self, root: Path) -> None:
        """Flip it below a folder."""
        with (root / self.file).open("r+b") as stream:
            stream.seek(self.byte)
            old = stream.read(1)[0]
            stream.seek(self.byte)
            stream.write(bytes([old ^ 1 << self.bit]))


def fill(url: str) -> None:
    """Something of everything that a store can hold."""
    with shardmq.connect(url) as connection, connection.channel() as channel:
        channel.exchange_declare("flips", "topic", durable=True)
        kinds: list[dict[str, object]] = [
            {},
            {"x-max-priority": 3},
            {"x-message-ttl": 86_400_000},
            {},
            {"x-delivery-limit": 9},
            {"x-max-length": 1000},
        ]
        for queue, arguments in zip(QUEUES, kinds, strict=True):
            channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_bind(queue, "flips", f"{queue}.#")
            with channel.publisher() as publisher:
                for number in range(MESSAGES):
                    properties = shardmq.Properties(priority=number % 4) if "x-max-priority" in arguments else None
                    publisher.publish("flips", f"{queue}.x", f"{queue}/{number}".encode(), properties)
            for place, message in enumerate(channel.consume(queue, prefetch=12, inactivity_timeout=5)):
                assert message is not None
                if place % 3:
                    message.ack()
                if place == 9:
                    break
        for topic in TOPICS:
            read_by_groups(channel, topic)
        with channel.transaction("committed") as transaction:
            transaction.publish_many("", QUEUES[3], [f"{QUEUES[3]}/t{number}".encode() for number in range(5)])
        channel.transaction("undecided").publish_many("", QUEUES[0], [b"never to be seen"] * 5)
        channel.basic_publish("", QUEUES[4], b"much later", delay_ms=86_400_000)


def read_by_groups(channel: shardmq.Channel, topic: str) -> None:
    """A topic, half of which was read by its groups."""
    channel.topic_declare(topic, 1)
    with channel.publisher() as publisher:
        publisher.publish_many("", f"{topic}-0", [f"{topic}/{number}".encode() for number in range(MESSAGES)])
    for group in GROUPS:
        options: dict[str, Any] = {"shared": group == "shared", "pull": 4, "prefetch": 4}
        with channel.group_consumer(topic, group, start="earliest", auto_commit=False, **options) as consumer:
            for _ in range(5):
                messages = consumer.poll(10)
                for message in messages[group == "shared" :]:
                    message.ack()
                if group == "shared":
                    messages[0].nack(delay_ms=86_400_000)
            consumer.commit()


def top_up(url: str) -> None:
    """A little more in each queue."""
    with shardmq.connect(url) as connection, connection.channel() as channel, channel.publisher() as publisher:
        for queue in QUEUES:
            for number in range(5):
                publisher.publish("", queue, f"{queue}/late-{number}".encode())


def contents(url: str) -> Contents:
    """All that can be had."""
    found: Contents = {}
    for queue in QUEUES:
        with shardmq.connect(url, timeout=20) as connection, connection.channel() as channel:
            messages: list[tuple[str, bool]] = []
            try:
                count = channel.queue_declare(queue, durable=True, passive=True).messages
                if count:
                    for message in channel.consume(queue, auto_ack=True, inactivity_timeout=5.0):
                        assert message is not None, f"{queue}: {len(messages)} of {count} came"
                        messages.append((message.body.decode(), message.redelivered))
                        if len(messages) == count:
                            break
                found[queue] = messages
            except ShardmqError as fault:
                found[queue] = str(fault)
    for topic in TOPICS:
        with shardmq.connect(url, timeout=20) as connection, connection.channel() as channel:
            try:
                found[f"{topic}-0"] = [(message.body.decode(), False) for message in channel.pull(topic, 0, 0, 1000)]
                for group in GROUPS:
                    [row] = channel.group_offsets(topic, group)
                    where = [row[name] for name in ("offset", "lag", "type", "acked_above", "delayed")]
                    found[f"{topic}-0"] += [(f"{group}: {where}", False)]
            except ShardmqError as fault:
                found[f"{topic}-0"] = str(fault)
    return found


@dataclass
class Pristine:
    """A data directory, and what is in its queues."""

    folder: Path
    contents: Contents


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    """Stores of a broker that was killed: some of what it had is in its redo logs only."""
    folder = tmp_path_factory.mktemp("flips")
    broker = Broker(folder / "data", shards=SHARDS)
    try:
        broker.start()
        fill(broker.url)
        broker.restart()  # which empties the redo logs
        top_up(broker.url)
        broker.kill_everything()
        shutil.copytree(folder / "data", folder / "kept")
        broker.start()
        found = contents(broker.url)
    finally:
        broker.close()
    assert all(isinstance(messages, list) and len(messages) > 20 for messages in found.values())
    return Pristine(folder / "kept", found)


def flips(folder: Path, count: int, names: Sequence[str]) -> Sequence[Flip]:
    """Bits anywhere in what is stored, as many of each file of such a name."""
    dice = random.Random(SEED)
    files = sorted(file for file in folder.rglob("*") if file.name in names)
    chosen = []
    for number in range(count):
        file = files[number % len(files)]
        content = file.read_bytes()[: REDO_BYTES if file.name == "redo" else None]
        while not any(content[(byte := dice.randrange(len(content))) & ~15 :][:16]):
            pass  # where nothing is, nothing is read
        chosen.append(Flip(file.relative_to(folder), byte, dice.randrange(8)))
    return chosen


def value_flips(folder: Path, count: int, of_bodies: bool) -> Sequence[Flip]:
    """Bits of values in shards' stores, which are a small part of their files."""
    dice = random.Random(SEED)
    values = [
        (file, value) for file in sorted(folder.glob("shard-*/data.mdb")) for value in stored_values(file, of_bodies)
    ]
    chosen = []
    for _ in range(count):
        file, value = dice.choice(values)
        place = file.read_bytes().index(value) + dice.randrange(len(value))
        chosen.append(Flip(file.relative_to(folder), place, dice.randrange(8)))
    return chosen


def stored_values(file: Path, of_bodies: bool) -> list[bytes]:
    """The bodies of all segments, or the values of all other rows, as they lie in the file."""
    with lmdb.open(str(file.parent), readonly=True, lock=False, max_dbs=64) as environment:
        with environment.begin() as transaction:
            names = [name for name, _ in transaction.cursor() if (name == b"segments") == of_bodies]
        tables = [environment.open_db(name, create=False) for name in names]
        with environment.begin() as transaction:
            return [value for table in tables for _, value in transaction.cursor(table) if len(value) > 12]


def check(found: Contents, wanted: Contents) -> list[str]:
    """Which queues are out of service; all others have exactly what they had."""
    refused = []
    for queue, messages in wanted.items():
        there = found[queue]
        if isinstance(there, str):
            assert "out of service" in there, there
            assert queue in there, there
            refused.append(queue)
        else:
            assert there == messages, f"{queue} is not what it was"
    return refused


def outcome_of(flip: Flip, pristine: Pristine, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """What becomes of a broker whose stores have that bit flipped. Any outcome that is not allowed is an
    AssertionError.
    """
    shutil.copytree(pristine.folder, folder)
    flip.apply(folder)
    broker = Broker(folder, shards=SHARDS, variables=variables)
    try:
        broker.start()
    except ShardmqError:
        assert broker.wait() == EXIT_REFUSED, broker.last_words()
        sentences = [line for line in broker.log.read_text().splitlines() if " ERROR " in line]
        outcome = sentences[0]
        assert str(folder) in outcome
    else:
        refused = check(contents(broker.url), pristine.contents)
        outcome = f"{', '.join(refused)} out of service" if refused else "nothing has changed"
    finally:
        broker.close()
    assert "Traceback" not in broker.log.read_text(), broker.last_words()
    assert not [notice for notice in broker.notices if notice.event in ("exited", "killed")], broker.last_words()
    shutil.rmtree(folder)
    return outcome


@pytest.mark.faults
def test_a_flipped_bit_is_refused_or_changes_nothing(pristine: Pristine, tmp_path: Path) -> None:
    for number, flip in enumerate(flips(pristine.folder, FLIPS, ("data.mdb", "redo"))):
        print(f"seed {SEED}, {flip}: ", end="")
        print(outcome_of(flip, pristine, tmp_path / f"data-{number}"))


def cursors(folder: Path) -> list[tuple[Path, bytes, bytes]]:
    """The cursors of all groups: file, key and value."""
    found = []
    for file in sorted(folder.glob("shard-*/data.mdb")):
        with lmdb.open(str(file.parent), readonly=True, lock=False, max_dbs=64) as environment:
            table = environment.open_db(b"cursors", create=False)
            with environment.begin() as transaction:
                found += [(file.relative_to(folder), key, value) for key, value in transaction.cursor(table)]
    return found


def test_a_flipped_cursor_takes_its_group_out_of_service_and_nothing_else(pristine: Pristine, tmp_path: Path) -> None:
    """The group does not begin anew, nor does another of that partition, as the name may be what is damaged."""
    folder = tmp_path / "data"
    shutil.copytree(pristine.folder, folder)
    file, key, value = next(each for each in cursors(folder) if each[1].endswith(b"ordered"))
    for place in re.finditer(re.escape(key + value), (folder / file).read_bytes()):  # older ones are in free pages
        Flip(file, place.end() - 1, 2).apply(folder)
    with Broker(folder, shards=SHARDS) as broker:
        found = contents(broker.url)
        [partition] = check(found, pristine.contents)
        sentence = f"group 'ordered' is out of service in stream '{partition}' in vhost '/': its cursor in"
        assert sentence in found[partition]
        topic = partition.rpartition("-")[0]
        with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
            nothing_begins_anew(channel, topic, sentence)
            everything_else_goes_on(channel, topic)
            status = connection.status()
            assert not [table for table in status["queues"] if "out_of_service" in table]
            [alarm] = [each for process in status["processes"] for each in process.get("damaged", ())]
            assert (alarm["name"], alarm["group"]) == (partition, "ordered")
            said = run_command("check", "findings", "--url", broker.url)
            assert f"group 'ordered' is out of service in stream '{partition}' (group-damaged)" in said.stdout
        broker.restart()
        with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
            nothing_begins_anew(channel, topic, sentence)
            [row] = channel.group_offsets(topic, "shared")
            assert row["lag"] == 0
    said = run_command("store", "check", str(folder))
    assert said.returncode == 1
    assert f"queue '{partition}' in vhost '/': the cursor of group 'ordered'" in said.stdout
    said = run_command("store", "repair", str(folder), "--apply", "--yes")
    assert "begins where its next member says" in said.stdout
    with (
        Broker(folder, shards=SHARDS) as broker,
        shardmq.connect(broker.url, timeout=20) as connection,
        connection.channel() as channel,
    ):
        assert channel.group_offsets(topic, "ordered")[0]["offset"] is None
        channel.group_commit(topic, "ordered", {0: MESSAGES - 1})
        with channel.group_consumer(topic, "ordered", auto_commit=False) as consumer:
            assert [message.offset for message in consumer.poll(10)] == [MESSAGES - 1, MESSAGES]


def nothing_begins_anew(channel: shardmq.Channel, topic: str, sentence: str) -> None:
    """Neither the group whose cursor is damaged, nor one that has not read the partition."""
    for start in ("earliest", "latest"):
        with channel.group_consumer(topic, "ordered", start=start, auto_commit=False) as consumer:  # type: ignore[arg-type]
            assert not consumer.poll(0.3)
    for ask in (
        lambda: channel.group_commit(topic, "ordered", {0: MESSAGES}),
        lambda: channel.group_delete(topic, "ordered"),
        lambda: channel.group_offsets(topic, "ordered"),
    ):
        with pytest.raises(ShardmqError, match=re.escape(sentence)):
            ask()
    with pytest.raises(ShardmqError, match=r"group 'newcomer' cannot begin in .* may be its own"):
        channel.group_commit(topic, "newcomer", {0: 1})


def everything_else_goes_on(channel: shardmq.Channel, topic: str) -> None:
    """Another group reads what it has not read, and what comes now."""
    assert "shared" in [row["group"] for row in channel.topic_info(topic)["groups"]]
    channel.group_reset(topic, "shared", MESSAGES - 1)
    with channel.publisher() as publisher:
        publisher.publish("", f"{topic}-0", b"goes on")
    with channel.group_consumer(topic, "shared", shared=True, auto_commit=False) as consumer:
        read: list[bytes] = []
        while len(read) < 2:
            for message in consumer.poll(10):
                read.append(message.body)
                message.ack()
        assert read[-1] == b"goes on"
        consumer.commit()


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What `shardmq` says."""
    command = [sys.executable, "-m", "shardmq", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("mutant", mutants.FLIPS, ids=lambda mutant: mutant.guard)
def test_every_guard_is_where_its_control_removes_it(mutant: mutants.Mutant) -> None:
    assert mutant.applied()


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
@pytest.mark.parametrize("mutant", mutants.FLIPS, ids=lambda mutant: mutant.guard)
def test_the_harness_notices_when_a_guard_is_removed(
    mutant: mutants.Mutant, pristine: Pristine, tmp_path: Path
) -> None:
    variables = mutant.variables(tmp_path / "code")
    chosen = list(flips(pristine.folder, ATTEMPTS, mutant.breaks))
    if mutant.aim is not None:
        chosen[::2] = value_flips(pristine.folder, ATTEMPTS // 2, mutant.aim == "bodies")
    for number, flip in enumerate(chosen):
        try:
            outcome = outcome_of(flip, pristine, tmp_path / f"data-{number}", variables)
        except (AssertionError, ShardmqError) as fault:
            print(f"without '{mutant.guard}': {str(fault)[:300]}")
            return
        print(f"{flip}: {outcome}")
    raise AssertionError(f"without its guard ('{mutant.guard}') nothing seems to be wrong")
