"""Addresses of the bus: which are safe, and what is said of the others."""

import os
from pathlib import Path

import pytest
import zmq

from shardmq.bus.address import check_private, is_loopback, is_tcp
from shardmq.bus.dialer import Dialer
from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import FromShard, ToShard
from shardmq.bus.poller import context
from shardmq.errors import StartupRefused


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("tcp://10.0.0.1:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://*:1", False),
        ("tcp://eth0:1", False),
        ("tcp://localhost.example:1", False),
    ],
)
def test_loopback_addresses_are_told_from_others(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize("address", ["", "10.0.0.1:5680", "udp://10.0.0.1:5680", "inproc://x", "TCP://x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(StartupRefused, match="no address of the bus"):
        is_tcp(address)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o1777])
def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(mode)
    for must_exist in (True, False):
        with pytest.raises(StartupRefused, match="chmod 700"):
            check_private(f"ipc://{folder}/shard-0", must_exist)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, -1)
    for must_exist in (True, False):
        with pytest.raises(StartupRefused, match="belongs to another user"):
            check_private(f"ipc://{folder}/shard-0", must_exist)


def test_who_listens_needs_a_directory_and_who_calls_waits_for_it(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/none/shard-0"
    check_private(address, must_exist=False)
    with pytest.raises(StartupRefused, match="mkdir -m 700"):
        check_private(address, must_exist=True)


@pytest.mark.parametrize("address", ["ipc://@abstract", "ipc://relative/shard-0", "ipc://*"])
def test_sockets_outside_directories_are_refused(address: str) -> None:
    with pytest.raises(StartupRefused, match="no absolute path"):
        check_private(address, must_exist=False)


def test_links_check_their_addresses(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    made = context()
    with pytest.raises(StartupRefused, match="chmod 700"):
        Listener(made, f"ipc://{tmp_path}/s", "shard", "shard-0", ToShard)
    with pytest.raises(StartupRefused, match="chmod 700"):
        Dialer(made, f"ipc://{tmp_path}/s", "gateway", "gateway-0", FromShard)
    made.term()  # would wait for ever, had they left a socket open


def test_an_address_that_cannot_be_bound_is_refused_with_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made: zmq.Context[zmq.Socket[bytes]] = context()
    with pytest.raises(StartupRefused, match="choose another address"):
        Listener(made, f"ipc://{tmp_path}/{'s' * 200}", "shard", "shard-0", ToShard)
    made.term()
