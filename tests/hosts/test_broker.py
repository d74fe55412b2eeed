"""A broker on three hosts, started by the documented commands: whatever happens to one, it goes on; nothing is lost."""

import itertools
import signal
import time
from collections.abc import Iterator

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.broker import HostsBroker, confirmed, lines_of, sent_again
from tests.hosts.hosts import NAMES, Hosts
from tests.hosts.members import Process
from tests.running import without

PAUSE_SECONDS = 10.0
"""Publishing stands still for no longer when a host is killed: 3 s, and what a machine adds that runs other tests."""


@pytest.fixture(scope="module")
def broker() -> Iterator[HostsBroker]:
    try:
        with Hosts() as hosts:
            broker = HostsBroker(hosts, "broker")
            try:
                broker.start(*NAMES)
                broker.make_user()
                yield broker
            finally:
                print(broker.last_words())
    except Absent as reason:
        without(reason)


def goes_on(broker: HostsBroker, publisher: Process) -> None:
    """Wait until a good many messages more are confirmed."""
    known = len(confirmed(publisher))
    broker.wait_for(lambda: len(confirmed(publisher)) > known + 200, "publishing goes on")


def check(broker: HostsBroker, publisher: Process) -> None:
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


def test_hosts_are_killed_and_stop_and_hand_over_while_publishing_goes_on(broker: HostsBroker) -> None:
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

    victim = broker.group("shard-0")["primary"]
    broker.kill(victim)
    broker.wait_for(lambda: broker.group("shard-0")["primary"] != victim, "another host leads")
    goes_on(broker, publisher)
    broker.start(victim)
    broker.wait_for(broker.is_whole, "the host is in sync again")

    leaver = broker.group("coordinator")["primary"]
    broker.ups[leaver].signal(signal.SIGTERM)
    broker.wait_for(lambda: broker.ups[leaver].has_ended, "the host stops")
    assert broker.group("coordinator")["primary"] != leaver
    goes_on(broker, publisher)
    check(broker, publisher)
