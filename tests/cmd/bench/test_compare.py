"""`shardmq bench compare`: its loads against real brokers, its table, and what it says of what is not installed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardmq.cmd.bench.compare.load import Load, Rates, compiled_program, run_load
from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
from shardmq.cmd.bench.compare.rows import ROWS, Comparison, Contestant, Figure, Measured, enough, outcome
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import ShardmqError
from tests.cmd.interrupts import heeding_interrupts

OURS = Contestant("shardmq", 1)
THEIRS = Contestant("RabbitMQ", 2)
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def load_program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The C program, where it can be compiled."""
    try:
        return compiled_program(tmp_path_factory.mktemp("load"))
    except Absent as reason:
        pytest.skip(str(reason))


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `bench compare` with few messages, as a process: nobody but it may be asked to end what it has started."""

    def run(*options: str) -> "subprocess.CompletedProcess[str]":
        sizes = ("--rounds", "1", "--messages", "300", "--shards", "1", "--disk", str(tmp_path))
        done = subprocess.run(
            command("bench", "compare", *sizes, *options),
            capture_output=True,
            text=True,
            env=environment(COLUMNS="100"),
            check=False,
        )
        assert list(tmp_path.iterdir()) == [], "it left something on the disk"
        return done

    return run


def processes_of(folder: Path) -> list[str]:
    """Command lines, of processes that run, which name something in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if str(folder) in line:
            found.append(line)
    return found


def test_every_row_is_measured_without_rabbitmq_too(
    load_program: list[str], compared: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    assert load_program
    done = compared("--no-rabbitmq", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert list(dict.fromkeys(row["row"] for row in said["compare"])) == list(ROWS)
    assert [row["figure"] for row in said["compare"] if row["row"] == "seq"] == ["publish", "consume"]
    assert all(row["shardmq_msgs_per_s"] > 0 and row["ratio"] is None for row in said["compare"])
    assert {row["row"]: row["asked"] for row in said["compare"]}["window-1"] == 0.8
    assert said["settings"]["messages"] == 300
    assert said["absent"] == []


def test_beside_rabbitmq_the_table_has_ratios_and_what_is_asked(
    load_program: list[str], compared: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    assert load_program
    try:
        Server()
    except Absent as reason:
        pytest.skip(str(reason))
    only = ("--only", "seq", "--only", "distinct", "--only", "pika")
    done = compared(*only)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = json.loads(compared(*only, "--json").stdout)
    assert all(row["ratio_min"] <= row["ratio"] <= row["ratio_max"] for row in said["compare"])
    shown = [line.split("\t") for line in lines if "\t" in line]
    assert len(shown) == len(said["compare"]) == 4
    assert all(
        row["text"] in fields[0] and len(fields) == 7 for row, fields in zip(said["compare"], shown, strict=True)
    )
    asked = [None if row["asked"] is None else str(row["asked"]) for row in said["compare"]]
    assert [fields[4] or None for fields in shown] == asked == ["3.0", "2.0", "1.2", None], "pika is asked nothing"
    assert all(float(fields[3]) > 0 for fields in shown)
    assert "round 1 of 1: distinct: RabbitMQ" in done.stderr


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("no-such-compiler", "no-such-compiler is not installed: apt-get install gcc"),
        (f"{sys.executable} -c 'exit(\"cannot find -lrabbitmq\")'", "librabbitmq is not installed: apt-get install"),
        (f"{sys.executable} -c 'exit(\"too old\")'", "cannot compile amqpload.c: too old"),
    ],
    ids=["no compiler", "no librabbitmq", "another reason"],
)
def test_where_the_load_cannot_be_compiled_it_says_what_to_install(
    compared: Callable[..., "subprocess.CompletedProcess[str]"],
    monkeypatch: pytest.MonkeyPatch,
    compiler: str,
    sentence: str,
) -> None:
    monkeypatch.setenv("CC", compiler)
    done = compared("--only", "both", "--no-rabbitmq")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_rows_that_can_be_measured_are_and_the_others_reason_is_given(
    compared: Callable[..., "subprocess.CompletedProcess[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    only = ("--only", "both", "--only", "pika", "--no-rabbitmq")
    done = compared(*only)
    assert done.returncode == 0, done.stderr
    reason = "no-such-compiler is not installed: apt-get install gcc"
    assert reason in done.stdout.splitlines()
    said = json.loads(compared(*only, "--json").stdout)
    assert ([row["row"] for row in said["compare"]], said["absent"]) == (["pika"], [reason])


@pytest.mark.parametrize(
    ("number", "option"), [(signal.SIGINT, "--rabbitmq"), (signal.SIGTERM, "--no-rabbitmq")], ids=["Ctrl-C", "SIGTERM"]
)
def test_ended_in_the_middle_it_leaves_nothing_behind(
    load_program: list[str], tmp_path: Path, number: signal.Signals, option: str
) -> None:
    assert load_program
    more = ("--rounds", "100", "--seconds", "60", "--only", "both", "--disk", str(tmp_path), option)
    with heeding_interrupts():
        process = subprocess.Popen(
            command("bench", "compare", *more), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
    with process:
        assert process.stderr is not None
        while "warming up: both: " not in (line := process.stderr.readline()):  # the next takes 60 s
            assert line, "it ended by itself"
        assert len(processes_of(tmp_path)) > 1
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 130
    assert list(tmp_path.iterdir()) == []
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.load.is_pikas])
def test_the_load_checks_every_message_and_leaves_no_queue(broker: Broker, load_program: list[str], name: str) -> None:
    rates = run_load(load_program, ROWS[name].load, broker.port, 1000, PATIENCE_SECONDS)
    assert rates.messages == 1000
    assert min(rates.publish_msgs_per_s, rates.consume_msgs_per_s, rates.end_to_end_msgs_per_s) > 0


def test_a_load_that_fails_says_why_in_one_sentence(load_program: list[str]) -> None:
    with pytest.raises(ShardmqError, match=r"amqpload: connect to 127\.0\.0\.1 port 1: "):
        run_load(load_program, Load("both"), 1, 10, PATIENCE_SECONDS)


def test_brokers_take_turns_and_who_is_first_alternates() -> None:
    course = Comparison(["both", "seq"], [OURS, THEIRS], {}, rounds=2, seconds=1, messages=None, timeout=1)
    steps = [(turn, name, who) for turn, name, who, _ in course.run()]
    assert len(steps) == course.steps == 12
    firsts = steps[::2]
    assert [(turn, name) for turn, name, _ in firsts] == [
        (turn, name) for turn in (0, 1, 2) for name in ("both", "seq")
    ]
    assert [who for _, _, who in firsts] == [THEIRS, OURS, OURS, THEIRS, THEIRS, OURS]
    assert all({first[2], second[2]} == {OURS, THEIRS} for first, second in zip(firsts, steps[1::2], strict=True))


@pytest.mark.parametrize(
    ("load", "rates", "messages"),
    [
        (Load("both"), Rates(100, 50_000.0, 40_000.0, 30_000.0), 90_000),
        (Load("seq"), Rates(100, 30_000.0, 60_000.0, 1.0), 60_000),
        (Load("confirmed"), Rates(100, 1234.0), 3_700),
        (Load("seq", window=1), Rates(1, 0.1, 0.1, 0.1), 1),
        (Load("both"), Rates(1, 1e9, 1e9, 1e9), 5_000_000),
    ],
)
def test_so_many_messages_are_sent_as_take_the_time(load: Load, rates: Rates, messages: int) -> None:
    assert enough(load, rates, 3.0) == messages


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    ours = [Measured(Rates(1, rate, rate, rate), 7.0) for rate in (100.0, 300.0, 200.0)]
    theirs = [Measured(Rates(1, rate, rate, rate), 9.0) for rate in (50.0, 50.0, 40.0)]
    row = outcome("both", Figure("end_to_end", 3.0), [ours, theirs])
    wanted: dict[str, Any] = {"shardmq_msgs_per_s": 200.0, "rabbitmq_msgs_per_s": 50.0, "ratio": 5.0}
    wanted |= {"shardmq_cpu_us": 7.0, "rabbitmq_cpu_us": 9.0}
    assert {name: getattr(row, name) for name in wanted} == wanted
    assert (row.ratio_min, row.ratio_max) == (2.0, 6.0)
    alone = outcome("both", Figure("end_to_end", 3.0), [ours])
    assert (alone.shardmq_msgs_per_s, alone.ratio, alone.rabbitmq_cpu_us) == (200.0, None, None)
