"""Keys of all processes of several hosts: a folder for each host, with its own secret keys and all public ones."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from shardmq.bus.curve import ALLOWED, PUBLIC_SUFFIX, SECRET_SUFFIX, create_pair, process_name
from shardmq.errors import StartupRefused


def create_missing(folder: Path, hosts: Sequence[str], processes: Sequence[str]) -> list[str]:
    """Make the pairs that are missing, and allow every public key on every host.

    Args:
        folder: in which each host has one.
        hosts: their names.
        processes: that each host has, as `shard-0`.

    Returns:
        Names of the pairs that were made, as `a.shard-0`.

    Raises:
        StartupRefused: a folder cannot be written, or half of a pair is missing.
    """
    made = []
    for host in hosts:
        for process in processes:
            name = process_name(host, process)
            if not (folder / host / f"{name}{SECRET_SUFFIX}").exists():
                create_pair(folder / host, name)
                made.append(name)
    public = {path.name: path for host in hosts for path in (folder / host / ALLOWED).glob(f"{host}.*{PUBLIC_SUFFIX}")}
    try:
        for host in hosts:
            for name, path in public.items():
                copy = folder / host / ALLOWED / name
                if copy != path:
                    shutil.copy(path, copy)
    except OSError as fault:
        raise StartupRefused(f"keys cannot be written in {folder}: {fault.strerror}") from fault
    return made
