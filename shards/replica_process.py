"""The process of a shard that has replicas on other hosts: it follows, becomes the primary in place, and follows again.

What a pass posts waits in the listener until the replicas in sync have what it rests on; passes go on meanwhile.
"""

import logging
import time

from shardmq.bus.curve import SHARD, Context, process_name
from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.bus.poller import Poller, context
from shardmq.bus.spinning import Spinning
from shardmq.replication.member import GroupMember, MemberOptions, TermEnded
from shardmq.replication.node.errors import NotPrimary
from shardmq.runtime.collection import exempt_startup
from shardmq.runtime.memory import keep_freed_blocks
from shardmq.runtime.signals import StopSignal
from shardmq.shards.loop import ShardLoop
from shardmq.shards.options import ShardOptions
from shardmq.shards.storage.key_check import KeyCheck
from shardmq.shards.storage.store import Store, meeting_damage
from shardmq.storage.versions import REPLICAS_SINCE

_log = logging.getLogger(__name__)


def run_replica(options: ShardOptions) -> None:
    """Be a replica of a shard until SIGTERM or SIGINT.

    Raises:
        StoreRefused: the store is not this replica's to open.
        StartupRefused: an address is invalid, not safe to use, or in use.
    """
    keep_freed_blocks()
    stop = StopSignal()
    sockets = context(options.security)
    engine, keys = Store.opened(options.data_dir / options.name, REPLICAS_SINCE)
    place = MemberOptions(options.join, options.host_name, options.name, options.broker, options.listen_replica)
    member = GroupMember(place, engine, sockets)
    while member.follow(lambda: stop.asked):
        try:
            _lead(options, member, keys, sockets, stop)
            break
        except (TermEnded, NotPrimary) as reason:
            _log.info("%s; it goes on as a follower", reason)
        member.end_term()  # here nothing refers to what the term had in memory
    member.leave()
    member.close()
    sockets.term()


def _lead(options: ShardOptions, member: GroupMember, keys: KeyCheck, sockets: Context, stop: StopSignal) -> None:
    """Serve as the primary, until asked to stop; then another replica leads, where there is one.

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
        member.leave()
    finally:
        listener.close()  # callers are to look for the new primary


def _serve(
    options: ShardOptions, member: GroupMember, store: Store, listener: Listener[ToShard], stop: StopSignal
) -> None:
    name = process_name(options.host_name, options.name)
    loop = ShardLoop(name, store, listener, options.memory_bytes, options.rss_bytes_max, options.disk_free_bytes_min)
    poller = member.poller([listener.socket])
    _log.info("primary at %s", options.listen)
    exempt_startup()
    member.node.on_handing_over = lambda: loop.hand_over(member.refusal)
    try:
        with meeting_damage():
            _carry_out_passes(member, loop, poller, stop)
        if member.has_heir:
            loop.hand_over(member.refusal)
        loop.stop()
    finally:
        member.node.on_handing_over = None
        loop.drop()
    member.settle()


def _carry_out_passes(member: GroupMember, loop: ShardLoop, poller: Poller, stop: StopSignal) -> None:
    """Carry out passes until asked to stop.

    Raises:
        TermEnded, NotPrimary: the term is over.
    """
    spinning = Spinning()
    while not stop.asked or member.is_paused:  # a transfer that is under way ends soon
        poller.wait(min(member.node.wait_seconds(), loop.wait_seconds()), spinning.awake_until)
        began = time.monotonic()
        has_sent = member.turn()
        if member.is_paused:
            continue
        loop.shut(member.refusal)
        loop.run_pass()
        if member.release() or has_sent:
            spinning.passed(began, time.monotonic(), loop.is_conversing)
