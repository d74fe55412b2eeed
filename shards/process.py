"""The shard process: start, the loop, the end."""

import logging
import time

from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.bus.poller import Poller, context
from shardmq.bus.spinning import Spinning
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.shards.loop import ShardLoop
from shardmq.shards.options import ShardOptions
from shardmq.shards.storage.store import Store, meeting_damage

__all__ = ["ShardOptions", "run"]

_log = logging.getLogger(__name__)


def run(options: ShardOptions) -> None:
    """Be a shard until SIGTERM or SIGINT.

    A commit that fails ends the process with its error: what is in memory is then ahead of the disk, and only a start
    from what is on disk is right.

    Raises:
        StoreRefused: the store is not this shard's to open.
        StoreUnreadable: something is damaged that is no queue's.
    """
    if options.listen_replica:
        from shardmq.shards.replica_process import run_replica  # a broker on one host does without all of it

        run_replica(options)
        return
    stop = StopSignal()
    store = Store.open(options.data_dir / options.name, options.index)
    sockets = context(options.security)
    listener: Listener[ToShard] = Listener(sockets, options.listen, "shard", options.name, ToShard)
    loop = ShardLoop(
        options.name, store, listener, options.memory_bytes, options.rss_bytes_max, options.disk_free_bytes_min
    )
    poller = Poller([listener.socket])
    _log.info("ready at %s", options.listen)
    exempt_startup()
    notify.ready()
    with meeting_damage():
        _carry_out_passes(loop, poller, stop)
    notify.stopping()
    loop.stop()
    listener.close()
    sockets.term()
    store.close()


def _carry_out_passes(loop: ShardLoop, poller: Poller, stop: StopSignal) -> None:
    spinning = Spinning()
    while not stop.asked:
        has_come = poller.wait(loop.wait_seconds(), spinning.awake_until)
        began = time.monotonic()
        if loop.run_pass(has_come):
            spinning.passed(began, time.monotonic(), loop.is_conversing)
