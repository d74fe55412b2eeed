"""Whether the replicas of each group hold the same, once nobody writes any more.

As a program it says what stores hold, each named as GROUP=FOLDER. It is run in the version that wrote them: others may
refuse them.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardmq.coordinator.storage import schema as coordinator
from shardmq.replication.core.group import Group
from shardmq.replication.node.store import ReplicaStore
from shardmq.shards.storage import schema as shard
from tests.docs.document import ROOT
from tests.hosts.broker import HostsBroker
from tests.hosts.faults.builds import Build
from tests.replication.digest import digest_of

QUIET_SECONDS: Final = 0.7
"""Without a write of anybody; three beats."""

PATIENCE_SECONDS: Final = 30.0


def wait_until_quiet(broker: HostsBroker) -> None:
    """Wait until nobody has written for a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.time() - max(_written(broker.folder / name) for name in broker.ups) < QUIET_SECONDS:
        assert time.monotonic() < deadline, "somebody writes though nobody publishes or consumes"
        time.sleep(0.05)


def differences(broker: HostsBroker, groups: Mapping[str, Group], build: Build) -> tuple[str, list[str]]:
    """Compare the stores of a broker, all processes of which are dead; returns what they hold, and what differs.

    Args:
        broker: whose stores.
        groups: as etcd has them.
        build: the version that wrote the stores.
    """
    places = [(name, host) for name, group in groups.items() for host in group.in_sync]
    path = {"PYTHONPATH": os.pathsep.join((build.variables["PYTHONPATH"], str(ROOT)))}
    words = [f"{name}={broker.folder / host / name}" for name, host in places]
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, *words],
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = dict(zip(places, map(json.loads, done.stdout.splitlines()), strict=True))
    found = []
    for name, group in groups.items():
        stores = {host: told[name, host] for host in group.in_sync}
        if len({(row["at"], row["digest"]) for row in stores.values()}) > 1:
            each = (f"{host} at {row['at']}: {row['digest']}" for host, row in stores.items())
            found.append(f"replicas of {name} differ: {'; '.join(each)}")
    return f"{sum(row['rows'] for row in told.values())} rows in {len(places)} replicas", found


def _tell(words: list[str]) -> None:
    """Say what stores hold, a line for each."""
    for word in words:
        name, _, folder = word.partition("=")
        store = ReplicaStore.open(Path(folder), coordinator.LAYOUT if name == "coordinator" else shard.LAYOUT)
        note, digest = store.note, digest_of(store.engine)
        store.close()
        print(json.dumps({"at": f"{note.term}.{note.index}", "digest": str(digest), "rows": digest.rows}))


def _written(folder: Path) -> float:
    """When a file of a host's replicas was written last."""
    return max(file.stat().st_mtime for file in folder.glob("*/*") if file.is_file())


if __name__ == "__main__":
    _tell(sys.argv[1:])
