"""What a commit of 300 bytes costs: `python -m tests.replication.node.measure [COMMITS]`.

CPU seconds of the processes, each with a store in memory: one alone, and a primary with its follower over TCP.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

from shardmq.bus.curve import create_pair, process_name
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS, Host
from shardmq.runtime.clock import boottime
from shardmq.shards.storage.schema import INDEX, LAYOUT, PLACE, SEGMENTS
from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import Edit, Engine
from shardmq.storage.lmdb_engine import LmdbEngine
from tests.hosts.members import Etcd
from tests.replication.links.replicas import free_address
from tests.replication.node.test_sockets import GROUP, Running
from tests.replication.store.stores import room

WINDOW = 50
BODY = bytes(300)


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def commit(engine: Engine, number: int) -> None:
    """A message comes, and one of before is settled."""
    key, gone = PLACE.pack(1, number + WINDOW), PLACE.pack(1, number)
    edits: list[Edit] = [(SEGMENTS, key, bytearray(sealed_row(SEGMENTS, key, BODY))), (INDEX, key, bytes(12))]
    edits += [(SEGMENTS, gone, None), (INDEX, gone, None)]
    engine.apply(iter(edits), 420)


def alone(folder: Path, commits: int) -> None:
    engine = LmdbEngine(folder, LAYOUT)
    engine.start(None, lambda: None)
    began, at = cpu(), time.monotonic()
    for number in range(1, commits + 1):
        commit(engine, number)
        engine.rest(time.monotonic(), True)
    report("alone", cpu() - began, time.monotonic() - at, commits)
    engine.close()


def serve(host: str, folder: Path, address: str, url: str, commits: int) -> None:
    """Commit as the primary, or follow, until all is released."""
    running = Running(host, folder, folder / "keys", address, url)
    node = running.node
    while node.group is None or len(node.group.in_sync) < 2 or not (node.takes_proposals or node.released):
        running.pass_(False)
    until = time.monotonic() + 1.0  # the other one knows, too
    while time.monotonic() < until:
        running.pass_(False)
    began, at, first, number = cpu(), time.monotonic(), node.index, 0
    leads = node.leads
    while (node.released if leads else node.index) < first + commits:
        running.pass_(False)
        while leads and number < commits and node.index - node.released < WINDOW:
            number += 1
            commit(node.engine, number)
            node.engine.rest(time.monotonic(), True)
            node.turn(boottime())
    report("primary" if leads else "follower", cpu() - began, time.monotonic() - at, commits)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        running.pass_(False)
    running.close()


def report(what: str, seconds: float, elapsed: float, commits: int) -> None:
    print(f"{what:<9} {seconds / commits * 1e6:7.1f} µs of CPU a commit; {commits / elapsed:,.0f} a second", flush=True)


def main(commits: int) -> None:
    with room() as folder, Etcd() as etcd:
        alone(folder / "alone", commits)
        url = f"{etcd.url}/measure"
        addresses = {host: free_address() for host in "ab"}
        register = BackgroundRegister(parse(url), "m")
        for host, address in addresses.items():
            create_pair(folder / "keys", process_name(host, GROUP))
            register.put_host(host, Host("s", {f"{GROUP}/replica": address}))
        register.create(GROUPS, GROUP, Group("i1", 0, "", ("a",), ("a", "b")))
        command = [sys.executable, "-m", "tests.replication.node.measure"]
        processes = [
            subprocess.Popen([*command, host, str(folder), address, url, str(commits)])
            for host, address in addresses.items()
        ]
        for process in processes:
            process.wait(120)
        register.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        host, folder, address, url, commits = sys.argv[1:]
        serve(host, Path(folder), address, url, int(commits))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
