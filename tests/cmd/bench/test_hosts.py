"""`shardmq bench hosts`: faults of a broker on three hosts, what is kept of them, and the arithmetic of the goals."""

import json
import subprocess
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.hosts.machines.network import check_means
from shardmq.cmd.bench.hosts.measure import Turns, empty_row
from shardmq.cmd.bench.hosts.rows import ONE, RABBITMQ, ROWS, TWO
from shardmq.cmd.main import run
from shardmq.errors import ShardmqError
from tests.running import without


def test_faults_are_measured_and_kept_and_leave_nothing_behind(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    try:
        check_means()
    except Absent as reason:
        without(reason)
    path, disk = tmp_path / "hosts.json", tmp_path / "disk"
    disk.mkdir()
    words = ["--rows", "frozen-briefly,etcd-*", "--etcd-away", "0.2", "--faults", "1", "--shards", "1"]
    assert run(["bench", "hosts", *words, "--disk", str(disk), "--record", str(path), "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    rows = {row["id"]: row for row in said["hosts"]}
    assert [*rows] == ["frozen-briefly", "frozen-briefly-evicted", "etcd-away", "etcd-away-refused"]
    assert rows["frozen-briefly"][TWO]["median"] >= 400
    assert rows["etcd-away-refused"][TWO]["worst"] == 0
    assert [row["id"] for row in json.loads(path.read_text())["rows"]] == [*ROWS]
    assert list(disk.iterdir()) == []
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert "-two-" not in spaces


def test_rows_that_there_are_not_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "hosts", "--rows", "everything"]) == 2
    assert "there is no row 'everything'" in " ".join(capsys.readouterr().err.split())


def test_goals_are_of_two_replicas_and_some_of_the_worst_turn() -> None:
    turns = Turns()
    for pause in (700.0, 1400.0, 900.0):
        turns.attempt("frozen", TWO, lambda pause=pause: {"pause_ms": pause})
        turns.attempt("host-killed", RABBITMQ, lambda pause=pause: {"pause_ms": pause})
    for broker, rate in ((ONE, 1000.0), (TWO, 499.0)):
        turns.attempt("bulk", broker, lambda rate=rate: {"end_to_end_msgs_per_s": rate})
    found = {row["id"]: row for row in turns.rows()}
    assert found["frozen"][TWO] == {"median": 900.0, "worst": 1400.0, "turns": (700.0, 1400.0, 900.0)}
    assert {name: row["is_met"] for name, row in found.items()} == {"frozen": True, "host-killed": None, "bulk": False}
    assert empty_row("bulk")["goal"] == "≥ 0.5 x one host"
    assert empty_row("full-cut-off")["goal"] == "worst ≤ 3,000"


def test_what_failed_is_told_and_not_tried_again() -> None:
    turns = Turns()

    def fail() -> dict[str, float]:
        raise ShardmqError("publishing stood still")

    assert turns.attempt("transfer", TWO, fail) is None
    assert turns.attempt("transfer", TWO, lambda: {"pause_ms": 1.0}) is None
    assert turns.failures == {("transfer", TWO): "transfer, 2 replicas: publishing stood still"}
