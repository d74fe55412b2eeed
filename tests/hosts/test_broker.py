"""A broker on three hosts, by the files of deploy/hosts: whatever happens to one, it goes on; nothing is lost."""

import random
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run.hosts.identity import identity_of
from shardmq.cmd.run.invocation import command
from tests.docs.document import documents
from tests.hosts.broker import SHARDS, confirmed, sent_again
from tests.hosts.clients.programs import PAGE as PROGRAMS_PAGE
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.document import documented, typed
from tests.hosts.faults.nemesis import Nemesis
from tests.hosts.faults.run import Run
from tests.hosts.faults.schedule import draw
from tests.hosts.hosts import CLIENT, NAMES, Hosts
from tests.hosts.pages import REPLICAS, Operator, folders, is_restored
from tests.hosts.publishing import check, end, goes_on, publishing
from tests.hosts.traffic import QUEUES
from tests.running import without

WAIT_SECONDS = 120

UNTYPED = {
    ("docs/operations/replicas.md", "export SHARDMQ_JOIN"): "the unit has it in hosts.env",
    (
        "docs/operations/replicas.md",
        "shardmq up",
    ): "the unit starts it; `make hosts-faults` types this",
}
"""Beginnings of lines of pages that are not typed here, and why."""

SEED, FAULTS = 1782464, 8
"""Two short rounds: a host freezes, the disk of another stalls until that is killed, a process freezes; then one is
killed, most of etcd freezes, two hosts are cut off one way, and one loses its power."""


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


def test_hosts_are_killed_and_hand_over_while_publishing_goes_on(broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    rows = {row["host"]: row for row in broker.told("host", "list")}
    assert {name: row["leads"] for name, row in rows.items()} == dict.fromkeys(NAMES, 1)
    assert {name: row["replicas"] for name, row in rows.items()} == dict.fromkeys(NAMES, 2)
    publisher = publishing(broker)

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


def test_a_stalled_disk_takes_the_lead_away_and_nothing_else(nemesis: Nemesis, broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    before = broker.group("shard-0")
    _, go_on = nemesis.begin(replace(draw(random.Random(SEED), "stalled disk"), host=before["primary"]))
    broker.wait_for(lambda: broker.group("shard-0")["primary"] != before["primary"], "another host leads")
    goes_on(broker, publisher)
    go_on()
    broker.wait_for(broker.is_whole, "who stalled is in sync again")
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

    publisher = publishing(broker)
    older = {number for number, _ in confirmed(publisher)}
    broker.stop(late)
    assert broker.group("coordinator")["primary"] == third
    assert broker.group(shard)["state"] == f"alone; not in sync: {late}"
    goes_on(broker, publisher)
    end(broker, publisher)
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


def test_replicas_move_a_host_is_drained_and_shards_are_added_while_publishing_goes_on(
    nemesis: Nemesis, broker: DeployedBroker
) -> None:
    publisher = publishing(broker)
    before = broker.group("shard-0")
    (target,) = {*NAMES} - {*before["replicas"]}
    source = before["primary"]
    assert broker.told("shard", "move", "shard-0", source, target, "--wait", str(WAIT_SECONDS))["done"]
    assert {*broker.group("shard-0")["replicas"]} == {*NAMES} - {source}
    goes_on(broker, publisher)

    assert broker.told("host", "drain", target, "--wait", str(WAIT_SECONDS))["replicas"] == 0
    assert broker.is_whole()
    goes_on(broker, publisher)
    broker.told("host", "drain", target, "--undo")

    for words in (*documented("host", {}), *documented("shard list", {}), *documented("shard add", {"2": "1"})):
        done = broker.on(CLIENT, *command(*words))
        assert done.returncode == 0, done.stderr
    nemesis.operators.shards += 1
    broker.wait_for(lambda: broker.group(f"shard-{SHARDS}")["state"] == "whole", "the shard that was added is whole")
    goes_on(broker, publisher)
    check(broker, publisher)


def test_a_gateway_and_a_shard_are_started_alone(broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    host = broker.group("shard-0")["primary"]
    identity = identity_of(broker.data_dir(host))
    assert identity is not None
    broker.kill(host)
    broker.wait_for(lambda: host not in broker.group("shard-0")["in_sync"], "another host leads")
    folders = {"keys": "keys", "keys/d": "keys/d", "keys/a": f"keys/{host}", "data": host}
    names = {name: str(broker.folder / folder) for name, folder in folders.items()}
    own = broker.hosts[CLIENT].address
    names |= {
        "a": host,
        "10.0.0.4": own,
        "BROKER": identity.broker,
        "tcp://10.0.0.1": f"tcp://{broker.hosts[host].address}",
    }
    operator = Operator(broker, names | {"4": str(SHARDS)}, REPLICAS)
    operator.does("Processes alone")
    gateway, shard = operator.started
    broker.wait_for(lambda: host in broker.group("shard-0")["in_sync"], "the shard is in sync")

    url = f"shardmq://app:secret@{own}/"
    broker.wait_for(lambda: broker.on(CLIENT, *command("queue", "list", "--url", url)).returncode == 0, "it serves")
    for process in (gateway, shard):
        process.signal(signal.SIGTERM)
        broker.wait_for(lambda process=process: process.has_ended, "it stops")
    broker.start(host)


def test_all_hosts_stop_and_start_and_what_was_confirmed_is_there(broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    end(broker, publisher)
    etcd = broker.hosts.etcd
    assert isinstance(etcd, DeployedEtcd)
    assert "/orders/groups/shard-0" in "".join(etcd.looked_at())
    assert (etcd.folder / "etcd.snapshot").stat().st_size
    Operator(broker, {"a": broker.group("shard-1")["primary"]}).does("Upgrades, and whatever else needs a stop")
    broker.wait_for(broker.is_whole, "all groups are whole again")
    check(broker, publisher)


def test_etcd_is_restored_from_a_snapshot_and_what_was_confirmed_is_there(broker: DeployedBroker) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    end(broker, publisher)
    etcd = broker.hosts.etcd
    assert isinstance(etcd, DeployedEtcd)
    (etcd.folder / "etcd.snapshot").unlink(missing_ok=True)
    etcd.looked_at()
    for name in NAMES:  # all stand before any is killed: nobody is elected whom the snapshot does not know
        broker.hosts[name].freeze()
    for name in NAMES:
        broker.kill(name)
    etcd.restored()
    broker.start(*NAMES)
    broker.wait_for(broker.is_whole, "all groups are whole again")
    check(broker, publisher)


def test_every_line_of_the_pages_was_typed(request: pytest.FixtureRequest) -> None:
    """What tests/hosts/clients runs, all programs of a page, is seen there."""
    of_this_file = [item for item in request.session.items if item.path == request.path]
    if len(of_this_file) < len([name for name in globals() if name.startswith("test_")]):
        pytest.skip("only some of the tests run")
    lines = [
        (document.name, line)
        for document in documents()
        if document.path != PROGRAMS_PAGE
        for block in document.blocks
        if block.tool == "Hosts"
        for line in block.code.splitlines()
    ]
    left = [(page, line) for page, line in lines if line not in typed]
    assert {(page, line.split("=")[0].split(" --")[0]) for page, line in left} == UNTYPED.keys()


def test_overlapping_faults_lose_and_invent_nothing_and_replicas_are_equal_afterwards(nemesis: Nemesis) -> None:
    """The short form of `make hosts-faults`: the hosts are dead after it."""
    nemesis.heal()
    nemesis.broker.wait_for(nemesis.has_healed, "all hosts run")
    outcome = Run(SEED, print).befall(nemesis, FAULTS, is_short=True)
    assert not outcome.wrongs, "\n".join(outcome.lines())
