"""Whose stores lie in a data directory: of which broker, and of which of its hosts.

Replicas of one broker must not be taken for another one's, nor those of one host for another's: they would follow, and
be elected, as what they are not.
"""

from pathlib import Path
from typing import Final

import msgspec

from shardmq.errors import StartupRefused
from shardmq.storage.files import sync_file, sync_folder

FILE: Final = "host.json"


class Identity(msgspec.Struct, frozen=True):
    """Whose a data directory is.

    Attributes:
        broker: id of the broker.
        host: name of the host.
    """

    broker: str
    host: str


def identity_of(data_dir: Path) -> Identity | None:
    """Whose a data directory is; None where it is of no host of several.

    Raises:
        StartupRefused: the file that says so cannot be read.
    """
    path = data_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as fault:
        raise StartupRefused(
            f"{path}, which says whose these stores are, cannot be read ({fault}); bring it back from a backup"
        ) from fault


def check_alone(data_dir: Path) -> None:
    """Refuse a data directory of a broker on several hosts, for a broker on one machine.

    Raises:
        StartupRefused: it is one.
    """
    known = identity_of(data_dir)
    if known is not None:
        raise StartupRefused(
            f"{data_dir} belongs to host '{known.host}' of a broker on several hosts; start it with --join, or choose "
            "another --data-dir"
        )


def check_before(data_dir: Path, name: str) -> Identity | None:
    """Whose a data directory is, before it is known which broker this host joins.

    Raises:
        StartupRefused: it is another host's, or a broker's on one machine.
    """
    known = identity_of(data_dir)
    if known is not None and known.host != name:
        raise StartupRefused(
            f"{data_dir} belongs to host '{known.host}', and this is '{name}'; give each host a --data-dir of its own"
        )
    if known is None and any((data_dir / store).exists() for store in ("coordinator", "shard-0")):
        raise StartupRefused(
            f"{data_dir} belongs to a broker on one machine; join with an empty --data-dir, and bring its queues over "
            "with `shardmq definitions` and a shovel"
        )
    return known


def keep(data_dir: Path, identity: Identity) -> None:
    """Write down whose a data directory is."""
    path = data_dir / FILE
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(identity))
    sync_file(new)
    new.rename(path)
    sync_folder(data_dir)
