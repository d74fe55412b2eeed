"""Processes of a broker are forks of `shardmq up`: they are called what they do, and have nothing else of it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import environment
from shardmq.runtime import notify
from tests.running import running

COLD = {"OF_THIS_TEST": "1"}
"""With a variable of its own, a broker is started by its command line, as users start it."""

PROGRAM = """
import os, signal, sys
from shardmq.cmd.run.invocation import fork

os.register_at_fork(after_in_child=lambda: {at_once})

def work():
    {work}

print("before", end="")
process = fork(work, ["shardmq", "a-title"], {{"ONE": "1"}}, 1, 2)
print(process.wait(), flush=True)
"""


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that was not forked from what tests keep warm."""
    with running(Broker(tmp_path_factory.mktemp("cold") / "data", shards=2, variables=COLD)) as broker:
        yield broker


def opened(pid: int) -> set[str]:
    """Files, sockets and pipes that a process has open, but what it says."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has just closed that
            found.update([str(each.readlink())] if int(each.name) > 2 else [])
    return {each for each in found if not each.startswith(("anon_inode:", "/dev/"))}


def forked(work: str, at_once: str = "None") -> "subprocess.CompletedProcess[str]":
    """Have a fork do that, and something else before; it says what it has printed, and then its exit code."""
    program = [sys.executable, "-c", PROGRAM.format(work=work, at_once=at_once)]
    return subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=60, check=True)


def test_processes_are_called_what_they_do(cold: Broker) -> None:
    for name, words in {
        "coordinator": ["coordinator", "--data-dir"],
        "shard-1": ["shard", "--index", "1"],
        "gateway-0": ["gateway", "--name", "gateway-0"],
    }.items():
        process = psutil.Process(cold.pids[name])
        title = process.cmdline()
        place = title.index("shardmq.cmd.main") + 1
        assert title[place : place + len(words)] == words
        assert Path(f"/proc/{process.pid}/comm").read_text() == "shardmq\n"
        assert os.getpgid(process.pid) == process.pid
    assert psutil.Process(cold.pid).num_threads() == 1  # else nothing would be forked


def test_a_fork_has_nothing_open_of_the_supervisor(cold: Broker) -> None:
    cold.kill_and_wait("shard-0")  # the next is forked while all others run
    kept = opened(cold.pid)
    assert str(cold.data_dir / "lock") in kept
    for name in ("coordinator", "shard-0", "gateway-0"):
        assert opened(cold.pids[name]) & kept == set()
        assert os.readlink(f"/proc/{cold.pids[name]}/fd/0") == "/dev/null"


def test_whoever_supervises_hears_a_fork_that_was_started_again(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(30)
        with running(Broker(tmp_path / "data", shards=1, variables={notify.NOTIFY_SOCKET: address})) as broker:
            while b"READY=1" not in systemd.recv(4096):
                pass
            broker.kill_and_wait("shard-0")  # it is ready over a socket of its own, not over the one that told systemd


@pytest.mark.parametrize(
    ("work", "code", "output", "error"),
    [
        ("print(dict(os.environ)); return 3", 3, "{'ONE': '1'}\n", ""),
        ("print('last', end=' '); sys.exit(5)", 5, "last ", ""),
        ("sys.exit('no')", 1, "", "no"),
        ("raise ValueError('odd')", 1, "", "ValueError: odd"),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "", ""),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, "", ""),
        ("import atexit; atexit.register(print, 'bye'); return 0", 0, "bye\n", ""),
    ],
)
def test_a_fork_ends_as_a_program_does(work: str, code: int, output: str, error: str) -> None:
    done = forked(work)
    assert done.stdout == f"before{output}{code}\n"
    assert error in done.stderr
    assert bool(error) == bool(done.stderr)


def test_ctrl_c_for_the_group_of_the_supervisor_is_none_for_a_fork_that_has_just_left_it() -> None:
    done = forked("return 3", at_once="os.kill(os.getpid(), signal.SIGINT)")
    assert (done.stdout, done.stderr) == ("before3\n", "")


def test_a_fork_that_is_ended_before_it_begins_ends() -> None:
    done = forked("return 3", at_once="os.kill(os.getpid(), signal.SIGTERM)")
    assert (done.stdout, done.stderr) == (f"before{-signal.SIGTERM}\n", "")
