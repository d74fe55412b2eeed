"""The number of fdatasync a second of the disk, which bounds the rate of confirmed messages."""

import os
import tempfile
import time
from pathlib import Path
from typing import Final

SECONDS: Final = 0.5
BLOCK: Final = b"\0" * 4096
"""One page, as the smallest commit of a store writes."""


def fdatasync_per_s(directory: Path) -> int:
    """Overwrite and sync one page of a temporary file for half a second; returns the rate."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, BLOCK, 0)
        os.fsync(descriptor)
        count = 0
        started_at = time.perf_counter()
        while (seconds := time.perf_counter() - started_at) < SECONDS:
            os.pwrite(descriptor, BLOCK, 0)
            os.fdatasync(descriptor)
            count += 1
    return round(count / seconds)
