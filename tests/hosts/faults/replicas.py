"""Whether the replicas of each group hold the same, once nobody writes any more."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardmq.coordinator.storage import schema as coordinator
from shardmq.replication.core.group import Group
from shardmq.replication.core.note import Note
from shardmq.replication.node.store import ReplicaStore
from shardmq.shards.storage import schema as shard
from tests.hosts.broker import HostsBroker
from tests.replication.digest import Digest, digest_of

QUIET_SECONDS: Final = 0.7
"""Without a write of anybody; three beats."""

PATIENCE_SECONDS: Final = 30.0


def wait_until_quiet(broker: HostsBroker) -> None:
    """Wait until nobody has written for a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.time() - max(_written(broker.folder / name) for name in broker.ups) < QUIET_SECONDS:
        assert time.monotonic() < deadline, "somebody writes though nobody publishes or consumes"
        time.sleep(0.05)


def differences(broker: HostsBroker, groups: Mapping[str, Group]) -> tuple[str, list[str]]:
    """Compare the stores of a broker, all processes of which are dead; returns what they hold, and what differs."""
    found, rows = [], 0
    for name, group in groups.items():
        stores = {host: _contents(broker.folder / host / name, name) for host in group.in_sync}
        rows += sum(digest.rows for _, digest in stores.values())
        if len({(note.term, note.index, digest) for note, digest in stores.values()}) > 1:
            told = (f"{host} at {note.term}.{note.index}: {digest}" for host, (note, digest) in stores.items())
            found.append(f"replicas of {name} differ: {'; '.join(told)}")
    return f"{rows} rows in {sum(len(group.in_sync) for group in groups.values())} replicas", found


def _contents(folder: Path, name: str) -> tuple[Note, Digest]:
    store = ReplicaStore.open(folder, coordinator.LAYOUT if name == "coordinator" else shard.LAYOUT)
    try:
        return store.note, digest_of(store.engine)
    finally:
        store.close()


def _written(folder: Path) -> float:
    """When a file of a host's replicas was written last."""
    return max(file.stat().st_mtime for file in folder.glob("*/*") if file.is_file())
