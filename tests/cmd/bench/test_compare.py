"""`shardmq bench compare`: its loads against real brokers, its table, and what it says of what is not installed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare import load
from shardmq.cmd.bench.compare.load import PROGRAMS, Contestant, Load, compiled_program, run_load
from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
from shardmq.cmd.bench.compare.rows import ROWS
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import ShardmqError
from tests.cmd.interrupts import heeding_interrupts
from tests.running import without

PATIENCE_SECONDS = 120
TINY = {"queues": 12, "connections": 12}
"""What rows have more of, they have so many of here."""


@pytest.fixture(scope="module")
def load_program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The C program, where it can be compiled."""
    try:
        return compiled_program(tmp_path_factory.mktemp("load"))
    except Absent as reason:
        without(reason)


@pytest.fixture(scope="module")
def peer() -> Iterator[Contestant]:
    """A RabbitMQ, where it is installed."""
    try:
        with Server() as server:
            yield Contestant("RabbitMQ", server.port, (server.pid,))
    except Absent as reason:
        without(reason)


def tiny(load: Load) -> Load:
    """The same load with few queues and connections."""
    options = {name: min(value, TINY.get(name, value)) for name, value in load.options.items() if type(value) is int}
    return Load(load.program, load.mode, load.first, {**load.options, **options})


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `bench compare` with few messages, as a process: nobody but it may be asked to end what it has started."""

    def run(*options: str) -> "subprocess.CompletedProcess[str]":
        sizes = ("--turns", "1", "--messages", "300", "--shards", "1", "--disk", str(tmp_path))
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


@pytest.mark.parametrize("name", [name for name in ROWS if name != "spark"])
def test_every_row_is_measured_and_leaves_nothing(broker: Broker, load_program: list[str], name: str) -> None:
    row = ROWS[name]
    who = Contestant("shardmq", broker.port, tuple(broker.pids.values()), broker.url)
    program = load_program if row.ours.program == "amqp" else PROGRAMS[row.ours.program].command(Path())
    figures = run_load(program, tiny(row.ours), who, max(300, row.ours.least), PATIENCE_SECONDS)
    assert figures["seconds"] > 0
    assert all(figures[figure.name] >= 0 for figure in row.figures)


def test_of_bytes_written_the_lower_of_two_counts_is_taken(
    broker: Broker, load_program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = tmp_path / "stat"
    counters.write_text("1 2 3 4 5 6 700 8 9 10 11\n")  # a disk to which nothing is written
    who = Contestant("shardmq", broker.port, tuple(broker.pids.values()), broker.url)
    run = partial(run_load, load_program, tiny(ROWS["fanout-100"].ours), who, 20, PATIENCE_SECONDS)
    monkeypatch.setattr(load, "disk_counters", lambda _folder: str(counters))
    assert run()["disk_bytes"] == 0
    monkeypatch.setattr(load, "disk_counters", lambda _folder: str(tmp_path / "there is none"))
    assert run()["disk_bytes"] > 0


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.theirs is not None])
def test_every_row_that_rabbitmq_has_is_measured_there(peer: Contestant, load_program: list[str], name: str) -> None:
    theirs = ROWS[name].theirs
    assert theirs is not None
    program = load_program if theirs.program == "amqp" else PROGRAMS[theirs.program].command(Path())
    figures = run_load(program, tiny(theirs), peer, 100, PATIENCE_SECONDS)
    assert all(figures[figure.name] >= 0 for figure in ROWS[name].figures)


def test_without_rabbitmq_there_are_figures_without_ratios(
    load_program: list[str], compared: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    assert load_program
    done = compared("--no-rabbitmq", "--json", "--rows", "both,alone", "--rows", "*-in-flight")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert [(row["row"], row["figure"]) for row in said["compare"]] == [
        ("both", "end_to_end_msgs_per_s"),
        ("alone", "publish_msgs_per_s"),
        ("alone", "consume_msgs_per_s"),
        ("one-in-flight", "publish_msgs_per_s"),
    ]
    assert all(row["shardmq"]["median"] > 0 and row["ratio"] is None for row in said["compare"])
    assert all(goal["is_met"] is None for row in said["compare"] for goal in row["goals"])
    assert (said["settings"]["messages"], said["absent"], said["failures"]) == (300, [], [])
    assert said["machine"]["cores"] > 0


def test_beside_rabbitmq_the_table_has_ratios_and_goals(
    load_program: list[str], compared: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    assert load_program
    try:
        Server()
    except Absent as reason:
        without(reason)
    done = compared("--rows", "alone,distinct,pika")
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    assert [(fields[0], fields[6]) for fields in lines] == [
        ("1 queue, one after the other: publish", "≥ 3 x"),
        ("1 queue, one after the other: consume", "≥ 2 x"),
        ("20 connections and queues, distinct", "≥ 1.2 x"),
        ("pika, a confirm for each", ""),
    ]
    assert all(float(number) > 0 for fields in lines for number in fields[1:6])
    assert "turn 1 of 1: distinct: RabbitMQ" in done.stderr


def test_a_row_that_does_not_exist_is_refused_with_the_names_of_all(
    compared: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    done = compared("--rows", "both,nothing")
    assert done.returncode == 2
    assert "there is no row 'nothing'; there are both, client, both-10-shared," in " ".join(done.stderr.split())


def test_a_row_that_fails_is_named_and_the_others_are_measured(
    load_program: list[str], compared: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    assert load_program
    done = compared("--no-rabbitmq", "--json", "--rows", "both,latency-1000", "--timeout", "8", "--messages", "10000")
    assert done.returncode == 1
    said = json.loads(done.stdout.splitlines()[0])
    assert [row["row"] for row in said["compare"]] == ["both"]
    (reason,) = said["failures"]
    assert reason.startswith("latency-1000, shardmq")
    assert "10,000 messages are not through after 8 s; see --timeout" in reason
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("no-such-compiler", "no-such-compiler is not installed: apt-get install gcc"),
        (f"{sys.executable} -c 'exit(\"cannot find -lrabbitmq\")'", "librabbitmq is not installed: apt-get install"),
        (f"{sys.executable} -c 'exit(\"too old\")'", "cannot compile amqpload: too old"),
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
    done = compared("--rows", "both", "--no-rabbitmq")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_rows_that_can_be_measured_are_and_the_others_reason_is_given(
    compared: Callable[..., "subprocess.CompletedProcess[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    only = ("--rows", "both,pika", "--no-rabbitmq")
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
    more = ("--turns", "100", "--seconds", "60", "--rows", "both", "--disk", str(tmp_path), option)
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


def test_a_load_that_fails_says_why_in_one_sentence(load_program: list[str]) -> None:
    with pytest.raises(ShardmqError, match=r"amqpload: connect to 127\.0\.0\.1 port 1: "):
        run_load(load_program, Load("amqp", "flow", 1), Contestant("nobody", 1), 10, PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("mode", "options", "sentence"),
    [
        ("flow", {"queus": 3}, "there is no option 'queus'"),
        ("flow", {"queues": 0}, "queues=0 is too few; at least 1 is needed"),
        ("flow", {"window": "many"}, "window=many is no number"),
        ("flow", {"order": "seq", "warmup": 5}, "warmup=5 is for order=both alone"),
        ("flow", {"order": "backwards"}, "order=backwards? There are both, seq and publish"),
        ("flow", {"exchange": "topic", "queues": 3, "bindings": 4}, "bindings=4 are not shared evenly by 3 queues"),
        ("nothing", {"queues": 3}, "queues=3, and nothing has one"),
        ("backwards", {}, "there is no mode 'backwards'"),
    ],
    ids=lambda value: value if type(value) is str else "",
)
def test_nonsense_is_refused_by_the_load(
    broker: Broker, load_program: list[str], mode: str, options: dict[str, int | str], sentence: str
) -> None:
    with pytest.raises(ShardmqError) as refused:
        run_load(load_program, Load("amqp", mode, 1, options), Contestant("", broker.port), 10, PATIENCE_SECONDS)
    assert refused.value.text == f"amqpload: {sentence}"
