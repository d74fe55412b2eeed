"""The shard process: options, start, the loop, the end."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.bus.poller import Poller, context
from shardmq.bus.spinning import Spinning
from shardmq.limits import SHARD_MEMORY_BYTES
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.shards.loop import ShardLoop
from shardmq.shards.storage.store import Store

_log = logging.getLogger(__name__)


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
    """

    index: int
    data_dir: Path
    listen: str
    memory_bytes: int = SHARD_MEMORY_BYTES
    security: CurveKeys = NO_KEYS
    rss_bytes_max: int | None = None
    disk_free_bytes_min: int | None = None

    @property
    def name(self) -> str:
        """The name of the process."""
        return f"shard-{self.index}"


def run(options: ShardOptions) -> None:
    """Be a shard until SIGTERM or SIGINT.

    A commit that fails ends the process with its error: what is in memory is then ahead of the disk, and only a start
    from what is on disk is right.

    Raises:
        StoreRefused: the store is not this shard's to open.
    """
    stop = StopSignal()
    store = Store.open(options.data_dir / options.name, options.index)
    sockets = context(options.security)
    listener: Listener[ToShard] = Listener(sockets, options.listen, "shard", options.name, ToShard)
    loop = ShardLoop(
        options.name, store, listener, options.memory_bytes, options.rss_bytes_max, options.disk_free_bytes_min
    )
    spinning = Spinning(Poller([listener.socket]))
    _log.info("ready at %s", options.listen)
    exempt_startup()
    notify.ready()
    while not stop.asked:
        has_come = spinning.wait(loop.wait_seconds())
        began = time.monotonic()
        if loop.run_pass(has_come):
            spinning.passed(began, time.monotonic(), loop.is_conversing)
    notify.stopping()
    loop.stop()
    listener.close()
    sockets.term()
    store.close()
