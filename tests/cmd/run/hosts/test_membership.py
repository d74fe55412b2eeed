"""Hosts make a broker in etcd, join it, and plan; what does not fit together is refused by a sentence."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from shardmq.cmd.hosts import growth as cmd_growth
from shardmq.cmd.hosts import shard as cmd_shard
from shardmq.cmd.hosts.register import BrokerRegister
from shardmq.cmd.main import run
from shardmq.cmd.run.hosts.growth import fault_of_growth
from shardmq.cmd.run.hosts.membership import Membership
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.run.hosts.planner import Planner
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG, EXIT_INTERRUPTED
from shardmq.errors import StartupRefused
from shardmq.replication.etcd.values import BROKER, Growth, Wish
from shardmq.replication.planning.cluster import Cluster
from tests.hosts.members import Etcd

SECONDS = 10.0
USAGE = 2


@pytest.fixture
def url(etcd: Etcd, tmp_path: Path) -> str:
    """Of a broker that is not there yet."""
    return f"{etcd.url}/{tmp_path.name}"


class Hosts:
    """Hosts of one broker, in this process: what they have of etcd, without their processes."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url = url
        self._folder = folder
        self._stack = stack
        self.members: dict[str, Membership] = {}

    async def start(self, name: str, **options: object) -> Membership:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        host = HostOptions(self._url, name, f"10.0.0.{ord(name) - 96}", **options)  # type: ignore[arg-type]
        membership = Membership(host)
        self._stack.callback(membership.close)
        await membership.join(folder, {"gateway": f"{host.address}:5672"})
        planner = Planner(membership, name)
        changed = asyncio.Event()

        def look() -> None:
            planner.look()
            changed.set()

        membership.changed = look
        membership.follow()
        task = asyncio.create_task(planner.run())
        self._stack.callback(task.cancel)
        self.members[name] = membership
        return membership

    async def until(self, name: str, holds: Callable[[Cluster], bool]) -> Cluster:
        """What one of the hosts hears, once that is as it should be."""
        async with asyncio.timeout(SECONDS):
            while (cluster := self.members[name].cluster) is None or not holds(cluster):
                await asyncio.sleep(0.01)
        return cluster


def with_hosts(url: str, folder: Path, what: Callable[[Hosts], object]) -> None:
    async def body() -> None:
        with ExitStack() as stack:
            await what(Hosts(url, folder, stack))  # type: ignore[misc]

    asyncio.run(body())


def test_hosts_that_come_together_make_one_broker_and_spread_its_groups(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        await asyncio.gather(*(hosts.start(name, hosts=("a", "b", "c"), shards=5) for name in "abc"))
        cluster = await hosts.until("a", lambda cluster: len(cluster.groups) == 6 and len(cluster.hosts) == 3)
        assert {*cluster.loads().values()} == {4}
        assert {*cluster.leads().values()} == {2}
        assert await hosts.until("c", lambda known: known == cluster) == cluster
        assert cluster.hosts["b"].addresses["shard-4/replica"] == "tcp://10.0.0.2:5691"
        assert cluster.hosts["b"].addresses["gateway"] == "10.0.0.2:5672"

    with_hosts(url, tmp_path, body)


def test_a_host_that_comes_later_becomes_a_replica(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        await hosts.start("a", shards=1)
        await hosts.until("a", lambda cluster: len(cluster.groups) == 2)
        await hosts.start("b")
        cluster = await hosts.until("a", lambda cluster: all(len(g.replicas) == 2 for g in cluster.groups.values()))
        assert {group.in_sync for group in cluster.groups.values()} == {("a",)}

    with_hosts(url, tmp_path, body)


def test_what_contradicts_the_broker_is_refused(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        await hosts.start("a", shards=2, replicas=3)
        with pytest.raises(StartupRefused, match="was made with --shards 2, and this host says 4; leave --shards away"):
            await hosts.start("b", shards=4)
        with pytest.raises(StartupRefused, match="--min-in-sync 3 is more than the 2 replicas"):
            await hosts.start("b", min_in_sync=3)
        with pytest.raises(StartupRefused, match="made with --min-in-sync 1"):
            await hosts.start("b", min_in_sync=2)
        await hosts.start("b", shards=2, replicas=3)

    with_hosts(url, tmp_path, body)


def test_a_host_joins_with_any_number_of_shards_that_the_broker_has_had(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        first = await hosts.start("a", shards=2)
        await first.change(BROKER, "", lambda there: there and replace(there, shards=4, shards_at_first=2))
        await hosts.until("a", lambda cluster: len(cluster.groups) == 5)
        with pytest.raises(StartupRefused, match="2, and has 4 now, and this host says 1; leave --shards away"):
            await hosts.start("b", shards=1)
        with pytest.raises(StartupRefused, match="or add some while it runs: `shardmq shard add 2`"):
            await hosts.start("b", shards=6)
        for shards in (2, 3, 4):
            again = await hosts.start("b", shards=shards)
        await hosts.until("a", lambda cluster: "b" in cluster.hosts and cluster.hosts["b"].session == again.session)
        assert "shard-3" in hosts.members["a"].cluster.hosts["b"].addresses  # type: ignore[union-attr]

    with_hosts(url, tmp_path, body)


def test_shards_are_not_added_while_a_host_is_away_or_a_port_is_taken(
    url: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmd_growth, "ANSWER_SECONDS", 0.5)

    async def body(hosts: Hosts) -> None:
        await hosts.start("a", shards=1)
        assert await asyncio.to_thread(run, ("shard", "add", "--join", url)) == 1
        cluster = await hosts.until("a", lambda cluster: cluster.broker.growth is None)
        assert cluster.broker.shards == 1

    with_hosts(url, tmp_path, body)
    assert b"no shard was added: host 'a' did not answer within" in capsysbinary.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = HostOptions("etcd://localhost/p", "a", "127.0.0.1", bus_port=port - 4)
        fault = fault_of_growth(options, ("a",), range(1, 2))
    assert fault.startswith(f"port {port} at 127.0.0.1, which shard-1 needs, cannot be listened at (Address already")


def test_shards_that_somebody_else_added_meanwhile_stay(
    url: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def body(hosts: Hosts) -> None:
        member = await hosts.start("a", shards=1)
        adding = asyncio.create_task(asyncio.to_thread(run, ("shard", "add", "--join", url)))
        await hosts.until("a", lambda cluster: cluster.broker.growth is not None)
        await member.change(BROKER, "", lambda there: replace(there, shards=3, growth=None))
        assert await adding == 1
        cluster = await hosts.until("a", lambda cluster: cluster.broker.shards == 3)
        assert cmd_growth._asked(cluster.broker, 1, Growth(2, "late")) is None

    with_hosts(url, tmp_path, body)
    assert b"somebody else is adding shards just now" in capsysbinary.readouterr().err


def test_stores_of_another_broker_or_host_are_refused(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        await hosts.start("a", shards=1)
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(StartupRefused, match="belongs to host 'a', and this is 'b'"):
            await hosts.start("b")
        (tmp_path / "b").rename(tmp_path / "a")
        with ExitStack() as stack:
            elsewhere = Hosts(f"{url}.other", tmp_path, stack)
            with pytest.raises(StartupRefused, match="has none; is that the right etcd and prefix"):
                await elsewhere.start("a")
            await elsewhere.start("c", shards=1)
            with pytest.raises(StartupRefused, match="join that one's etcd and prefix"):
                await elsewhere.start("a")
        (tmp_path / "d" / "shard-0").mkdir(parents=True)
        with pytest.raises(StartupRefused, match="belongs to a broker on one machine"):
            await hosts.start("d")

    with_hosts(url, tmp_path, body)


def test_whoever_takes_a_hosts_name_replaces_it(url: str, tmp_path: Path) -> None:
    async def body(hosts: Hosts) -> None:
        first = await hosts.start("a", shards=1)
        second = await hosts.start("a")
        await hosts.until("a", lambda cluster: cluster.hosts["a"].session == second.session)
        async with asyncio.timeout(SECONDS):
            while not first.is_replaced:
                await asyncio.sleep(0.01)
        assert not second.is_replaced

    with_hosts(url, tmp_path, body)


def test_a_host_that_drains_goes_on_draining_after_a_restart(
    url: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def body(hosts: Hosts) -> None:
        await hosts.start("a", shards=1)
        await hosts.until("a", lambda cluster: len(cluster.groups) == 2)
        assert await asyncio.to_thread(run, ("host", "drain", "a", "--join", url)) == 0
        again = await hosts.start("a")
        await hosts.until("a", lambda cluster: cluster.hosts["a"].session == again.session)
        cluster = again.cluster
        assert cluster is not None
        assert cluster.hosts["a"].is_draining

    with_hosts(url, tmp_path, body)
    assert capsysbinary.readouterr().out == b"Draining host 'a': 2 replicas left\n"


def test_lists_and_refusals_of_commands(
    url: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMQ_JOIN", url)

    def told(*arguments: str, code: int = 0) -> str:
        assert run(arguments) == code
        out, error = capsysbinary.readouterr()
        return (error if code else out).decode()

    assert "has no broker; name the prefix that its hosts have in --join" in told("host", "list", code=1)

    async def body(hosts: Hosts) -> None:
        await asyncio.gather(*(hosts.start(name, hosts=("a", "b"), shards=1) for name in "ab"))
        await hosts.until("a", lambda cluster: len(cluster.groups) == 2)
        await hosts.start("c")

    with_hosts(url, tmp_path, body)
    assert "host 'c' does not drain, and may get replicas any time" in told("host", "remove", "c", code=1)
    assert told("host", "drain", "c") == "Drained host 'c': it has no replicas\n"
    assert told("host", "remove", "c") == "Removed host 'c'\n"
    assert told("host", "list", "--columns", "host,state,leads,replicas,in_sync,gateway") == (
        "a\tmember\t0\t2\t1\t10.0.0.1:5672\nb\tmember\t0\t2\t1\t10.0.0.2:5672\n"
    )
    rows = json.loads(told("shard", "list", "--json"))
    assert [(row["shard"], row["in_sync"], row["replicas"], row["state"]) for row in rows] == [
        ("coordinator", ["a"], ["a", "b"], "never led; alone; not in sync: b"),
        ("shard-0", ["b"], ["a", "b"], "never led; alone; not in sync: a"),
    ]
    assert "there is no host 'z'; the hosts are a, b" in told("host", "drain", "z", code=1)
    assert "shard-0 cannot be led by 'a': in sync are b" in told("shard", "transfer", "shard-0", "a", code=1)
    assert "cannot move from 'a' to 'b': its replicas are on a, b" in told("shard", "move", "shard-0", "a", "b", code=1)
    assert "there is no shard-9; there are coordinator, shard-0" in told("shard", "transfer", "shard-9", "a", code=1)
    assert "'b' cannot be elected for shard-0 with a loss: it is in sync" in told(
        "shard", "elect", "shard-0", "b", "--yes", code=1
    )
    assert "host 'a' has 2 replicas; `shardmq host drain a` moves them away first" in told(
        "host", "remove", "a", code=1
    )


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_an_election_with_a_loss_that_nobody_carries_out_is_withdrawn(
    url: str,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    is_interrupted: bool,
) -> None:
    """The host comes back later, together with one that has all: that one is to lead."""
    monkeypatch.setattr(cmd_shard, "ELECTION_SECONDS", 0.5)

    async def body(hosts: Hosts) -> None:
        await asyncio.gather(*(hosts.start(name, hosts=("a", "b"), shards=1) for name in "ab"))
        cluster = await hosts.until("a", lambda cluster: len(cluster.groups) == 2)
        (late,) = {"a", "b"} - {*cluster.groups["shard-0"].in_sync}
        if is_interrupted:
            monkeypatch.setattr(BrokerRegister, "wait_until", interrupted)
        electing = asyncio.create_task(
            asyncio.to_thread(run, ("shard", "elect", "shard-0", late, "--yes", "--join", url))
        )
        if not is_interrupted:
            cluster = await hosts.until("a", lambda cluster: "shard-0" in cluster.wishes)
            assert cluster.wishes["shard-0"].primary == late
        assert await electing == (EXIT_INTERRUPTED if is_interrupted else 1)
        await hosts.until("a", lambda cluster: cluster.wishes.get("shard-0") == Wish())

    with_hosts(url, tmp_path, body)
    if not is_interrupted:
        assert b"is not to be elected any more" in capsysbinary.readouterr().err


def interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--join", "http://h/p"), "neither etcd:// nor etcds://"),
        (("--join", "etcd://localhost/p"), "--join needs --host-name"),
        (("--join", "etcds://h/p", "--host-name", "A B"), "is no name of a host"),
        (("--join", "etcd://10.0.0.11/p"), "etcd:// is not encrypted, and 10.0.0.11:2379 is not on this machine"),
        (("--replicas", "2"), "--replicas is for one of several hosts; give --join, too"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: tuple[str, ...], why: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(("up", *words)) == USAGE
    assert why in " ".join(capsysbinary.readouterr().err.decode().split())


def test_a_data_directory_of_one_of_several_hosts_is_refused_without_join(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text('{"broker": "b", "host": "a"}')
    options = ("--data-dir", str(tmp_path), "--port", "0", "--management-port", "off")
    ended = subprocess.run(
        command("up", *options), env=environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == EXIT_CONFIG
    assert "belongs to host 'a' of a broker on several hosts; start it with --join" in ended.stderr


def test_keys_of_hosts_are_folders_to_be_copied(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ("--shards", "1", "--gateways", "1", "--dir", str(tmp_path))
    assert run(("keys", "hosts", "a", "b", *words)) == 0
    assert b"Created 6 key pairs; copy each folder to its host" in capsysbinary.readouterr().out
    before = (tmp_path / "a" / "a.shard-0.key_secret").read_bytes()
    assert run(("keys", "hosts", "a", "b", "c", *words, "--json")) == 0
    assert json.loads(capsysbinary.readouterr().out)["created"] == ["c.coordinator", "c.shard-0", "c.gateway-0"]
    assert (tmp_path / "a" / "a.shard-0.key_secret").read_bytes() == before
    for host in "abc":
        assert {path.name.split(".")[0] for path in (tmp_path / host).glob("*.key_secret")} == {host}
        assert len([*(tmp_path / host / "allowed").iterdir()]) == 9
