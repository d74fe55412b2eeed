"""`shardmq bench streams`: its loads against real brokers, and its results in a file."""

import json
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.load import Contestant, compiled_program, run_words
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.streams.command import by_row, goal_of
from shardmq.cmd.bench.streams.measure import Turns, by_program_on_topic, met
from shardmq.cmd.bench.streams.redis import RedisServer, redis_program
from shardmq.cmd.bench.streams.rows import ROWS, SHARDMQ
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError
from tests.running import without

SECONDS = 60.0


@pytest.fixture(scope="module")
def redis_load(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Redis's C program, where it can be compiled."""
    try:
        return redis_program(tmp_path_factory.mktemp("load"))
    except Absent as reason:
        without(reason)


def test_every_row_is_measured_and_kept(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    try:
        compiled_program(tmp_path)
    except Absent as reason:
        without(reason)
    path, disk = tmp_path / "streams.json", tmp_path / "disk"
    disk.mkdir()
    sizes = ["--turns", "1", "--messages", "1000", "--long", "3000", "--shards", "1", "--no-peers", "--disk", str(disk)]
    assert run(["bench", "streams", *sizes, "--record", str(path), "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    assert [row["id"] for row in said["streams"]] == list(ROWS)
    assert [row["id"] for row in said["streams"] if not row["shardmq"]["median"] > 0] == ["interrupted"]
    assert list(disk.iterdir()) == []
    kept = json.loads(path.read_text())
    assert [row["id"] for row in kept["rows"]] == list(ROWS)
    assert run(["bench", "streams", *sizes, "--rows", "read", "--record", str(path), "--json"]) == 0
    again = json.loads(path.read_text())
    assert again["rows"][0] == kept["rows"][0], "a row that was not measured again has changed"


@pytest.mark.parametrize("options", [["order=publish"], ["order=seq", "consumers=3"], ["order=both"], ["group=g"]])
def test_redis_is_measured_with_every_entry_checked(tmp_path: Path, redis_load: list[str], options: list[str]) -> None:
    try:
        server = RedisServer(tmp_path)
    except Absent as reason:
        without(reason)
    with server:
        words = [*redis_load, "127.0.0.1", str(server.port), "s", "messages=2500", f"pids={server.pid}", *options]
        figures = run_words(words, 2500, SECONDS)
        assert figures["publish_msgs_per_s"] > 0
        with pytest.raises(ShardmqError, match="redisload: there is no option 'odd'"):
            run_words([*words, "odd=1"], 2500, SECONDS)


@pytest.mark.parametrize(
    ("options", "figure"),
    [
        (["order=publish"], "publish_msgs_per_s"),
        (["order=seq", "consumers=3"], "read_msgs_per_s"),
        (["order=both"], "end_to_end_msgs_per_s"),
    ],
)
def test_streams_are_measured_over_amqp(tmp_path: Path, broker: Broker, options: list[str], figure: str) -> None:
    try:
        program = compiled_program(tmp_path)
    except Absent as reason:
        without(reason)
    name = f"bench-{figure}"
    words = [*program, "127.0.0.1", str(broker.port), name, "stream", "messages=2500", "type=stream", *options]
    assert run_words(words, 2500, SECONDS)[figure] > 0


def test_members_that_work_are_measured_over_amqp_with_every_message_checked(tmp_path: Path, broker: Broker) -> None:
    try:
        program = compiled_program(tmp_path)
    except Absent as reason:
        without(reason)
    members = ["members", "messages=300", "work_ms=2", "consumers=15", "connections=2", "prefetch=3", "queues=4"]
    words = [*program, "127.0.0.1", str(broker.port), "bench-members", *members, "group=g"]
    who = Contestant("shardmq", broker.port, tuple(broker.pids.values()), broker.url)
    figures = by_program_on_topic(words, who, 300, SECONDS)
    assert 0 < figures["of_theory"] < 1.05
    assert figures["cpu_us"] >= 0
    with pytest.raises(ShardmqError, match="amqpload: reading: channel closed, 404"):
        run_words(words, 300, SECONDS)  # the topic is gone


def test_goals_are_measured_by_themselves_or_by_another_row() -> None:
    assert met("append", {"append": 96.0, "queue": 100.0}) is True
    assert met("append", {"append": 94.0, "queue": 100.0}) is False
    assert met("append", {"append": 94.0}) is None
    assert met("seek", {"seek": 11.0}) is False
    assert met("tail", {"tail": 11.0}) is None
    assert goal_of("append") == "≥ 0.95 x the same to a queue"
    assert goal_of("seek") == "≤ 10"
    assert goal_of("workers-50") == "≥ 0.9"
    assert met("interrupted", {"interrupted": 0.0}) is True


def test_figures_are_medians_of_the_turns() -> None:
    turns = Turns()
    for rate in (5.0, 1.0, 3.0):
        turns.add("read", SHARDMQ, {"read_msgs_per_s": rate, "cpu_us": rate / 10})
    (row,) = by_row(list(turns.found()))
    found = row["shardmq"]
    assert (found["median"], found["worst"], found["turns"], found["cpu_us"]) == (3, 1, (5, 1, 3), 0.3)
    assert found["is_met"] is False
