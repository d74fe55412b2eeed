"""The format of a replica's store, which rises with that of its broker's stores."""

import logging
from collections.abc import Iterable

from shardmq.errors import StoreRefused
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import StoreFormat
from shardmq.replication.node.engine import PrimaryEngine
from shardmq.replication.node.neighbours import Links
from shardmq.storage.engine import Engine
from shardmq.storage.versions import VERSION

_log = logging.getLogger(__name__)


class RisingFormat:
    """Raises the format of a replica's store, when etcd says so or another replica that has heard it there.

    The latter tells before it sends rows of that format. So a store that has some is of that format on disk, however
    late its host hears of etcd.

    Args:
        name: of the replica, for the log.
        store: its engine.
        owners: the engine of the store's owner, where this replica leads.
        links: with the other replicas, which have to be of the same format when they are called.
    """

    def __init__(self, name: str, store: Engine, owners: PrimaryEngine, links: Links) -> None:
        self._name = name
        self._store = store
        self._owners = owners
        self._links = links
        links.on_format = self.rise

    def seen(self, entries: Iterable[Entry[StoreFormat]]) -> None:
        """Have the store be of the format that etcd says; see `rise`."""
        for entry in entries:
            if entry.value is not None:
                self.rise(entry.value.version)

    def rise(self, version: int) -> None:
        """Have the store be of a format. It never goes back.

        Raises:
            StoreRefused: this shardmq does not write that format: the host was installed with an earlier version.
            StoreUnwritable: all is as it was. The process must end.
        """
        if version <= self._store.version:
            return
        if version > VERSION:
            raise StoreRefused(too_new(version))
        before = self._store.version
        self._store.raise_version(version)
        self._owners.version = version
        self._links.format_has_risen()
        _log.info(
            "%s: the store has format %d after %d: earlier versions of shardmq refuse it", self._name, version, before
        )


def too_new(version: int) -> str:
    """Why a host cannot have replicas in a broker whose stores have a later format than it writes."""
    return (
        f"the broker's stores have format {version}, and this shardmq writes {VERSION} at most; install the version of "
        "shardmq that its other hosts have"
    )
