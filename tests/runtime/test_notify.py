"""Beats and statuses for systemd, over a socket like its own."""

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.runtime import notify


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd would read."""
    path = os.path.relpath(tmp_path / "notify")  # absolute ones may be too long
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(path)
        monkeypatch.setenv(notify.NOTIFY_SOCKET, path)
        yield listener


def test_a_watched_loop_beats_twice_in_the_time_it_has(told: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(notify.WATCHDOG_USEC, "6000000")
    monkeypatch.setenv(notify.WATCHDOG_PID, str(os.getpid()))
    heartbeat = notify.Heartbeat(list)
    assert heartbeat.pause == 3
    heartbeat.beat(100.0)
    assert told.recv(4096) == b"WATCHDOG=1\nSTATUS=serving"
    heartbeat.beat(102.9)
    with pytest.raises(BlockingIOError):
        told.recv(4096)
    heartbeat.beat(103.0)
    assert told.recv(4096) == b"WATCHDOG=1"


@pytest.mark.usefixtures("told")
def test_whoever_inherits_the_watchdog_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(notify.WATCHDOG_USEC, "6000000")
    monkeypatch.setenv(notify.WATCHDOG_PID, "1")
    assert notify.watchdog_seconds() is None
    monkeypatch.setenv(notify.WATCHDOG_PID, "")
    assert notify.watchdog_seconds() == 6
    for nothing in ("0", "", "soon"):
        monkeypatch.setenv(notify.WATCHDOG_USEC, nothing)
        assert notify.watchdog_seconds() is None


def test_a_status_is_told_when_it_changes_and_stays_one_line(told: socket.socket) -> None:
    wrong = ["disk\nalarm", "waits for shard 1"]
    heartbeat = notify.Heartbeat(lambda: wrong)
    heartbeat.beat(0.0)
    assert told.recv(4096) == b"STATUS=disk alarm; waits for shard 1"
    heartbeat.beat(10.0)
    wrong.clear()
    heartbeat.beat(20.0)
    assert told.recv(4096) == b"STATUS=serving"


def test_a_process_without_a_file_descriptor_left_still_tells(told: socket.socket) -> None:
    notify.ready()
    assert told.recv(4096) == b"READY=1"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()
        notify.Heartbeat(list).beat(0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert told.recv(4096) == b"STATUS=serving"


def test_a_supervisor_that_does_not_listen_holds_nobody_up(told: socket.socket) -> None:
    notes = iter(range(10_000))
    heartbeat = notify.Heartbeat(lambda: [str(next(notes))])
    for second in range(0, 10_000, 10):  # far more than the kernel keeps
        heartbeat.beat(float(second))
    told.close()
    heartbeat.beat(20_000.0)
