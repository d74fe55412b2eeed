"""The process of a shard that has replicas on other hosts: it follows, becomes the primary in place, and ends with it.

What a pass posts waits in the listener until the replicas in sync have what it rests on; passes go on meanwhile.
"""

import logging
import time

from shardmq.bus.curve import SHARD, Context, process_name
from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.bus.poller import context
from shardmq.bus.spinning import Spinning
from shardmq.replication.member import GroupMember, MemberOptions, TermEnded
from shardmq.replication.node.errors import NotPrimary
from shardmq.runtime import notify
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.signals import StopSignal
from shardmq.shards.loop import ShardLoop
from shardmq.shards.options import ShardOptions
from shardmq.shards.storage.key_check import KeyCheck
from shardmq.shards.storage.store import Store

_log = logging.getLogger(__name__)


def run_replica(options: ShardOptions) -> None:
    """Be a replica of a shard until SIGTERM or SIGINT, or until a term that it led is over.

    Raises:
        SystemExit: that term is over, with `notify.REPLICA_ENDED`.
        StoreRefused: the store is not this replica's to open.
        StartupRefused: an address is invalid, not safe to use, or in use.
    """
    stop = StopSignal()
    sockets = context(options.security)
    engine, keys = Store.opened(options.data_dir / options.name)
    place = MemberOptions(options.join, options.host_name, options.name, options.broker, options.listen_replica)
    member = GroupMember(place, engine, sockets)
    ended = ""
    try:
        if member.follow(lambda: stop.asked, notify.ready):
            _lead(options, member, keys, sockets, stop)
        notify.stopping()
        member.leave()
    except (TermEnded, NotPrimary) as reason:
        ended = str(reason)
    member.close()
    sockets.term()
    if ended and not stop.asked:
        _log.info("%s; it starts again as a follower", ended)
        raise SystemExit(notify.REPLICA_ENDED)


def _lead(options: ShardOptions, member: GroupMember, keys: KeyCheck, sockets: Context, stop: StopSignal) -> None:
    """Serve as the primary, until asked to stop.

    Raises:
        TermEnded, NotPrimary: the term is over.
    """
    engine = member.node.engine
    store = Store(engine, options.index, keys.check(engine), member.clock())
    name = process_name(options.host_name, options.name)
    listener: Listener[ToShard] = Listener(sockets, options.listen, SHARD, name, ToShard)
    listener.held = member.held
    member.ends.append(listener.end_all)
    try:
        _serve(options, member, store, listener, stop)
    finally:
        listener.close()  # callers are to look for the new primary


def _serve(
    options: ShardOptions, member: GroupMember, store: Store, listener: Listener[ToShard], stop: StopSignal
) -> None:
    name = process_name(options.host_name, options.name)
    loop = ShardLoop(name, store, listener, options.memory_bytes, options.rss_bytes_max, options.disk_free_bytes_min)
    spinning = Spinning(member.poller([listener.socket]))
    _log.info("primary at %s", options.listen)
    exempt_startup()
    while not stop.asked:
        spinning.wait(min(member.node.wait_seconds(), loop.wait_seconds()))
        began = time.monotonic()
        has_sent = member.turn()
        if member.is_paused:
            continue
        loop.shut(member.refusal)
        loop.run_pass()
        if member.release() or has_sent:
            spinning.passed(began, time.monotonic(), loop.is_conversing)
    loop.stop()
    member.settle()
