"""The coordinator process: start, signals, clean stop."""

import logging
from contextlib import ExitStack

from shardmq.bus.poller import context
from shardmq.coordinator.assembly import CoordinatorOptions, directory_of, put_together
from shardmq.coordinator.loop import CoordinatorLoop
from shardmq.coordinator.storage.store import Store
from shardmq.runtime import notify
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal

__all__ = ["CoordinatorOptions", "build", "run"]

_log = logging.getLogger(__name__)


def run(options: CoordinatorOptions) -> None:
    """Run a coordinator until SIGTERM or SIGINT.

    Raises:
        StartupRefused: the store cannot be used, has queues on shards that do not exist, or an address of the bus is
            not safe to use.
    """
    if options.listen_replica:
        from shardmq.coordinator.replica_process import run_replica  # a broker on one host does without all of it

        run_replica(options)
        return
    coordinator = build(options)
    StopSignal(coordinator.stop)
    _log.info("ready at %s", options.listen)
    exempt_startup()
    notify.ready()
    try:
        coordinator.serve()
    finally:
        notify.stopping()
        coordinator.close()


def build(options: CoordinatorOptions, clock: SteadyClock | None = None) -> CoordinatorLoop:
    """Open the store and the links, and put the parts of a coordinator together.

    Args:
        options: of the coordinator.
        clock: steady time, by which transactions expire; the clock that the store has a note of goes on when None.

    Raises:
        StartupRefused: the store cannot be used, has queues on shards that do not exist, or an address of the bus is
            not safe to use. What was opened is closed.
    """
    with ExitStack() as opened:
        store = Store.open(options.data_dir / "coordinator", options.boot_id)
        opened.callback(store.close)
        sockets = context(options.security)
        opened.callback(sockets.destroy, linger=0)
        directory = directory_of(options)
        if directory is not None:
            opened.callback(directory.close)
        coordinator = put_together(options, store, sockets, clock, directory)
        opened.pop_all()
    return coordinator
