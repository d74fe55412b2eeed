"""The register on a thread of its own: what is asked of it comes back as news, and wakes the loop."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from shardmq.bus.poller import Poller
from shardmq.replication.core.events import GroupRead, GroupSeen, ReadLost, SwapLost, Swapped, SwapRefused
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import ANSWER_SECONDS, BackgroundRegister
from shardmq.replication.etcd.errors import Unreachable
from shardmq.replication.etcd.messages import delete_request, put_request
from shardmq.replication.etcd.news import Failed, ForGroup, Listed, News, Seen, Stored
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, Broker, Host
from shardmq.replication.etcd.watching import looks
from tests.hosts.members import Etcd
from tests.ports import free_ports

from .cutting import CuttingProxy
from .loop import SECONDS, Asker

FIRST = Group("f00d", 0, "", ("a", "b"), ("a", "b"))
SECOND = Group("f00d", 1, "a", ("a", "b"), ("a", "b"))
THIRD = Group("f00d", 2, "b", ("b",), ("a", "b"))

Item = TypeVar("Item", bound=News)


class Owner:
    """A loop that waits for news alone."""

    def __init__(self, url: str, session: str) -> None:
        self.register = BackgroundRegister(parse(url), session)
        self._poller = Poller([self.register.fileno()])
        self._news: list[News] = []

    def next(self, kind: type[Item], fits: Callable[[Item], bool] = lambda _: True) -> Item:
        """The next news of a kind; what came with it stays for later."""
        deadline = time.monotonic() + SECONDS
        while True:
            for item in self._news:
                if isinstance(item, kind) and fits(item):
                    self._news.remove(item)
                    return item
            assert self._poller.wait(deadline - time.monotonic()), f"no {kind.__name__} came"
            self._news += self.register.take()

    def event(self, kind: type[Any]) -> Any:
        """The next event of a kind for a group."""
        return self.next(ForGroup, lambda item: isinstance(item.event, kind)).event


@contextmanager
def owner(url: str, session: str = "s") -> Iterator[Owner]:
    owner = Owner(url, session)
    try:
        yield owner
    finally:
        owner.register.close()


def created(owner: Owner, name: str, value: Group = FIRST) -> Entry[Group]:
    owner.register.create(GROUPS, name, value)
    stored = owner.next(Stored)
    assert stored.changed
    return stored.entry


def test_a_group_is_read_swapped_and_seen(etcd: Etcd) -> None:
    with owner(f"{etcd.url}/group") as one, owner(f"{etcd.url}/group", "t") as other:
        first = created(one, "shard-0")
        other.register.watch_group("shard-0")
        assert other.event(GroupSeen) == GroupSeen(first.revision, FIRST)
        one.register.read("shard-0")
        assert one.next(ForGroup) == ForGroup("shard-0", GroupRead(first.revision, FIRST))
        one.register.swap("shard-0", first.revision, SECOND)
        second = one.event(Swapped)
        assert other.event(GroupSeen) == GroupSeen(second.revision, SECOND)
        other.register.swap("shard-0", first.revision, THIRD)
        assert other.event(SwapRefused) == SwapRefused(second.revision, SECOND)
        one.register.read("shard-1")
        assert one.next(ForGroup) == ForGroup("shard-1", ReadLost())
        assert one.register.take() == []
        with pytest.raises(ValueError, match="the in-sync set is empty"):
            one.register.swap("shard-0", second.revision, Group("f00d", 1, "", (), ()))


def test_a_swap_whose_answer_was_lost_is_lost_until_it_was_read(etcd: Etcd) -> None:
    with CuttingProxy(etcd.members[0].port) as proxy, owner(f"etcd://127.0.0.1:{proxy.port}/lost") as one:
        first = created(one, "g")
        proxy.loses = "answers"
        one.register.swap("g", first.revision, SECOND)
        one.event(SwapLost)
        proxy.loses = ""
        one.register.read("g")
        found = one.event(GroupRead)
        assert found.group == SECOND
        one.register.swap("g", found.revision, THIRD)
        one.event(Swapped)


def test_whoever_asks_while_etcd_is_away_is_told_in_time() -> None:
    with owner(f"etcd://127.0.0.1:{free_ports(1)[0]}") as one:
        one.register.watch(GROUPS)
        began = time.monotonic()
        one.register.read("g")
        one.register.swap("g", 7, SECOND)
        one.register.change(HOSTS, "a", lambda _: Host("1"), seconds=0.5)
        failed = one.next(Failed)
        assert isinstance(failed.error, Unreachable)
        one.event(ReadLost)
        one.event(SwapLost)
        assert time.monotonic() - began < ANSWER_SECONDS + 2.0
        assert one.register.confirmed == 0.0


def test_a_fault_is_told_and_passes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(looks, "READ_SECONDS", 0.3)
    with Etcd(size=1) as alone, owner(alone.url) as one:
        one.register.watch(GROUPS)
        assert one.next(Seen).entries == ()
        deadline = time.monotonic() + SECONDS
        while one.register.fault:  # a slow machine may have let the first 0.3 s pass
            assert time.monotonic() < deadline
            one.register.wait(0.05)
        alone.members[0].kill()
        while not one.register.fault:
            assert time.monotonic() < deadline
            one.register.wait(0.05)
        assert "no answer from etcd" in one.register.fault
        confirmed = one.register.confirmed
        alone.members[0].start()
        created(one, "g")
        one.next(Seen, lambda seen: bool(seen.entries))
        while one.register.fault or one.register.confirmed == confirmed:
            assert time.monotonic() < deadline
            one.register.wait(0.05)
    said = [record.message for record in caplog.records if record.name.endswith("background")]
    assert "until it answers, nothing changes about who is primary" in said[0]
    assert said[-1] == "etcd answers again"


def test_whatever_several_change_at_once_is_all_there(etcd: Etcd) -> None:
    url = f"{etcd.url}/changes"
    with owner(url, "1") as one, owner(url, "2") as other, owner(url, "3") as third:
        created(one, "g")
        owners = (one, other, third)
        names = [f"h{number}" for number in range(12)]

        def added(name: str) -> Callable[[Group | None], Group | None]:
            return lambda group: group.with_replica(name) if group and name not in group.replicas else None

        for place, name in enumerate(names):
            owners[place % 3].register.change(GROUPS, "g", added(name))
        stored = [owners[place % 3].next(Stored) for place in range(len(names))]
        assert all(item.changed for item in stored)
        one.register.change(GROUPS, "g", added("h0"))
        last = one.next(Stored)
        assert not last.changed
        assert sorted(last.entry.value.replicas) == sorted(["a", "b", *names])
        assert len({item.entry.revision for item in stored}) == len(names)


@pytest.mark.parametrize("loses", ["answers", "requests"])
def test_a_change_whose_answer_was_lost_is_made_once(etcd: Etcd, loses: str) -> None:
    with CuttingProxy(etcd.members[0].port) as proxy, owner(f"etcd://127.0.0.1:{proxy.port}/once-{loses}") as one:
        created(one, "g", SECOND)
        proxy.loses = loses
        terms: list[int] = []

        def next_term(group: Group | None) -> Group | None:
            assert group is not None
            terms.append(group.term)
            if len(terms) > 1:
                proxy.loses = ""
            return group.transferred("b")

        one.register.change(GROUPS, "g", next_term)
        if loses == "answers":
            while not proxy.cuts:
                one.register.wait(0.01)
            proxy.loses = ""
        stored = one.next(Stored)
        assert stored.changed
        assert stored.entry.value.term == 2
        assert terms == [1] if loses == "answers" else [1, 1]


def test_one_creates_the_broker_and_all_learn_which(etcd: Etcd) -> None:
    url = f"{etcd.url}/birth"
    with owner(url, "1") as one, owner(url, "2") as other:
        one.register.create(BROKER, "", Broker("one", 4, 2))
        other.register.create(BROKER, "", Broker("other", 4, 2))
        stored = [one.next(Stored), other.next(Stored)]
        assert sorted(item.changed for item in stored) == [False, True]
        assert stored[0].entry == stored[1].entry


def test_hosts_are_seen_come_and_go(etcd: Etcd, asker: Asker) -> None:
    url = f"{etcd.url}/hosts"
    with owner(url, "1") as one, owner(url, "2") as other:
        one.register.watch(HOSTS)
        assert one.next(Seen).entries == ()
        other.register.put_host("a", Host("1", {"gateway": "10.0.0.1:5672"}))
        assert [entry.value for entry in one.next(Seen).entries] == [Host("1", {"gateway": "10.0.0.1:5672"})]
        other.register.put_host("a", Host("2"))
        assert [entry.value for entry in one.next(Seen).entries] == [Host("2")]
        one.register.watch(HOSTS)
        assert [entry.value for entry in one.next(Seen).entries] == [Host("2")]
        asker.ask(put_request(b"/hosts/hosts/ill", b"{}"))
        one.register.list(HOSTS)
        assert "/hosts/hosts/ill" in str(one.next(Failed).error)
        asker.ask(delete_request(b"/hosts/hosts/ill", asker.ask(put_request(b"/hosts/hosts/ill", b"")).header.revision))
        other.register.remove(HOSTS, "a")
        assert other.next(Stored, lambda item: item.entry.value is None).changed
        assert one.next(Seen, lambda seen: any(entry.name == "a" for entry in seen.entries)).entries[0].value is None
        other.register.remove(HOSTS, "a")
        assert not other.next(Stored, lambda item: item.entry.value is None).changed
        one.register.list(HOSTS)
        assert one.next(Listed).entries == ()


def test_an_event_loop_is_woken(etcd: Etcd) -> None:
    async def read() -> list[News]:
        register = BackgroundRegister(parse(f"{etcd.url}/loop"), "s")
        news: asyncio.Future[list[News]] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(register.fileno(), lambda: news.set_result(register.take()))
        try:
            register.read("g")
            return await asyncio.wait_for(news, SECONDS)
        finally:
            asyncio.get_running_loop().remove_reader(register.fileno())
            register.close()

    assert asyncio.run(read()) == [ForGroup("g", ReadLost())]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_the_thread_ends_its_owner(etcd: Etcd) -> None:
    with owner(f"{etcd.url}/error") as one:
        one.register.change(GROUPS, "g", lambda _: FIRST.shrunk("a").shrunk("b"))
        with pytest.raises(RuntimeError, match="the thread that asks etcd has ended"):
            one.next(Stored)
