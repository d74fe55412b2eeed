"""The process of a coordinator that has replicas on other hosts: it follows, leads in place, and follows again.

What it answers, and what it tells shards, waits in its links until the replicas in sync have what that rests on.
"""

import logging

from shardmq.bus.curve import COORDINATOR, Context
from shardmq.bus.poller import context
from shardmq.coordinator.assembly import CoordinatorOptions, directory_of, put_together
from shardmq.coordinator.rules.shard_identity import GenerationPassed
from shardmq.coordinator.storage.schema import LAYOUT
from shardmq.coordinator.storage.store import MARGIN_BYTES, RESERVE_BYTES, Store
from shardmq.replication.directory import PrimaryDirectory
from shardmq.replication.member import GroupMember, MemberOptions, TermEnded
from shardmq.replication.node.errors import NotPrimary
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.versions import REPLICAS_SINCE

_log = logging.getLogger(__name__)


def run_replica(options: CoordinatorOptions) -> None:
    """Be a replica of the coordinator until SIGTERM or SIGINT.

    Raises:
        StartupRefused: the store cannot be used, or an address is invalid, not safe to use, or in use.
        InvalidUrl: the URL of etcd cannot be read, or a file that it names not be used.
    """
    stop = StopSignal()
    sockets = context(options.security)
    directory = directory_of(options)
    assert directory is not None, "a replica has a URL of etcd"
    folder = options.data_dir / COORDINATOR
    engine = LmdbEngine(
        folder, LAYOUT, reserve_bytes=RESERVE_BYTES, margin_bytes=MARGIN_BYTES, new_version=REPLICAS_SINCE
    )
    place = MemberOptions(options.join, options.host_name, COORDINATOR, options.broker, options.listen_replica)
    member = GroupMember(place, engine, sockets)

    def is_asked_to_stop() -> bool:
        directory.look()  # a follower knows the primaries, too
        return stop.asked

    while member.follow(is_asked_to_stop):
        try:
            _lead(options, member, directory, sockets, stop)
            break
        except (TermEnded, NotPrimary) as reason:
            _log.info("%s; it goes on as a follower", reason)
        except GenerationPassed as passed:
            _log.warning("%s", passed)
            member.begin_anew()
            continue
        member.end_term()  # here nothing refers to what the term had in memory
    member.leave()
    directory.close()
    member.close()
    sockets.term()


def _lead(
    options: CoordinatorOptions, member: GroupMember, directory: PrimaryDirectory, sockets: Context, stop: StopSignal
) -> None:
    """Serve as the primary, until asked to stop.

    Raises:
        TermEnded, NotPrimary: the term is over.
        GenerationPassed: it is to begin anew in the same term.
    """
    store = Store(member.node.engine, options.boot_id)
    clock = SteadyClock.resumed(member.clock())
    coordinator = put_together(options, store, sockets, clock, directory, member)
    _log.info("primary at %s", options.listen)
    exempt_startup()
    try:
        with stop.waking(coordinator.stop):
            coordinator.serve()
        member.settle()
        member.leave()
    except GenerationPassed as passed:
        store.write_generation(passed.generation)
        raise
    finally:
        coordinator.close()  # callers are to look for the new primary
