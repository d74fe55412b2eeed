"""The power of a follower's host fails at any moment: what it acknowledged is there, and its rows are its note's."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest

from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.store.digest import digest_of
from shardmq.replication.store.follower import FollowerStore
from shardmq.replication.store.key_range import read_range
from shardmq.shards.storage.schema import LAYOUT
from tests.faults.mutants import ROOT
from tests.faults.power.disk import LUCKS, Disk, Guards
from tests.faults.power.recording import Recording

from .following import JOIN, NUMBER, PROMISE, RANGE, RECORD, encode, receive, send
from .stores import Host, Traffic, room

SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
MOMENTS = int(os.environ.get("SHARDMQ_FAULT_POINTS", "3"))
RECORDS = 160


class Acknowledged:
    """What a follower said, and when."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.at: list[tuple[int, int, int, bool]] = []  # nanoseconds, promised term, index, whether it is complete
        self.promised, self.index, self.is_complete = 0, 0, False

    def ask(self, what: int, *parts: bytes | bytearray) -> None:
        send(self.link, what, *parts)
        self.index = NUMBER.unpack(receive(self.link)[1])[0]
        self.at.append((time.monotonic_ns(), self.promised, self.index, self.is_complete))


@pytest.mark.faults
def test_what_a_follower_acknowledged_outlives_its_hosts_power() -> None:
    print(f"SHARDMQ_FAULT_SEED={SEED}")
    dice, traffic, source = random.Random(SEED), Traffic(SEED, 30_000), Host(None)
    with room() as folder, closing(source):
        recording = Recording(folder / "log", folder / "data")
        command = [sys.executable, "-m", "tests.replication.store.following"]
        process = subprocess.Popen(
            [*command, str(folder / "data" / "shard-0"), str(folder / "sock")],
            cwd=ROOT,
            env={**os.environ, **recording.variables()},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(str(folder / "sock"))
                said, digests = stream(link, source, traffic, dice)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        disk = Disk(recording.events(), folder / "data")
        writes = disk.synced_writes(said.at[0][0], said.at[-1][0])["shard-0"]
        for number, moment in enumerate([said.at[-1][0], *(end + 1 for end in dice.sample(writes, MOMENTS))]):
            _, promised, index, is_complete = max(each for each in said.at if each[0] <= moment)
            for luck, choice in LUCKS.items():
                target = folder / f"{number}-{luck}"
                disk.fail(moment, choice, SEED, target, Guards())
                with closing(FollowerStore.open(target / "shard-0", LAYOUT)) as store:
                    note = store.note
                    assert (note.promised, note.index) >= (promised, index), luck
                    assert note.is_complete >= is_complete, luck
                    if note.is_complete:
                        assert digest_of(store.engine).value == digests[note.term, note.index], luck


def stream(
    link: socket.socket, source: Host, traffic: Traffic, dice: random.Random
) -> tuple[Acknowledged, dict[tuple[int, int], int]]:
    """A join, and records; terms that are promised between them."""
    said, digests = Acknowledged(link), {}
    primary = source.lead(1, adopt_as="1")
    for _ in range(60):
        primary.apply(traffic.commit(), 1000)
    note = primary.replica.note
    digests[note.term, note.index] = digest_of(primary).value
    said.ask(JOIN, encode((note, primary.replica.touched.above(note.released))))
    place: Key | None = BEGINNING
    while place is not None:
        data, place = read_range(primary, note, place, 50_000)
        said.is_complete = place is None
        said.ask(RANGE, data)
    for number in range(RECORDS):
        if number % 50 == 49:
            said.promised = primary.replica.note.promised + 1
            said.ask(PROMISE, NUMBER.pack(said.promised))
            source.close()
            primary = source.lead(said.promised)
        primary.apply(traffic.commit(), 1000)
        note = primary.replica.note
        digests[note.term, note.index] = digest_of(primary).value
        said.ask(RECORD, NUMBER.pack(note.index - dice.randrange(9)), source.sent[-1].data)
    return said, digests
