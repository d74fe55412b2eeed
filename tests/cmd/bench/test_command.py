"""`shardmq bench`: every mode against a real broker, and the arithmetic of its figures."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import shardmq
from shardmq.cmd.bench.consumers import THREADS_MAX, Notes, consume_many
from shardmq.cmd.bench.results import check, percentile, sample
from shardmq.cmd.bench.scattered import PARTS
from shardmq.cmd.bench.settings import NUMBER_BITS, STAMP, Settings
from shardmq.cmd.bench.trial import check_kept
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import NotFound, ShardmqError
from tests.cmd.pseudo_terminal import Terminal

SETTINGS = Settings("bulk", "shardmq://nowhere/", 4, 16, 1, 2, 1, 1000.0, False, 10.0)


def noted(*numbers: int) -> list[Notes]:
    notes = Notes()
    notes.heads.append(b"".join(STAMP.pack(number, 1_000_000) for number in numbers))
    notes.times.append(3_000_000)
    notes.counts.append(len(numbers))
    return [notes]


@pytest.mark.parametrize(
    "options",
    [
        ["bulk", "--messages", "2100", "--queues", "3", "--producers", "2", "--consumers", "2"],
        ["pipelined", "--messages", "300", "--consumers", "2"],
        ["pipelined", "--messages", "600", "--queues", "50", "--consumers", "2"],
        ["sync", "--messages", "20", "--transient"],
        ["latency", "--messages", "200", "--rate", "1000", "--size", "16"],
    ],
    ids=["bulk", "pipelined", "pipelined to many queues", "sync", "latency"],
)
def test_each_mode_prints_one_json_object_with_all_figures(
    broker: Broker, capsysbinary: pytest.CaptureFixture[bytes], options: list[str]
) -> None:
    assert run(["bench", *options, "--url", broker.url, "--timeout", "60", "--json"]) == 0
    (line,) = capsysbinary.readouterr().out.splitlines()
    figures = json.loads(line)
    assert set(figures) == {
        "publish_msgs_per_s",
        "consume_msgs_per_s",
        "end_to_end_msgs_per_s",
        "latency_ms",
        "settings",
    }
    assert all(figures[name] > 0 for name in figures if name.endswith("per_s"))
    latency = figures["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert figures["settings"]["mode"] == options[0]
    assert figures["settings"]["fdatasync_per_s"] > 0
    with shardmq.connect(broker.url) as connection:
        assert [row["name"] for row in connection.topology("queues") if row["name"].startswith("bench-")] == []


@pytest.mark.parametrize("output", [["--json"], []], ids=["json", "table"])
def test_publishing_alone_is_measured_without_consumers(
    broker: Broker, capsysbinary: pytest.CaptureFixture[bytes], output: list[str]
) -> None:
    words = ["bench", "sync", "--messages", "20", "--queues", "3", "--consumers", "0", "--url", broker.url]
    assert run([*words, *output]) == 0
    shown = capsysbinary.readouterr().out.decode()
    if output:
        figures = json.loads(shown)
        assert figures["publish_msgs_per_s"] > 0
        assert [figures[name] for name in ("consume_msgs_per_s", "end_to_end_msgs_per_s", "latency_ms")] == [None] * 3
    else:
        assert "published, confirmed" in shown
        assert "consumed" not in shown
    with shardmq.connect(broker.url) as connection:
        assert [row["name"] for row in connection.topology("queues") if row["name"].startswith("bench-")] == []


def test_messages_that_nobody_consumes_are_counted_in_their_queues(broker: Broker) -> None:
    settings = Settings("sync", broker.url, 3, 16, 1, 1, 0, 1000.0, False, 10.0)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=False).queue
        for _ in range(3):
            channel.basic_publish("", queue, b"one")
        check_kept(settings, [queue])
        channel.basic_publish("", queue, b"one too many")
        with pytest.raises(ShardmqError, match="holds 4 of 3 messages"):
            check_kept(settings, [queue])
        channel.queue_delete(queue)


def test_latency_needs_a_consumer(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["bench", "latency", "--consumers", "0"]) == 2
    assert "there is no latency without a consumer" in capsysbinary.readouterr().err.decode()


def test_features_are_compared_with_plain_queues(
    tmp_path: Path, broker: Broker, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    names = ["priority, alternating", "ttl of messages"]
    only = [word for name in names for word in ("--only", name)]
    words = ["bench", "features", *only, "--rounds", "1", "--messages", "1000", "--url", broker.url]
    path = tmp_path / "features.json"
    assert run([*words, "--json", "--record", str(path)]) == 0
    (line,) = capsysbinary.readouterr().out.splitlines()
    recorded = {row["id"]: row["share"] for row in json.loads(path.read_bytes())["rows"]}
    assert {name for name, share in recorded.items() if share} == {"priority_mixed", "expiration"}
    assert len(recorded) == 7
    rows = {row["feature"]: row for row in json.loads(line)["features"]}
    assert set(rows) == set(names)
    assert all(row["ratio_min"] <= row["ratio"] <= row["ratio_max"] for row in rows.values())
    assert run(words) == 0
    shown = [line.split("\t") for line in capsysbinary.readouterr().out.decode().splitlines()]
    assert [(row[0], len(row)) for row in shown] == [(name, 6) for name in names]


def test_many_queues_and_connections_are_measured(
    tmp_path: Path, broker: Broker, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "scale.json"
    words = ["bench", "queues", "--queues", "250", "--connections", "8", "--url", broker.url]
    assert run([*words, "--json", "--record", str(path)]) == 0
    rows = {row["id"]: row for row in json.loads(path.read_bytes())["rows"]}
    assert rows["connections_memory"]["what"].startswith("8 connections")
    assert rows["queues_declared"]["measured"].count("/s") == 2
    assert rows["delays"]["measured"] == "not yet measured"
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    rates = ("declare_one_by_one_per_s", "declare_per_s", "delete_per_s", "connect_per_s")
    assert all(figures[name] > 0 for name in rates)
    assert set(figures["bytes_per_queue"]) == {"all", "coordinator", "gateway", "shard"}
    with shardmq.connect(broker.url) as connection:
        assert [row["name"] for row in connection.topology("queues") if row["name"].startswith("bench-")] == []


def test_scattered_traffic_is_measured_and_nothing_is_left(
    broker: Broker, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    few = ["--messages", "300", "--queues", "12", "--copies", "3", "--round-trips", "10", "--declarations", "5"]
    words = ["bench", "scattered", *few, "--connections", "7", "--rate", "500", "--seconds", "0.5", "--url", broker.url]
    assert run([*words, "--json"]) == 0
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    assert set(figures) == {*PARTS, "settings"}
    assert all(value >= 0 for part in PARTS for value in figures[part].values())
    assert figures["declarations"]["declares_per_s"] > 0
    assert figures["queues"]["end_to_end_msgs_per_s"] > 0
    assert {"broker_cpu_us", "p50_ms", "p99_ms"} == set(figures["connections"])
    with shardmq.connect(broker.url) as connection:
        for kind in ("queues", "exchanges"):
            assert [row["name"] for row in connection.topology(kind) if row["name"].startswith("bench-")] == []
    assert run([*words, "--only", "round-trips"]) == 0
    told = capsysbinary.readouterr()
    assert "1 of 1: round-trips" in told.err.decode()
    shown = [line.split("\t") for line in told.out.decode().splitlines()]
    assert [row[:2] for row in shown] == [
        ["10 round trips, one at a time", figure] for figure in ("round trips/s", "p50 ms", "p99 ms")
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--messages", "10"], "10 messages are too few for 100 queues; give more --messages"),
        (["--rate", "5", "--seconds", "2"], "10 messages are too few for 100 connections; give a higher --rate"),
        (["--copies", "0"], "'0' is not a whole number from 1"),
        (["--only", "everything"], "'everything' is not one of"),
    ],
    ids=["queues", "connections", "copies", "part"],
)
def test_scattered_traffic_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert run(["bench", "scattered", *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_scattered_traffic_that_takes_too_long_is_given_up(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", "round-trips", "--round-trips", "1000000", "--timeout", "1", "--url", broker.url]
    assert run(["bench", "scattered", *words]) == 1
    assert "round-trips took longer than 1 s; see --timeout" in capsys.readouterr().err


def test_delayed_messages_are_timed_also_when_the_shards_are_killed(
    tmp_path: Path, start_broker: Callable[..., Broker], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "scale.json"
    broker = start_broker(shards=1)
    words = ["bench", "delays", "--messages", "3000", "--lead", "4", "--spread", "0.5", "--kill", "--url", broker.url]
    assert run([*words, "--json", "--record", str(path)]) == 0
    recorded = {row["id"]: row["measured"] for row in json.loads(path.read_bytes())["rows"]}
    assert {name for name, measured in recorded.items() if measured != "not yet measured"} == {
        "delays_killed",
        "delays_memory",
    }
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    late = figures["late_ms"]
    assert late["min"] <= late["p50"] <= late["p99"] <= late["max"]
    assert late["min"] > -50, "they came before they were due"


def test_delayed_messages_that_cannot_be_published_in_time_say_so(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "delays", "--messages", "5000000", "--lead", "1", "--spread", "0.1", "--url", broker.url]
    assert run(words) == 1
    assert "give more --lead" in capsys.readouterr().err


def test_without_json_there_is_a_table_alone(broker: Broker, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["bench", "bulk", "--messages", "1000", "--url", broker.url]) == 0
    shown = dict(line.split("\t") for line in capsysbinary.readouterr().out.decode().splitlines())
    facts = ["published, confirmed", "consumed, acked", "end to end", "latency p50 / p99 / max", "this disk"]
    assert list(shown) == facts
    assert shown["end to end"].endswith(" msgs/s")


def test_on_a_terminal_of_80_columns_a_measurement_has_a_title_and_whole_lines(broker: Broker) -> None:
    words = ("bench", "bulk", "--messages", "1000", "--url", broker.url)
    terminal = Terminal(command(*words), environment(), 80)
    try:
        assert terminal.wait() == 0, terminal.text
        lines = terminal.text.splitlines()
    finally:
        terminal.close()
    assert "bulk: 1,000 messages of 100 bytes, persistent" in lines
    assert all(len(line) <= 80 for line in lines[lines.index("bulk: 1,000 messages of 100 bytes, persistent") :])


def test_a_measurement_that_takes_too_long_is_given_up(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "latency", "--messages", "1000", "--rate", "10", "--timeout", "2", "--url", broker.url]) == 1
    assert "not done after 2 s" in capsys.readouterr().err


def test_a_queue_that_is_deleted_while_many_are_consumed_ends_the_measurement(broker: Broker) -> None:
    settings = msgspec.structs.replace(SETTINGS, url=broker.url, queues=THREADS_MAX + 1)
    queues = {number: f"bench-gone-{number}" for number in range(settings.queues)}
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for name in queues.values():
            channel.queue_declare(name, durable=False)

        def begin() -> None:
            channel.queue_delete(queues[7])

        with pytest.raises(NotFound, match="was deleted"):
            asyncio.run(consume_many(queues, settings, begin, lambda _queue, _count: None, lambda _queue: False))
        del queues[7]
        for name in queues.values():
            channel.queue_delete(name)


@pytest.mark.parametrize(("producers", "consumers", "queues"), [(1, 1, 1), (2, 3, 2), (3, 2, 5), (4, 4, 1)])
def test_every_message_has_a_queue_and_every_queue_a_reader(producers: int, consumers: int, queues: int) -> None:
    settings = Settings("bulk", "", 12_345, 100, queues, producers, consumers, 1.0, False, 1.0)
    assert sum(settings.expected()) == settings.messages == sum(map(settings.share, range(producers)))
    assert {queue for reader in settings.readers() for queue in reader} == set(range(queues))
    assert all(settings.readers())


def test_a_missing_a_doubled_and_a_foreign_message_are_found() -> None:
    second = 1 << NUMBER_BITS
    check(SETTINGS, noted(0, 1, second, second + 1))
    with pytest.raises(ShardmqError, match=r"1 did not come, 1 came more than once and 1 are not"):
        check(SETTINGS, noted(0, 0, second, second + 1, second + 2))


def test_latencies_are_sampled_evenly_when_there_are_many() -> None:
    assert sample(4, noted(0, 1, 2, 3)) == ([2_000_000] * 4, 1)
    latencies, every = sample(1_000_000, noted(0, 1, 2, 3, 4))
    assert (len(latencies), every) == (3, 2)


def test_percentiles_are_of_the_sorted_latencies() -> None:
    latencies = [number * 1_000_000 for number in range(1, 101)]
    assert [percentile(latencies, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([5_000_000], 0.99) == 5.0
