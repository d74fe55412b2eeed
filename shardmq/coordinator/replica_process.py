"""The process of a coordinator that has replicas on other hosts: it follows, becomes the primary in place, and ends.

What it answers, and what it tells shards, waits in its links until the replicas in sync have what that rests on.
"""

import logging

from shardmq.bus.curve import COORDINATOR, Context
from shardmq.bus.poller import context
from shardmq.coordinator.assembly import CoordinatorOptions, directory_of, put_together
from shardmq.coordinator.storage.schema import LAYOUT
from shardmq.coordinator.storage.store import MARGIN_BYTES, RESERVE_BYTES, Store
from shardmq.replication.directory import PrimaryDirectory
from shardmq.replication.member import GroupMember, MemberOptions, TermEnded
from shardmq.replication.node.errors import NotPrimary
from shardmq.runtime import notify
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.storage.lmdb_engine import LmdbEngine

_log = logging.getLogger(__name__)


def run_replica(options: CoordinatorOptions) -> None:
    """Be a replica of the coordinator until SIGTERM or SIGINT, or until a term that it led is over.

    Raises:
        SystemExit: that term is over, with `notify.REPLICA_ENDED`.
        StartupRefused: the store cannot be used, or an address is invalid, not safe to use, or in use.
        InvalidUrl: the URL of etcd cannot be read, or a file that it names not be used.
    """
    stop = StopSignal()
    sockets = context(options.security)
    directory = directory_of(options)
    assert directory is not None, "a replica has a URL of etcd"
    folder = options.data_dir / COORDINATOR
    engine = LmdbEngine(folder, LAYOUT, reserve_bytes=RESERVE_BYTES, margin_bytes=MARGIN_BYTES)
    place = MemberOptions(options.join, options.host_name, COORDINATOR, options.broker, options.listen_replica)
    member = GroupMember(place, engine, sockets)
    ended = ""
    try:
        if member.follow(lambda: stop.asked, notify.ready):
            _lead(options, member, directory, sockets, stop)
        else:
            directory.close()
        notify.stopping()
        member.leave()
    except (TermEnded, NotPrimary) as reason:
        ended = str(reason)
    member.close()
    sockets.term()
    if ended and not stop.asked:
        _log.info("%s; it starts again as a follower", ended)
        raise SystemExit(notify.REPLICA_ENDED)


def _lead(
    options: CoordinatorOptions, member: GroupMember, directory: PrimaryDirectory, sockets: Context, stop: StopSignal
) -> None:
    """Serve as the primary, until asked to stop.

    Raises:
        TermEnded, NotPrimary: the term is over.
    """
    store = Store(member.node.engine, options.boot_id)
    clock = SteadyClock.resumed(member.clock())
    coordinator = put_together(options, store, sockets, clock, directory, member)

    def ask() -> None:
        stop.asked = True
        coordinator.stop()

    StopSignal(ask)
    _log.info("primary at %s", options.listen)
    exempt_startup()
    try:
        if not stop.asked:
            coordinator.serve()
        member.settle()
    finally:
        coordinator.close()  # callers are to look for the new primary
