"""`shardmq bench growth`: its series against real brokers, and its results in a file."""

import json
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.growth import SERIES, Point, points_of, print_points, series
from shardmq.cmd.bench.compare.load import compiled_program
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import record_growth
from shardmq.cmd.main import run
from tests.running import without

WHERE = {"kind": "machine", "cores": 2}


def test_every_series_is_measured_at_its_first_points(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    try:
        compiled_program(tmp_path)
    except Absent as reason:
        without(reason)
    path = tmp_path / "growth.json"
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["--most", "10", "--messages", "200", "--shards", "1", "--disk", str(disk), "--record", str(path)]
    assert run(["bench", "growth", *words, "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    wanted = [(name, at) for name, entry in SERIES.items() for at in entry.points if at <= 10]
    assert [(point["along"], point["at"]) for point in said["growth"]] == wanted
    assert all(point["cpu_us"] >= 0 for point in said["growth"])
    assert list(disk.iterdir()) == []
    rows = {row["id"]: row for row in json.loads(path.read_text())["rows"]}
    assert list(rows) == [f"{name}-{at}" for name, entry in SERIES.items() for at in entry.points]
    assert rows["queues-10"]["recorded"]
    assert rows["queues-10000"]["cpu_us"] is None


def test_points_that_are_too_great_are_named() -> None:
    said: list[str] = []
    assert points_of("queues", 1000, 0, said.append) == [1, 10, 100, 1000]
    assert points_of("backlog", 100_000_000, 4_000_000_000, said.append) == [0, 1_000_000, 10_000_000]
    assert said[0] == "queues: not measured at 10,000: more than 1,000, by --most or by the disk"
    assert said[1].startswith("backlog: not measured at 100,000,000: more than 13,333,333")


def test_a_point_is_the_median_of_its_turns_in_multiples_of_the_first() -> None:
    costs = iter([4.0, 6.0, 5.0, 7.0, 7.5, 8.0])
    found = list(series("queues", [1, 10], 3, lambda _at: next(costs), lambda _said: None))
    assert [(point.at, point.cpu_us, point.of_first) for point in found] == [(1, 5, 1), (10, 7.5, 1.5)]
    assert found[0].turns == (4, 6, 5)


def test_points_that_are_not_measured_again_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "growth.json"
    places = {"queues": (1, 10), "backlog": (0,)}
    for point in (Point("queues", 1, 4.0, 1.0, (4.0,)), Point("backlog", 0, 0.5, 1.0, (0.5,))):
        record_growth(path, places, [point], {"turns": 1}, WHERE)
        print_points([point])
    rows = {row["id"]: row["cpu_us"] for row in json.loads(path.read_text())["rows"]}
    assert rows == {"queues-1": 4.0, "queues-10": None, "backlog-0": 0.5}
    assert capsys.readouterr().out.splitlines()[0] == "queues, messages to them in turn\t1\t4.0\t1.0"
