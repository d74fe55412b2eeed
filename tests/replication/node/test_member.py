"""A replica in its process, with a real etcd: which terms its owner hears of."""

from pathlib import Path

from shardmq.bus.poller import context
from shardmq.cmd.bench.compare.rabbitmq import free_ports
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Stored
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS, HOSTS, Host
from shardmq.replication.member import GroupMember, MemberOptions
from shardmq.shards.storage.store import Store
from tests.hosts.members import Etcd
from tests.replication.moving import BROKER_ID, INSECURE, until


def test_who_handed_over_before_it_served_leads_its_next_term_at_once(etcd: Etcd, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{next(iter(free_ports(1)))}"
    register = BackgroundRegister(parse(etcd.url), "test")
    register.change(HOSTS, "a", lambda _: Host("s", {"shard-0/replica": address}))
    register.change(GROUPS, "shard-0", lambda _: Group("f00d", 0, "", ("a",), ("a",)))
    stored: list[Stored] = []
    until(lambda: stored.extend([each for each in register.take() if isinstance(each, Stored)]) or len(stored) == 2)
    register.close()
    engine, _ = Store.opened(tmp_path / "shard-0")
    sockets = context(INSECURE)
    member = GroupMember(MemberOptions(etcd.url, "a", "shard-0", BROKER_ID, address), engine, sockets)
    assert member.node.on_leading is not None
    assert member.node.on_deposed is not None
    member.node.on_leading(7)  # with a wish that was there already: it hands over in the same turn
    member.node.on_deposed(7)
    assert member.follow(lambda: False)
    member.turn()  # raises no TermEnded: what it would end has just been loaded
    member.close()
    sockets.term()
