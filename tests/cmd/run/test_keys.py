"""`shardmq keys`, and a whole broker whose processes speak over TCP with them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import shardmq
from shardmq.bus.curve import ALLOWED, CurveKeys
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.shard import FromShard
from shardmq.bus.poller import context
from shardmq.cmd.main import run
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.run.locks import hold_port
from shardmq.runtime import notify

READY_SECONDS = 30.0
NAMES = ("coordinator", "shard-0", "shard-1", "gateway-0")


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


class Roles:
    """The roles of a broker as processes of their own, on TCP addresses, each with a folder of keys of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.coordinator = free_address()
        self.shards = [free_address(), free_address()]
        to_shards = [word for address in self.shards for word in ("--shard", address)]
        data_dir = ["--data-dir", str(folder / "data")]
        self._holds = contextlib.ExitStack()
        self.port = self._holds.enter_context(hold_port("127.0.0.1", 0))
        self.url = f"shardmq://guest:guest@127.0.0.1:{self.port}/"
        self.words = {
            "coordinator": ["coordinator", *data_dir, "--listen", self.coordinator, *to_shards, "--boot-id", "b"],
            "gateway-0": ["gateway", "--port", str(self.port), "--coordinator", self.coordinator, *to_shards],
        }
        for index, address in enumerate(self.shards):
            self.words[f"shard-{index}"] = ["shard", "--index", str(index), *data_dir, "--listen", address]

    def start(self, name: str) -> socket.socket:
        """Start a process; returns the socket on which it says that it serves."""
        path = self.folder / f"n-{name}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(str(path))
        listener.settimeout(READY_SECONDS)
        with (self.folder / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command(*self.words[name], "--keys", str(self.folder / name)),
                env=environment(**{notify.NOTIFY_SOCKET: str(path)}),
                stdout=log,
                stderr=log,
            )
        return listener

    def start_all(self) -> None:
        for listener in [self.start(name) for name in NAMES]:
            with listener:
                told = listener.recv(4096)
                while told.startswith(b"STATUS=") and b"READY=1" not in told:
                    told = listener.recv(4096)
                assert b"READY=1" in told, (self.folder / "log").read_text()

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(20)
        self._holds.close()
        print((self.folder / "log").read_text())


@pytest.fixture
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """A broker's roles, not started; its keys were made in one place and handed out as a person would."""
    folder = tmp_path_factory.mktemp("r")
    assert run(["keys", "create", *NAMES, "--dir", str(folder / "made"), "--json"]) == 0
    for name in NAMES:
        (folder / name / ALLOWED).mkdir(parents=True)
        (folder / "made" / f"{name}.key_secret").rename(folder / name / f"{name}.key_secret")
        for public in (folder / "made" / ALLOWED).iterdir():
            (folder / name / ALLOWED / public.name).write_bytes(public.read_bytes())
    roles = Roles(folder)
    yield roles
    roles.close()


def test_a_broker_over_tcp_with_keys_publishes_and_consumes_and_strangers_get_nowhere(roles: Roles) -> None:
    roles.start_all()
    with shardmq.connect(roles.url) as connection:
        channel = connection.channel()
        for number in range(8):
            channel.queue_declare(f"q{number}", durable=True)
            channel.basic_publish("", f"q{number}", b"over tcp")
        shards = {row["shard"] for row in connection.topology("queues")}
        assert shards == {0, 1}
        foreign = zmq.Context()
        with foreign.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(roles.shards[0])
            stranger.send(b"garbage")
            assert not stranger.poll(200)
        foreign.term()
        for number in range(8):
            message = channel.basic_get(f"q{number}", auto_ack=True)
            assert message is not None
            assert message.body == b"over tcp"
    assert "turns away" in (roles.folder / "log").read_text()


def test_keys_are_made_once_listed_and_shown_as_json(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = str(tmp_path / "keys")
    assert run(["keys", "create", "shard-0", "gateway-0", "--dir", folder, "--json"]) == 0
    made = json.loads(capsysbinary.readouterr().out)
    assert [row["name"] for row in made] == ["shard-0", "gateway-0"]
    assert all(Path(row["secret"]).stat().st_mode & 0o777 == 0o600 for row in made)
    assert run(["keys", "create", "shard-0", "--dir", folder]) == 78
    os.remove(made[1]["secret"])
    capsysbinary.readouterr()
    assert run(["keys", "list", "--dir", folder, "--json"]) == 0
    rows = json.loads(capsysbinary.readouterr().out)
    assert [(row["name"], row["role"], row["allowed"], row["secret"]) for row in rows] == [
        ("gateway-0", "gateway", True, False),
        ("shard-0", "shard", True, True),
    ]
    assert run(["keys", "list", "--dir", folder]) == 0
    assert rows[0]["public_key"].encode() in capsysbinary.readouterr().out


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", ""])
def test_a_name_that_is_no_file_name_makes_no_keys(tmp_path: Path, name: str) -> None:
    assert run(["keys", "create", name, "--dir", str(tmp_path / "keys")]) != 0
    assert not (tmp_path / "keys").exists()


def test_a_gateway_with_its_key_is_taken_for_no_coordinator(roles: Roles) -> None:
    """The gateway's holder calls a shard as the coordinator, which may make and delete queues there."""
    roles.start_all()
    one = context(CurveKeys(roles.folder / "gateway-0", "gateway-0"))
    liar: Dialer[Any] = Dialer(one, roles.shards[0], "coordinator", "coordinator", FromShard, "shard-0")
    deadline = time.monotonic() + READY_SECONDS
    while "says it is 'coordinator', and its key is allowed as 'gateway-0'" not in (roles.folder / "log").read_text():
        assert time.monotonic() < deadline
        liar.tick(time.monotonic())
        liar.socket.poll(20)
        assert not any(isinstance(event, LinkOpened) for event in liar.receive())
    liar.close()
    one.term()
    with shardmq.connect(roles.url) as connection:
        connection.channel().queue_declare("undisturbed", durable=True)


@pytest.mark.parametrize("name", ["coordinator", "shard-3"])
def test_a_gateway_cannot_have_the_name_of_another_role(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "--name", name, "--coordinator", "ipc:///x/y", "--shard", "ipc:///x/z"]) == 2
    assert "name a gateway otherwise" in capsys.readouterr().err


def test_a_role_on_tcp_without_keys_exits_with_78_and_says_what_to_do(tmp_path: Path) -> None:
    refused = subprocess.run(
        command("shard", "--index", "0", "--data-dir", str(tmp_path), "--listen", free_address()),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert refused.returncode == 78, refused.stderr
    assert "shardmq keys create" in refused.stderr
    assert "Traceback" not in refused.stderr
