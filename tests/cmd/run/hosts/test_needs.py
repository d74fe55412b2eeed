"""A host that could not run its processes is refused before etcd hears of it; one that was removed stops by itself."""

import contextlib
import json
import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from shardmq.bus.curve import create_pair
from shardmq.cmd.hosts.register import opened
from shardmq.cmd.run.hosts.needs import check_needs
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from shardmq.cmd.terminal.output import CommandFailed
from shardmq.errors import StartupRefused
from shardmq.replication.etcd.values import HOSTS
from tests.hosts.members import Etcd

SECONDS = 60.0
JOIN = "etcd://127.0.0.1/orders"


def refusal(options: HostOptions) -> str:
    with pytest.raises(StartupRefused) as refused:
        check_needs(options, gateways=1)
    return refused.value.text


def test_an_address_that_others_cannot_call_is_refused() -> None:
    assert "'0.0.0.0' stands for every address" in refusal(HostOptions(JOIN, "a", "0.0.0.0"))
    fault = refusal(HostOptions(JOIN, "a", "192.0.2.1"))  # of no machine, RFC 5737
    assert fault.startswith("--host-address 192.0.2.1 is no address of this machine (Cannot assign requested address)")


def test_links_without_keys_are_refused_but_for_tests_on_loopback_addresses() -> None:
    assert "need keys: give --keys with the folder" in refusal(HostOptions(JOIN, "a", "127.0.0.1"))
    check_needs(HostOptions(JOIN, "a", "127.0.0.1", is_insecure=True), gateways=1)


def test_missing_keys_are_refused_and_those_of_another_host_named(tmp_path: Path) -> None:
    for process in ("coordinator", "shard-0", "gateway-0"):
        create_pair(tmp_path, f"b.{process}")
    fault = refusal(HostOptions(JOIN, "a", "127.0.0.1", keys=tmp_path))
    assert f"{tmp_path} lacks 3 keys of host 'a' (it has those of host b), as that of a.coordinator; make" in fault
    check_needs(HostOptions(JOIN, "b", "127.0.0.1", keys=tmp_path), gateways=1)
    fault = refusal(HostOptions(JOIN, "b", "127.0.0.1", shards=2, keys=tmp_path))
    assert f"{tmp_path} lacks 1 key of host 'b', as that of b.shard-1; make" in fault


def up(join: str, folder: Path, *words: str) -> list[str]:
    address = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(254) + 1}.1"
    options = ("--host-name", "a", "--host-address", address, "--host", address, "--data-dir", str(folder / "data"))
    return command("up", "--json", "--join", join, *options, "--management-port", "off", *words)


def test_a_host_without_its_keys_makes_no_broker(etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    join = f"{etcd.url}/{tmp_path.name}"
    ended = subprocess.run(
        up(join, tmp_path, "--keys", str(tmp_path / "keys")),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == EXIT_CONFIG, ended.stderr
    assert "of host 'a', as that of a.coordinator" in ended.stderr
    with opened(join) as register, pytest.raises(CommandFailed, match="has no broker"):
        register.cluster()


def test_an_authority_of_etcd_that_cannot_be_read_is_not_waited_for(tmp_path: Path) -> None:
    words = up(f"etcds://127.0.0.1/orders?cacertfile={tmp_path}/ca.pem", tmp_path, "--insecure-bus")
    ended = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == EXIT_CONFIG, ended.stderr
    assert f"TLS to etcd: {tmp_path}/ca.pem cannot be used" in ended.stderr


def test_a_host_that_is_removed_while_it_runs_stops_and_says_why(etcd: Etcd, tmp_path: Path) -> None:
    join = f"{etcd.url}/{tmp_path.name}"
    words = ("--insecure-bus", "--shards", "1", "--gateways", "1", "--replicas", "1", "--memory-watermark", "1GiB")
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *up(join, tmp_path, *words)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    watchdog = contextlib.ExitStack()
    with process, watchdog:
        watchdog.callback(process.kill)
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline())]
        while told[-1]["event"] != "up":
            told.append(json.loads(process.stdout.readline()))
        with opened(join) as register:
            register.remove(HOSTS, "a")
        told += map(json.loads, process.stdout)
        assert process.wait(SECONDS) == EXIT_CONFIG
    (refused,) = [notice for notice in told if notice["event"] == "refused"]
    assert refused["text"].startswith("host 'a' was removed from the broker; start it again to have it join anew")
    assert signal.SIGKILL not in [notice.get("signal") for notice in told]
