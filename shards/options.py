"""The options of a shard's process."""

from dataclasses import dataclass
from pathlib import Path

from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.limits import SHARD_MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class ShardOptions:
    """The options of a shard.

    Attributes:
        index: which shard it is; its store is `<data_dir>/shard-<index>`.
        data_dir: the broker's data directory.
        listen: ZeroMQ endpoint, as `ipc:///run/shardmq/shard-0`.
        memory_bytes: what message bodies in memory may take.
        security: of the bus, where it is TCP.
        rss_bytes_max: resident memory above which publishers are blocked; None for the default.
        disk_free_bytes_min: what must be left of the disk, else they are too; None for the default.
        join: URL of etcd, where a broker on several hosts is registered; "" for one on one host.
        host_name: of this host in such a broker.
        broker: the id of such a broker.
        listen_replica: address for the shard's replicas on other hosts, as `tcp://10.0.0.1:5683`.
    """

    index: int
    data_dir: Path
    listen: str
    memory_bytes: int = SHARD_MEMORY_BYTES
    security: CurveKeys = NO_KEYS
    rss_bytes_max: int | None = None
    disk_free_bytes_min: int | None = None
    join: str = ""
    host_name: str = ""
    broker: str = ""
    listen_replica: str = ""

    @property
    def name(self) -> str:
        """The name of the process."""
        return f"shard-{self.index}"
