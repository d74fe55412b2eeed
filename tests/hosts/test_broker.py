"""A broker on three hosts, by the files of deploy/hosts: whatever happens to one, it goes on; nothing is lost."""

import itertools
import signal
import time
from collections.abc import Iterator

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.broker import confirmed, lines_of, sent_again
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.faults.nemesis import Nemesis
from tests.hosts.faults.run import Run
from tests.hosts.hosts import NAMES, Hosts
from tests.hosts.members import Process
from tests.hosts.pages import Operator, folders, is_restored
from tests.hosts.traffic import QUEUES
from tests.running import without

PAUSE_SECONDS = 10.0
"""Publishing stands still for no longer when a host is killed: 3 s, and what a machine adds that runs other tests."""


SEED, FAULTS = 32178, 4
"""A short round: a process is killed, one freezes, a host loses its power, two are cut off from one another."""


@pytest.fixture(scope="module")
def nemesis() -> Iterator[Nemesis]:
    """With hosts, and a broker on them that runs."""
    try:
        with Hosts(DeployedEtcd) as hosts:
            broker = DeployedBroker(hosts, "broker")
            nemesis = Nemesis(hosts, broker)
            try:
                broker.start(*NAMES)
                broker.make_user()
                yield nemesis
            finally:
                print(broker.last_words())
                nemesis.close()
    except Absent as reason:
        without(reason)


@pytest.fixture
def broker(nemesis: Nemesis) -> DeployedBroker:
    assert isinstance(nemesis.broker, DeployedBroker)
    return nemesis.broker


def goes_on(broker: DeployedBroker, publisher: Process) -> None:
    """Wait until a good many messages more are confirmed."""
    known = len(confirmed(publisher))
    broker.wait_for(lambda: len(confirmed(publisher)) > known + 200, "publishing goes on")


def check(broker: DeployedBroker, publisher: Process) -> None:
    """End the publisher; nothing is lost, nothing came from nowhere, and it never stood still for long."""
    publisher.signal(signal.SIGTERM)
    broker.wait_for(lambda: publisher.has_ended, "the publisher ends")
    assert lines_of(publisher)[-1] == ["done"], publisher.last_words()
    times = [at for _, at in confirmed(publisher)]
    sent = {number for number, _ in confirmed(publisher)}
    found = broker.drained(sent_again(publisher))
    assert sent <= found, f"{len(sent - found)} confirmed messages are lost"
    assert found <= {*range(max(sent) + 2)}
    pause, began = max((later - before, before) for before, later in itertools.pairwise(times))
    when = time.strftime("%T", time.gmtime(began))
    assert pause < PAUSE_SECONDS, f"it stood still for {pause:.1f} s from {when} on"


def test_hosts_are_killed_and_hand_over_while_publishing_goes_on(broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    rows = {row["host"]: row for row in broker.told("host", "list")}
    assert {name: row["leads"] for name, row in rows.items()} == dict.fromkeys(NAMES, 1)
    assert {name: row["replicas"] for name, row in rows.items()} == dict.fromkeys(NAMES, 2)
    publisher = broker.client("publish")
    broker.wait_for(lambda: len(confirmed(publisher)) > 50, "messages are confirmed")

    before = broker.group("shard-1")
    (other,) = {*before["in_sync"]} - {before["primary"]}
    term = broker.told("shard", "transfer", "shard-1", other)["term"]
    assert term == before["term"] + 1
    goes_on(broker, publisher)

    broker.wait_for(broker.is_whole, "who handed over is in sync again")
    victim = broker.group("shard-0")["primary"]
    broker.kill(victim)
    broker.wait_for(lambda: broker.group("shard-0")["primary"] != victim, "another host leads")
    goes_on(broker, publisher)
    broker.start(victim)
    broker.wait_for(broker.is_whole, "the host is in sync again")
    check(broker, publisher)


def test_a_host_stops_and_a_disaster_loses_what_the_page_says_and_all_is_made_whole_again(
    broker: DeployedBroker,
) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    late = broker.group("coordinator")["primary"]
    shard = next(name for name in ("shard-0", "shard-1") if late in broker.group(name)["replicas"])
    (lost,) = {*broker.group(shard)["replicas"]} - {late}
    (third,) = {*NAMES} - {lost, late}
    operator = Operator(broker, {"a": third, "b": lost, "c": late, "shard-0": shard} | folders(broker))
    operator.does("Backup")
    assert is_restored(broker)

    publisher = broker.client("publish")
    broker.wait_for(lambda: len(confirmed(publisher)) > 50, "messages are confirmed")
    older = {number for number, _ in confirmed(publisher)}
    broker.stop(late)
    assert broker.group("coordinator")["primary"] == third
    assert broker.group(shard)["state"] == f"alone; not in sync: {late}"
    goes_on(broker, publisher)
    publisher.signal(signal.SIGTERM)
    broker.wait_for(lambda: publisher.has_ended, "the publisher ends")
    broker.kill(lost)
    *_, said = operator.does("All copies in sync are lost")
    assert f"confirmed messages of {shard} that only {lost} has are lost for good" in said
    assert "is to be elected unclean" in broker.last_words()

    sent = {number for number, _ in confirmed(publisher)}
    missing = sent - broker.drained(sent_again(publisher))
    assert missing
    assert not missing & older, "what the elected one had is there"
    assert len({QUEUES[number % len(QUEUES)] for number in missing}) < len(QUEUES), "other shards lose nothing"

    operator.does("A host is lost")
    assert [row["host"] for row in broker.told("host", "list")] == sorted({*NAMES} - {lost})
    operator.does("A disk is lost")
    broker.wait_for(
        lambda: broker.is_whole() and {row["replicas"] for row in broker.told("host", "list")} == {2},
        "replicas are spread over three hosts again",
    )


def test_overlapping_faults_lose_and_invent_nothing_and_replicas_are_equal_afterwards(nemesis: Nemesis) -> None:
    """The short form of `make hosts-faults`: the hosts are dead after it."""
    nemesis.heal()
    nemesis.broker.wait_for(nemesis.has_healed, "all hosts run")
    outcome = Run(SEED, print).befall(nemesis, FAULTS, is_short=True)
    assert not outcome.wrongs, "\n".join(outcome.lines())
