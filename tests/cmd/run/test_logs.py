"""What the broker's processes log: a time and a level on each line, readiness, and what they wait for."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR) +(\S+): .+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@contextmanager
def running(*words: str) -> "Iterator[subprocess.Popen[str]]":
    """A process of the broker, whose log is read line by line."""
    process = subprocess.Popen(
        command(*words), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def line_with(process: "subprocess.Popen[str]", wanted: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if wanted in line:
            return line
    raise AssertionError(f"the process ended without a word of {wanted!r}")


def coordinator(folder: Path, *more: str, shards: Sequence[str] = ()) -> tuple[str, ...]:
    addresses = [word for address in shards for word in ("--shard", address)]
    return ("coordinator", "--data-dir", str(folder), "--listen", f"ipc://{folder}/bus", *addresses, *more)


def test_every_process_says_when_it_is_ready(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=2)
    lines = broker.log.read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines), lines
    for name in broker.pids:
        ready = [line for line in lines if f" {name}: ready" in line]
        assert len(ready) == 1, name
        assert " INFO " in ready[0]
    assert f"127.0.0.1 port {broker.port}" in next(line for line in lines if "gateway-0: ready" in line)


def test_a_coordinator_says_which_shards_it_waits_for_and_where(tmp_path: Path) -> None:
    missing = f"ipc://{tmp_path}/shard-0"
    with running(*coordinator(tmp_path, shards=[missing])) as process:
        line = line_with(process, "waiting for")
        assert LINE.fullmatch(line.strip())
        assert f" WARNING coordinator: waiting for shard 0 at {missing}" in line
        assert line_with(process, "waiting for") != line, "it says so again"


def test_a_gateway_says_what_it_waits_for_as_json_where_that_is_wanted(tmp_path: Path) -> None:
    words = ("gateway", "--name", "gateway-7", "--coordinator", f"ipc://{tmp_path}/coordinator", "--port", "5999")
    with running(*words, "--shard", f"ipc://{tmp_path}/shard-0", "--log-format", "json") as process:
        line = json.loads(line_with(process, "waiting for"))
    assert TIME.fullmatch(line.pop("time"))
    where = f"the coordinator at ipc://{tmp_path}/coordinator, shard 0 at ipc://{tmp_path}/shard-0"
    assert line == {"level": "warning", "process": "gateway-7", "text": f"waiting for {where}"}


def test_a_shard_says_who_has_not_called_it(tmp_path: Path) -> None:
    with running("shard", "--index", "3", "--data-dir", str(tmp_path), "--listen", f"ipc://{tmp_path}/bus") as process:
        assert "shard-3: ready at ipc://" in line_with(process, "ready")
        assert f"waiting for the coordinator to call ipc://{tmp_path}/bus" in line_with(process, "waiting for")


def test_a_level_leaves_out_what_is_below_it(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, options=["--log-level", "warning"])
    assert broker.log.read_text() == ""


def test_a_refused_start_is_logged_as_an_error(tmp_path: Path) -> None:
    (tmp_path / "shard-0").write_text("in the way")
    words = ("shard", "--index", "0", "--data-dir", str(tmp_path), "--listen", f"ipc://{tmp_path}/bus")
    refused = subprocess.run(
        command(*words, "--log-format", "json"), env=environment(), capture_output=True, text=True, check=False
    )
    assert refused.returncode == 78
    line = json.loads(refused.stderr)
    assert (line["level"], line["process"]) == ("error", "shard-0")
    assert str(tmp_path / "shard-0") in line["text"]


def test_events_of_up_have_a_time_and_a_level(tmp_path: Path) -> None:
    words = ("up", "--shards", "1", "--port", "0", "--data-dir", str(tmp_path / "data"), "--json")
    words += ("--management-port", "off")
    process = subprocess.Popen(
        command(*words), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    events = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "up":
                os.kill(events[-1]["processes"]["gateway-0"], signal.SIGKILL)
            elif events[-1]["event"] == "ready":
                process.send_signal(signal.SIGTERM)
    finally:
        process.kill()
        process.communicate(timeout=30)
    # a start that takes long says that it waits
    assert [(event["event"], event["level"]) for event in events if event["event"] != "waiting"] == [
        ("up", "info"),
        ("exited", "warning"),
        ("ready", "info"),
        ("stopping", "info"),
        ("stopped", "info"),
    ]
    assert all(TIME.fullmatch(event["time"]) for event in events)


@pytest.mark.parametrize("role", ["up", "gateway", "shard", "coordinator"])
def test_a_level_that_does_not_exist_is_refused(role: str, refused: Callable[..., str]) -> None:
    assert "'debug', 'info', 'warning', 'error'" in refused(role, "--log-level", "loud", code=2)
