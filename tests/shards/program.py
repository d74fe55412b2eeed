"""The program of a shard that a test runs: the shard's own, on a clock and a disk that the test may change.

The file `wall-seconds` in the data directory says by how much the machine's clock is wrong, at any moment.
`disk-free-bytes` says what is left of its disk.
"""

import json
import os
import time
import types
from pathlib import Path
from typing import Any

from shardmq.shards.process import ShardOptions
from shardmq.shards.process import run as run_shard

true_ns, true_stats = time.time_ns, os.statvfs


def run(arguments: tuple[str, str, str, str]) -> int:
    """Be a shard: data directory, address, bytes of bodies in memory, and more of `ShardOptions` as JSON."""
    folder, address, memory_bytes, options = arguments
    shift, free = Path(folder) / "wall-seconds", Path(folder) / "disk-free-bytes"

    def shifted_ns() -> int:
        return true_ns() + int(shift.read_text()) * 10**9

    def changed_stats(path: Any) -> Any:
        if not free.exists():
            return true_stats(path)
        return types.SimpleNamespace(f_frsize=1, f_bavail=int(free.read_text() or 0), f_blocks=1 << 40)

    if shift.exists():
        time.time_ns = shifted_ns
    os.statvfs = changed_stats
    run_shard(ShardOptions(0, Path(folder), address, int(memory_bytes), **json.loads(options)))
    return 0
