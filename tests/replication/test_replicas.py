"""Three replica processes of each group, with a real etcd: primaries are killed, frozen and deposed under clients."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.main import run
from shardmq.management.findings.rules.replicas import REMEDIES
from tests.conftest import StartBroker
from tests.e2e.traffic import bodies
from tests.faults.ledgers import Client, Consumer, Ledger, Publisher
from tests.hosts.members import Etcd
from tests.management.managing import confirm, fill_in
from tests.management.window import Page
from tests.running import backed_up

from .moving import until, until_passes
from .replicated import ReplicatedBroker
from .test_moves import publishes
from .watched import Watched, look_at_page


@pytest.fixture(scope="module")
def broker(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedBroker]:
    with ReplicatedBroker(tmp_path_factory.mktemp("replicated"), etcd.url, "replicated") as broker:
        yield broker


def confirm_more(ledger: Ledger, count: int = 300) -> None:
    end = len(ledger.confirmed) + count
    until(lambda: len(ledger.confirmed) >= end)


def test_nothing_confirmed_is_lost_as_primaries_are_killed_frozen_and_moved(broker: ReplicatedBroker) -> None:
    ledger = Ledger()
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.exchange_declare("all", "fanout", durable=True)
        channel.queue_declare("kept", durable=True)
        channel.queue_bind("kept", "all")
    publishers = [Publisher(broker.url, ledger, f"p-{number}", "all") for number in range(2)]
    clients: list[Client] = [*publishers, Consumer(broker.url, ledger, "c", "kept")]
    for client in clients:
        client.start()
    confirm_more(ledger)

    killed, term = broker.primary("shard-0"), broker.group("shard-0").term
    killed.kill()
    broker.until_led_by_another("shard-0", term)
    confirm_more(ledger)
    killed.restart()
    until(lambda: len(broker.group("shard-0").in_sync) == 3)

    frozen, term = broker.primary("shard-0"), broker.group("shard-0").term
    process, exits = frozen.process, list(frozen.exits)
    process.send_signal(signal.SIGSTOP)
    broker.until_led_by_another("shard-0", term)
    confirm_more(ledger)
    frozen.process.send_signal(signal.SIGCONT)
    until(lambda: len(broker.group("shard-0").in_sync) == 3)
    assert (frozen.process, frozen.exits) == (process, exits), "a deposed primary follows in its own process"

    term = broker.group("shard-0").term
    other = next(host for host in broker.hosts if host != broker.group("shard-0").primary)
    broker.wish("shard-0", other)
    broker.until_led_by_another("shard-0", term)
    assert broker.group("shard-0").primary == other
    confirm_more(ledger)

    for client in publishers:
        client.stopping.set()
        client.join(20)
    until(lambda: ledger.confirmed <= ledger.received.keys())
    for each in clients:
        each.stopping.set()
        each.join(20)
        assert each.crash is None
    assert not ledger.unknown, ledger.verdict()
    assert not ledger.unmarked_copies, ledger.verdict()


def publish_counted(url: str, queue: str, is_over: threading.Event, counts: dict[str, int], refused: list[str]) -> None:
    """Publish numbers on a connection of one's own, each confirmed before the next, or in windows, until it is over."""
    name = threading.current_thread().name
    with shardmq.connect(url, timeout=30, recovery=None) as connection:
        channel = connection.channel()
        number = 0
        while not is_over.is_set():
            window = range(number, number + (1 if name[0] == "s" else 50))
            try:
                if len(window) == 1:
                    channel.basic_publish("", queue, b"%s %d" % (name.encode(), number))
                else:
                    with channel.publisher() as publisher:
                        publisher.publish_many("", queue, [b"%s %d" % (name.encode(), each) for each in window])
            except errors.ShardmqError as refusal:
                refused.append(f"{name} {number}: {refusal}")
                return
            number = counts[name] = window.stop


def test_a_transfer_refuses_nothing_loses_nothing_doubles_nothing_and_keeps_the_order(broker: ReplicatedBroker) -> None:
    counts: dict[str, int] = {}
    refused: list[str] = []
    is_over = threading.Event()
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("handed over", durable=True)
        urls = [f"shardmq://guest:guest@127.0.0.1:{port}/" for port in broker.ports.values()]
        publishers = [
            threading.Thread(
                target=publish_counted,
                args=(urls[number % len(urls)], "handed over", is_over, counts, refused),
                name=f"{'single' if number % 2 else 'window'}-{number}",
            )
            for number in range(12)
        ]
        for publisher in publishers:
            publisher.start()
        until(lambda: len(counts) == 12 or refused)
        for _ in range(6):
            until(lambda: len(broker.group("shard-0").in_sync) == 3)
            group = broker.group("shard-0")
            other = next(host for host in broker.hosts if host != group.primary)
            broker.wish("shard-0", other)
            broker.until_led_by_another("shard-0", group.term)
            before = dict(counts)
            until(lambda before=before: refused or all(counts[name] > before[name] for name in before))  # type: ignore[misc]
        stopped, term = broker.primary("shard-0"), broker.group("shard-0").term
        stopped.stop()
        broker.until_led_by_another("shard-0", term)
        before = dict(counts)
        until(lambda: refused or all(counts[name] > before[name] for name in before))
        is_over.set()
        for publisher in publishers:
            publisher.join(20)
        assert not refused
        stopped.restart()
        received: dict[str, list[int]] = {}
        for body in bodies(channel, "handed over"):
            name, number = body.decode().split()
            received.setdefault(name, []).append(int(number))
        assert received == {name: list(range(count)) for name, count in counts.items()}
        channel.queue_delete("handed over")
    until(lambda: len(broker.group("shard-0").in_sync) == 3)


@pytest.mark.parametrize("is_primary", [True, False], ids=["primary", "follower"])
def test_a_replica_that_is_told_to_stop_is_waited_for_by_nobody(broker: ReplicatedBroker, is_primary: bool) -> None:
    group = broker.group("shard-0")
    stopped = next(host for host in group.in_sync if (host == group.primary) == is_primary)
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("stopping", durable=True)
        channel.basic_publish("", "stopping", b"before")
        replica = broker.replicas[stopped, "shard-0"]
        replica.stop()
        assert replica.exits[-1] == 0
        group = broker.group("shard-0")
        assert group.primary != stopped
        assert stopped not in group.in_sync
        until(lambda: publishes(channel, "stopping", b"after"))
        assert bodies(channel, "stopping") == [b"before", b"after"]
        channel.queue_delete("stopping")
    replica.restart()
    until(lambda: len(broker.group("shard-0").in_sync) == 3)


@dataclass(frozen=True)
class Roles:
    """Who is who: the primary of the shard, a host that goes, and one whose replica of the shard alone goes."""

    primary: str
    gone: str
    stuck: str

    @staticmethod
    def of(broker: ReplicatedBroker) -> "Roles":
        until(lambda: all(len(broker.group(name).in_sync) == 3 for name in broker.groups))
        primary = broker.group("shard-0").primary
        gone = next(host for host in broker.hosts if host not in (primary, broker.group("coordinator").primary))
        [stuck] = {*broker.hosts} - {primary, gone}
        return Roles(primary, gone, stuck)


def operate(broker: ReplicatedBroker, roles: Roles, page: Page, connection: shardmq.Connection) -> None:
    """Have a shard led by another host and a host drained, on the page; undo both."""
    term = broker.group("shard-0").term
    fill_in(page, "Transfer", "Transfer", "tr[td[1][.='shard-0']]", host=roles.stuck)
    until(lambda: broker.group("shard-0").term > term)
    assert broker.group("shard-0").primary == roles.stuck
    confirm(page, "Drain", roles.gone, f"tr[td[1][.='{roles.gone}']]")
    page.sees_soon("draining")
    assert {row["host"]: row["is_draining"] for row in connection.status()["hosts"]}[roles.gone]
    page.click("Undo the drain")
    until(lambda: {row["host"]: row["state"] for row in connection.status()["hosts"]}[roles.gone] == "up")
    assert not (wrong := page.violations()), wrong

    term = broker.group("shard-0").term
    until(lambda: roles.primary in broker.group("shard-0").in_sync)
    connection.shard_transfer("shard-0", roles.primary)
    until(lambda: broker.group("shard-0").term > term)
    with pytest.raises(errors.NotFound, match="there is no host 'z'; the hosts are a, b, c"):
        connection.host_drain("z")
    with pytest.raises(errors.PreconditionFailed, match="cannot move from 'a' to 'b': its replicas are on a, b, c"):
        connection.shard_move("shard-0", "a", "b")
    connection.user_put("watcher", "watches", tags=["monitoring"])
    watcher = broker.url_of(roles.primary).replace("guest:guest", "watcher:watches")
    with shardmq.connect(watcher, administrative=True) as other, pytest.raises(errors.AccessRefused):
        other.host_drain(roles.gone)
    connection.user_delete("watcher")
    until(lambda: all(len(broker.group(name).in_sync) == 3 for name in broker.groups))


def check_whole(watched: Watched, roles: Roles, term: int) -> None:
    until(lambda: [each["records"] for each in watched.group("shard-0")["followers"].values()] == [0, 0])
    row, counted = watched.group("shard-0"), watched.metrics()
    assert (row["state"], row["primary"], row["term"]) == ("whole", roles.primary, term)
    states = {host: each["state"] for host, each in row["followers"].items()}
    assert states == {roles.gone: "in sync", roles.stuck: "in sync"}
    assert watched.hosts() == dict.fromkeys((roles.primary, roles.gone, roles.stuck), "up")
    assert not {rule for rule, _ in watched.findings()} & {*REMEDIES}
    assert watched.browser.get("/overview")["away"] == []
    assert counted["replica_is_primary", "shard-0", roles.primary] == counted["host_up", "", roles.gone] == 1
    assert {counted[f"replica_lag_{unit}", "shard-0", roles.gone] for unit in ("records", "seconds")} == {0}
    assert counted["replicas_in_sync", "shard-0", ""] == 3
    assert watched.dashboard()["Hosts up"] == watched.dashboard()["Least replicas in sync"] == 3


def check_alone(watched: Watched, roles: Roles) -> None:
    primary, gone, stuck = roles.primary, roles.gone, roles.stuck
    until(lambda: watched.hosts() == {primary: "up", stuck: "up", gone: "away"})
    until(lambda: {("replicas-alone", "shard-0"), ("host-away", gone)} <= watched.findings().keys())
    found, counted = watched.findings(), watched.metrics()
    assert found["host-away", gone] == f"host {gone} is away"
    reasons = found["replicas-alone", "shard-0"].removeprefix(f"shard-0 is alone on {primary}: ").split("; ")
    assert {*reasons} == {f"host {gone} is away", f"the replica on {stuck} is away"}
    assert watched.group("shard-0")["followers"][gone]["records"] >= 1
    until(lambda: watched.group("shard-0")["followers"][gone]["seconds"] > 0)
    assert counted["replica_is_in_sync", "shard-0", gone] == counted["host_up", "", gone] == 0
    assert counted["replica_lag_records", "shard-0", gone] >= 1


def check_lines(printed: str, roles: Roles) -> None:
    lines = [line.split("\t") for line in printed.splitlines()]
    assert {line[1]: line[2] for line in lines if line[0] == "host"}[roles.gone] == "away"
    [behind] = [line[5] for line in lines if line[:2] == ["shard", "shard-0"]]
    assert {*behind.split(", ")} == {f"{roles.gone} away", f"{roles.stuck} away"}
    assert ["note", f"host {roles.gone} is away"] in lines


def test_hosts_replicas_and_what_is_wrong_are_shown_everywhere(
    broker: ReplicatedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = Roles.of(broker)
    gone, stuck = roles.gone, roles.stuck
    with (
        Watched(broker, roles.primary) as watched,
        shardmq.connect(watched.url, timeout=30) as connection,
        look_at_page(watched, tmp_path) as page,
    ):
        channel = connection.channel()
        channel.queue_declare("shown", durable=True)
        channel.basic_publish("", "shown", b"x")
        page.sees("has all")
        operate(broker, roles, page, connection)
        until_passes(lambda: check_whole(watched, roles, broker.group("shard-0").term))
        page.sees("has all")
        assert "shardmq shard list" in page.lines("main")
        assert not (wrong := page.violations()), wrong

        frozen = [broker.replicas[gone, name].process for name in broker.groups]
        frozen += [broker.gateways[gone], broker.replicas[stuck, "shard-0"].process]
        for process in frozen:
            process.send_signal(signal.SIGSTOP)
        until(lambda: broker.group("shard-0").in_sync == (roles.primary,))
        until(lambda: publishes(channel, "shown", b"more"))
        check_alone(watched, roles)
        assert connection.status()["hosts"] == watched.browser.get("/shardmq/hosts")["hosts"]
        assert run(["status", "--url", watched.url]) == 0
        check_lines(capsys.readouterr().out, roles)
        page.sees_soon(f"host {gone} is away")
        page.sees_soon(f"shard-0 is alone on {roles.primary}")
        page.shot("hosts")
        assert not (wrong := page.violations()), wrong

        for process in frozen:
            process.send_signal(signal.SIGCONT)
        until(lambda: all(len(broker.group(name).in_sync) == 3 for name in broker.groups))
        until(lambda: not {rule for rule, _ in watched.findings()} & {*REMEDIES})
        channel.queue_delete("shown")


def test_what_is_declared_outlives_the_coordinators_primary(broker: ReplicatedBroker) -> None:
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("declared", durable=True)
        exclusive = connection.channel().queue_declare(exclusive=True).queue
        deposed, term = broker.primary("coordinator"), broker.group("coordinator").term
        other = next(host for host in broker.hosts if host != broker.group("coordinator").primary)
        broker.wish("coordinator", other)
        broker.until_led_by_another("coordinator", term)
        until(lambda: publishes(channel, "declared", b"there"))
        until(lambda: set(broker.group("coordinator").in_sync) == set(broker.hosts))
        killed, term = broker.primary("coordinator"), broker.group("coordinator").term
        assert killed is not deposed
        killed.kill()
        broker.until_led_by_another("coordinator", term)
        channel.queue_declare("declared later", durable=True)
        assert not deposed.exits, "a deposed coordinator follows in its own process"
        for queue in ("declared later", exclusive):
            channel.basic_publish("", queue, b"there")
        for queue in ("declared", "declared later", exclusive):
            assert next(channel.consume(queue, auto_ack=True, inactivity_timeout=10)).body == b"there"
        killed.restart()
        until(lambda: len(broker.group("coordinator").in_sync) == 3)


def test_a_backup_is_restored_as_a_broker_on_one_machine(
    broker: ReplicatedBroker, start_broker: StartBroker, tmp_path: Path
) -> None:
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("copied", durable=True)
        until(lambda: publishes(channel, "copied", b"there"))
        copy, restored = tmp_path / "copy", tmp_path / "restored"
        backed_up(broker.url, copy)
        channel.queue_delete("copied")
    assert run(["restore", str(copy), str(restored)]) == 0
    with shardmq.connect(start_broker(shards=1, data_dir=restored).url) as connection:
        assert bodies(connection.channel(), "copied") == [b"there"]


def refusal(channel: shardmq.Channel, queue: str) -> str:
    """Publish a message, and return why it was refused; "" where it was confirmed."""
    try:
        channel.basic_publish("", queue, b"one has it")
    except errors.RequestError as refused:
        return str(refused)
    return ""


def test_what_is_under_way_when_too_few_are_left_is_not_confirmed(etcd: Etcd, tmp_path: Path) -> None:
    """The primary waits for a replica that died; when that is out of the set, one copy is too few for a confirm."""
    with (
        ReplicatedBroker(tmp_path, etcd.url, "waiting", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("waiting", durable=True)
        channel.basic_publish("", "waiting", b"both have it")
        group = broker.group("shard-0")
        broker.replicas[next(host for host in group.in_sync if host != group.primary), "shard-0"].kill()
        assert "publish again" in refusal(channel, "waiting"), "one replica has what was confirmed"
        until(lambda: len(broker.group("shard-0").in_sync) == 1)  # the primary may know it before this process does
        until(lambda: "too few replicas of shard-0" in refusal(channel, "waiting"))


def test_with_too_few_replicas_in_sync_publishes_are_refused_and_acknowledgements_are_not(
    etcd: Etcd, tmp_path: Path
) -> None:
    with (
        ReplicatedBroker(tmp_path, etcd.url, "few", min_in_sync=2, hosts=("a", "b")) as broker,
        shardmq.connect(broker.url, timeout=30) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("few", durable=True)
        channel.basic_publish("", "few", b"both have it")
        group = broker.group("shard-0")
        other = broker.replicas[next(host for host in group.in_sync if host != group.primary), "shard-0"]
        other.kill()
        until(lambda: len(broker.group("shard-0").in_sync) == 1)
        refused = refusal(channel, "few")
        while "too few replicas of shard-0 are in sync" not in refused:  # etcd may know it before the primary does
            assert "publish again" in refused, "a publish was confirmed that one replica has"
            refused = refusal(channel, "few")
        assert "of at least 2" in refused
        next(channel.consume("few", inactivity_timeout=10)).ack()
        other.restart()
        until(lambda: len(broker.group("shard-0").in_sync) == 2)
        channel.queue_purge("few")  # what was refused while the primary did not know may be there
        until(lambda: publishes(channel, "few", b"both have it again"))  # etcd may know it before the primary does
        assert next(channel.consume("few", inactivity_timeout=10)).body == b"both have it again"
