"""Replicas as their processes have them, with a real etcd: which terms the owner hears of, what it may send."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardmq.bus.poller import context
from shardmq.replication.core.group import Group
from shardmq.replication.core.timing import LEASE_SECONDS
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Stored
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS, HOSTS, Host
from shardmq.replication.member import GroupMember, MemberOptions
from shardmq.runtime.clock import boottime
from shardmq.shards.storage.schema import STATE
from shardmq.shards.storage.store import Store
from tests.hosts.members import Etcd
from tests.replication.links.replicas import free_address
from tests.replication.moving import BROKER_ID, INSECURE, until

UNTICKED = 0.0
"""A turn at this time takes in what came, and neither sends beats nor campaigns."""


class Members:
    """Replicas of a group of one broker, in this process. The group begins with the first one."""

    def __init__(self, url: str, folder: Path, hosts: str) -> None:
        self._url = url
        self._folder = folder
        self._stack = ExitStack()
        self._addresses = {host: free_address() for host in hosts}
        register = BackgroundRegister(parse(url), "test")
        for host, address in self._addresses.items():
            register.change(HOSTS, host, lambda _, at=address: Host("s", {"shard-0/replica": at}))  # type: ignore[misc]
        register.change(GROUPS, "shard-0", lambda _: Group("f00d", 0, "", (hosts[0],), tuple(hosts)))
        stored: list[Stored] = []
        until(
            lambda: (
                stored.extend([each for each in register.take() if isinstance(each, Stored)])
                or len(stored) == len(hosts) + 1
            )
        )
        register.close()

    def start(self, host: str) -> GroupMember:
        engine, _ = Store.opened(self._folder / host / "shard-0")
        sockets = context(INSECURE)
        self._stack.callback(sockets.term)
        options = MemberOptions(self._url, host, "shard-0", BROKER_ID, self._addresses[host])
        member = GroupMember(options, engine, sockets)
        self._stack.callback(member.close)
        return member

    def close(self) -> None:
        self._stack.close()


def test_who_handed_over_before_it_served_leads_its_next_term_at_once(etcd: Etcd, tmp_path: Path) -> None:
    members = Members(f"{etcd.url}/handed-over", tmp_path, "a")
    member = members.start("a")
    assert member.node.on_leading is not None
    assert member.node.on_deposed is not None
    member.node.on_leading(7, True)  # with a wish that was there already: it hands over in the same turn
    member.node.on_deposed(7)
    assert member.follow(lambda: False)
    member.turn()  # raises no TermEnded: what it would end has just been loaded
    members.close()


@pytest.fixture
def pair(etcd: Etcd, tmp_path: Path) -> Iterator[tuple[GroupMember, GroupMember]]:
    """A primary and its follower, which is in sync."""
    members = Members(f"{etcd.url}/pair", tmp_path, "ab")
    primary, follower = members.start("a"), members.start("b")

    def is_in_sync() -> bool:
        primary.turn()
        follower.turn()
        group = primary.node.group
        return primary.node.may_answer(boottime()) and group is not None and len(group.in_sync) == 2

    until(is_in_sync)
    yield primary, follower
    members.close()


def test_what_all_replicas_have_is_not_sent_after_the_lease(pair: tuple[GroupMember, GroupMember]) -> None:
    primary, follower = pair
    sent: list[bytes] = []

    def commit(envelope: bytes) -> None:
        primary.node.engine.apply([(STATE, b"key", envelope)], len(envelope))
        primary.held.hold(sent.append, envelope)

    commit(b"in time")
    until(lambda: (primary.turn(), follower.turn(), sent)[-1])
    commit(b"late")
    index, flushed = primary.node.index, boottime()
    until(lambda: follower.node.turn(UNTICKED) or follower.node.index == index)  # type: ignore[func-returns-value]
    until(lambda: boottime() > flushed + LEASE_SECONDS)  # the primary's process is frozen, as it were
    until(lambda: primary.node.turn(UNTICKED) or primary.node.released == index)  # type: ignore[func-returns-value]
    assert primary.node.leads, "nobody told it of another one"
    assert not primary.release()
    assert sent == [b"in time"]
