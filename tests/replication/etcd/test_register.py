"""The register: one swap takes effect, lost answers are resolved by reading, unreadable values are named."""

import pytest

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import UnreadableValue
from shardmq.replication.etcd.messages import put_request, range_request
from shardmq.replication.etcd.register import Entry, NotSwapped, Register, Swapped, SwapUnknown, Verdict
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, Broker, Host
from shardmq.runtime.clock import boottime
from tests.hosts.members import Etcd

from .cutting import CuttingProxy
from .loop import SECONDS, Asker, run

FIRST = Group("f00d", 0, "", ("a", "b"), ("a", "b"))
SECOND = Group("f00d", 1, "a", ("a", "b"), ("a", "b"))
THIRD = Group("f00d", 2, "b", ("b",), ("a", "b"))


def read(asker: Asker, register: Register, name: str) -> Entry[Group]:
    entry = asker.outcome(lambda done: register.read(GROUPS, name, boottime() + SECONDS, done))
    assert isinstance(entry, Entry)
    return entry


def swap(asker: Asker, register: Register, entry: Entry[Group], value: Group, seconds: float = SECONDS) -> object:
    return asker.outcome(lambda done: register.swap(GROUPS, entry, value, boottime() + seconds, done))


def created(asker: Asker, register: Register, name: str) -> Entry[Group]:
    outcome = swap(asker, register, Entry(name, None, 0), FIRST)
    assert isinstance(outcome, Swapped)
    return outcome.entry


def test_a_swap_takes_effect_if_nobody_wrote_since(asker: Asker) -> None:
    register = Register(asker.client, "swaps", "s")
    assert read(asker, register, "shard-0") == Entry("shard-0", None, 0)
    first = created(asker, register, "shard-0")
    assert read(asker, register, "shard-0") == first
    second = swap(asker, register, first, SECOND)
    assert isinstance(second, Swapped)
    late = swap(asker, register, first, THIRD)
    assert late == NotSwapped(second.entry)
    assert isinstance(swap(asker, register, Entry("shard-0", None, 0), FIRST), NotSwapped)


def test_the_broker_its_hosts_and_groups_are_listed(asker: Asker) -> None:
    register = Register(asker.client, "lists", "s")
    deadline = boottime() + SECONDS
    broker = Entry("", None, 0)
    assert isinstance(
        asker.outcome(lambda done: register.swap(BROKER, broker, Broker("id", 4, 2), deadline, done)), Swapped
    )
    for name in "ba":
        host = Entry(name, None, 0)
        asker.outcome(lambda done, host=host: register.swap(HOSTS, host, Host("1"), deadline, done))
    hosts = asker.outcome(lambda done: register.read_all(HOSTS, deadline, done))
    assert isinstance(hosts, list)
    assert [(entry.name, entry.value) for entry in hosts] == [("a", Host("1")), ("b", Host("1"))]
    found = asker.outcome(lambda done: register.read(BROKER, "", deadline, done))
    assert isinstance(found, Entry)
    assert found.value == Broker("id", 4, 2)


@pytest.mark.parametrize(("loses", "verdict"), [("answers", Verdict.TOOK_EFFECT), ("requests", Verdict.OPEN)])
def test_a_lost_answer_is_unknown_until_it_was_read_again(etcd: Etcd, loses: str, verdict: Verdict) -> None:
    with CuttingProxy(etcd.members[0].port) as proxy, Asker(f"etcd://127.0.0.1:{proxy.port}") as asker:
        register = Register(asker.client, f"lost-{loses}", "s")
        first = created(asker, register, "g")
        proxy.loses = loses
        unknown = swap(asker, register, first, SECOND)
        assert isinstance(unknown, SwapUnknown)
        with pytest.raises(RuntimeError, match="unknown, and it was not read since"):
            swap(asker, register, first, THIRD)
        proxy.loses = ""
        found = read(asker, register, "g")
        assert unknown.verdict(found) is verdict
        assert isinstance(swap(asker, register, found, THIRD), Swapped)
        assert unknown.verdict(read(asker, register, "g")) is Verdict.OVERTAKEN


def test_a_swap_may_take_effect_long_after_it_was_given_up(etcd: Etcd, asker: Asker) -> None:
    register = Register(asker.client, "ghosts", "s")
    with CuttingProxy(etcd.members[0].port) as proxy, Asker(f"etcd://127.0.0.1:{proxy.port}") as there:
        late = Register(there.client, "ghosts", "late")
        entries = {name: created(there, late, name) for name in ("moved", "kept")}
        proxy.loses = "time"
        unknown = {name: swap(there, late, entry, SECOND, seconds=0.1) for name, entry in entries.items()}
        found = {name: read(asker, register, name) for name in entries}
        for name, outcome in unknown.items():
            assert isinstance(outcome, SwapUnknown)
            assert outcome.verdict(found[name]) is Verdict.OPEN
        # Whoever writes the key once more closes the door.
        assert isinstance(swap(asker, register, found["moved"], THIRD), Swapped)
        proxy.release()
        asker.until(lambda: read(asker, register, "kept").value == SECOND)
        verdicts = {name: outcome.verdict(read(asker, register, name)) for name, outcome in unknown.items()}
        assert verdicts == {"moved": Verdict.OVERTAKEN, "kept": Verdict.TOOK_EFFECT}


def test_an_unreadable_value_is_named_and_does_not_stop_the_others(asker: Asker) -> None:
    register = Register(asker.client, "damage", "s")
    created(asker, register, "well")
    asker.ask(put_request(b"/damage/groups/ill", b'{"term":"x"}'))
    told: list[object] = []
    watcher = register.watch(GROUPS, told.extend)
    asker.until(lambda: told)
    watcher.close()
    ill, well = sorted(told, key=lambda one: isinstance(one, Entry))
    assert isinstance(well, Entry)
    assert isinstance(ill, UnreadableValue)
    assert ill.key == "/damage/groups/ill"
    for outcome in (
        asker.outcome(lambda done: register.read_all(GROUPS, boottime() + SECONDS, done)),
        asker.outcome(lambda done: register.read(GROUPS, "ill", boottime() + SECONDS, done)),
        swap(asker, register, Entry("ill", None, 0), FIRST),
    ):
        assert isinstance(outcome, UnreadableValue)
        assert "the value of /damage/groups/ill in etcd is no group" in str(outcome)


def test_one_name_takes_one_swap_at_a_time(etcd: Etcd) -> None:
    client = EtcdClient(parse(etcd.url))
    try:
        register = Register(client, "single", "s")
        outcomes: list[object] = []
        register.swap(GROUPS, Entry("g", None, 0), FIRST, boottime() + SECONDS, outcomes.append)
        with pytest.raises(RuntimeError, match="under way"):
            register.swap(GROUPS, Entry("g", None, 0), FIRST, boottime() + SECONDS, outcomes.append)
        with pytest.raises(ValueError, match="'a/b' is no name"):
            register.read(GROUPS, "a/b", boottime() + SECONDS, outcomes.append)
        run([client], lambda: outcomes)
        assert isinstance(outcomes[0], Swapped)
    finally:
        client.close()


def test_values_are_written_below_the_prefix_for_people_to_read(asker: Asker) -> None:
    created(asker, Register(asker.client, "a/b", "s"), "shard-0")
    kv = asker.ask(range_request(b"/a/b/groups/shard-0")).kvs[0]
    assert kv.value.startswith(b'{"incarnation": "f00d", "term": 0, ')
