"""Offsets in transactions, and members that stand still: whoever dies or freezes between prepare and decision, what was
read is made into output exactly once, and no offset is skipped.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

import shardmq
from shardmq import errors
from tests.conftest import StartBroker

from .saboteur import until
from .test_sabotage import UNWRITABLE_BYTES, frozen, limit_file_size
from .transformers import QUICK

IS_LONG: Final = "SHARDMQ_FAULT_KILLS" in os.environ
SOURCE: Final = "in"
TARGET: Final = "out"
GROUP: Final = "g"
EACH: Final = 5
"""Messages of each of the two partitions, for each turn."""

MOMENTS: Final = (0.0, 0.02, 0.1, 0.3) if IS_LONG else (0.1,)
"""Seconds from when a commit was asked for until somebody dies."""

ROOT: Final = Path(__file__).resolve().parents[2]

PROGRAM: Final = """
import sys
import shardmq

url, topic, name, kind = sys.argv[1:]
QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
with shardmq.connect(url, timeout=20, heartbeat=1, recovery=QUICK) as connection:
    channel = connection.channel()
    consumer = channel.group_consumer(
        topic, "g", start="earliest", auto_commit=False, pull=1000, prefetch=1000, shared=kind == "shared"
    )
    messages = []
    while len(messages) < 10:
        messages += consumer.poll(10)
    if kind == "transaction":
        transaction = channel.transaction(name, timeout_ms=4000)
        for message in messages:
            transaction.publish("", "out-0", message.body)
            transaction.publish("", "out-1", message.body)
        transaction.commit_offsets(consumer)
        sealed = transaction.seal()
    print("ready", flush=True)
    sys.stdin.readline()
    print("asked", flush=True)
    try:
        transaction.commit([sealed]) if kind == "transaction" else consumer.commit()
        print("committed", flush=True)
    except shardmq.errors.ShardmqError as error:
        print(f"refused {type(error).__name__}: {error}", flush=True)
"""


class Client:
    """A program that reads ten messages, and commits what it made of them when it is told to."""

    def __init__(self, url: str, name: str, kind: str = "transaction", topic: str = SOURCE) -> None:
        command = [sys.executable, "-c", PROGRAM, url, topic, name, kind]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_for(self, word: str) -> str:
        """The next line that it says, which begins with a word."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line.startswith(word), line
        return line

    def commit(self) -> None:
        """Have it ask for the commit."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.wait_for("asked")

    def end(self) -> str:
        """Kill it; returns what it said last."""
        self.process.kill()
        said, _ = self.process.communicate()
        return said.strip()


def outcome(url: str, name: str) -> bool:
    """Whether a transaction took effect; where nothing did, it is aborted now."""
    with shardmq.connect(url, timeout=20, recovery=QUICK) as connection, connection.channel() as channel:
        transaction = channel.transaction(name)
        if not transaction.is_committed:
            transaction.abort()
        return transaction.is_committed


def table(url: str) -> tuple[list[int], list[list[bytes]]]:
    """Where the group is in each partition, and what is in the target's partitions."""
    with shardmq.connect(url, timeout=20, recovery=QUICK) as connection, connection.channel() as channel:
        offsets = [row["offset"] or 0 for row in channel.group_offsets(SOURCE, GROUP)]
        made = []
        for number in range(2):
            pulled = channel.pull(TARGET, number, 0, 1000)
            assert pulled.next == pulled.end
            made.append([message.body for message in pulled])
    return offsets, made


def produce(url: str, turn: int, topic: str = SOURCE) -> None:
    """Messages for another turn."""
    with shardmq.connect(url, timeout=20) as connection, connection.channel() as channel:
        channel.topic_declare(topic, 2)
        channel.topic_declare(TARGET, 2)
        for number in range(2):
            with channel.publisher() as publisher:
                publisher.publish_many("", f"{topic}-{number}", [b"%d/%d/%d" % (turn, number, n) for n in range(EACH)])


@pytest.mark.faults
@pytest.mark.parametrize("moment", MOMENTS)
def test_whoever_dies_between_prepare_and_decision_the_output_is_there_once(
    start_broker: StartBroker, moment: float
) -> None:
    """One shard is prepared, the other stands still; then the client dies, or, in the long form, who else there is."""
    broker = start_broker(shards=2)
    turn, wanted = 0, 0
    for cold in ("shard-1", "shard-0") if IS_LONG else ("shard-1",):
        for victim in ("client", "gateway-0", "shard-0", "coordinator", cold) if IS_LONG else ("client",):
            produce(broker.url, turn)
            name = f"turn-{turn}"
            turn += 1
            client = Client(broker.url, name)
            client.wait_for("ready")
            with contextlib.nullcontext() if victim == cold else frozen(broker, cold):
                client.commit()
                time.sleep(moment)  # not to wait for anything: to be in the middle of something
                known = len(broker.notices)
                if victim == "client":
                    client.end()
                else:
                    broker.kill(victim)
            if victim != "client":
                broker.wait_for("ready", victim, after=known)
                said = client.process.communicate(timeout=60)[0].strip()
            else:
                said = ""
            is_committed = outcome(broker.url, name)
            print(
                f"{cold} cold, {victim} killed after {moment} s: {'committed' if is_committed else 'aborted'}; {said}"
            )
            assert not (said == "committed" and not is_committed)
            if not is_committed:  # somebody else does it again
                again = Client(broker.url, f"{name}-again")
                again.wait_for("ready")
                again.commit()
                assert again.process.communicate(timeout=60)[0].strip() == "committed"
            wanted += EACH
            everything = sorted(b"%d/%d/%d" % (t, p, n) for t in range(turn) for p in range(2) for n in range(EACH))
            offsets, made = until(lambda: is_whole(broker.url, wanted), f"{victim}: all is there")  # noqa: B023
            assert offsets == [wanted, wanted]
            assert [sorted(each) for each in made] == [everything, everything], victim


def is_whole(url: str, wanted: int) -> tuple[list[int], list[list[bytes]]] | None:
    """What there is, once as much is there as should be."""
    found = table(url)
    return found if min(len(each) for each in found[1]) >= 2 * wanted else None


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
def test_a_member_that_stood_still_commits_nothing_in_what_others_got_meanwhile(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    kinds = ("transaction", "ordered", "shared")
    for kind in kinds:
        produce(broker.url, 0, kind)
    clients = {kind: Client(broker.url, kind, kind, kind) for kind in kinds}
    for client in clients.values():
        client.wait_for("ready")
        client.process.send_signal(signal.SIGSTOP)
    with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
        others = {kind: channel.group_consumer(kind, "g", auto_commit=False, shared=kind == "shared") for kind in kinds}
        came = {kind: [] for kind in kinds}
        for kind, other in others.items():
            until(lambda: came[kind].extend(other.poll(0.1)) or len(came[kind]) == 2 * EACH, "others get it")  # noqa: B023
            assert all(message.redelivered for message in came[kind])
            assert sorted(message.body for message in came[kind]) == [
                b"0/%d/%d" % (p, n) for p in range(2) for n in range(EACH)
            ]
        before = {kind: [row["offset"] for row in channel.group_offsets(kind, "g")] for kind in kinds}
        for kind, client in clients.items():
            client.process.send_signal(signal.SIGCONT)
            client.commit()
            client.wait_for("refused PreconditionFailed")
            assert [row["offset"] for row in channel.group_offsets(kind, "g")] == before[kind] == [0, 0]
            client.end()
        for kind in ("ordered", "shared"):
            assert others[kind].commit() == {0: EACH, 1: EACH}
        assert [channel.pull(TARGET, number, 0).next for number in range(2)] == [0, 0]


@pytest.mark.faults
def test_on_a_full_disk_nobody_is_told_of_a_commit_that_is_not_there(start_broker: StartBroker) -> None:
    """Nothing can be written any more, not even into the reserve; the shard's successor has room."""
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, timeout=20, recovery=QUICK) as connection, connection.channel() as channel:
        produce(broker.url, 0)
        for kind in ("ordered", "shared"):
            consumer = channel.group_consumer(
                SOURCE, kind, start="earliest", auto_commit=False, pull=3, prefetch=3, shared=kind == "shared"
            )
            handled: list[bytes] = []
            messages = until(lambda: consumer.poll(0.1), "messages come")  # noqa: B023
            known = len(broker.notices)
            limit_file_size(broker, "shard-0", UNWRITABLE_BYTES)
            with pytest.raises(errors.PreconditionFailed, match=f"'{kind}'"):
                consumer.commit()
            broker.wait_for("ready", "shard-0", after=known)
            assert [row["offset"] for row in channel.group_offsets(SOURCE, kind)] == [0, 0]
            while len(set(handled)) < 2 * EACH:
                messages = consumer.poll(10)
                assert messages, f"{kind}: {sorted(handled)}"
                handled += [message.body for message in messages]
                with contextlib.suppress(errors.PreconditionFailed):  # some of it came before the shard went away
                    consumer.commit()
            until(lambda: is_read(channel, kind), "all is committed")  # noqa: B023
        channel.group_commit(SOURCE, "puller", {0: 1})
        known = len(broker.notices)
        limit_file_size(broker, "shard-0", UNWRITABLE_BYTES)
        with contextlib.suppress(errors.ShardmqError):
            channel.group_commit(SOURCE, "puller", {0: 4})
            assert channel.group_offsets(SOURCE, "puller")[0]["offset"] == 4, "the successor was asked again"
        broker.wait_for("ready", "shard-0", after=known)
        assert until(lambda: channel.group_offsets(SOURCE, "puller"), "it is back")[0]["offset"] in (1, 4)


def is_read(channel: shardmq.Channel, group: str) -> bool:
    """Whether a group has acknowledged all there is."""
    return not any(row["lag"] for row in channel.group_offsets(SOURCE, group))
