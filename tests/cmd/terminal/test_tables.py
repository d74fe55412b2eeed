"""Lists as people and programs get them: whole names on terminals of 80 and 100 columns, plain lines in pipes."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.store.progress import FINDING_COLUMNS
from shardmq.cmd.terminal.rows import Column, names, numbers
from shardmq.cmd.terminal.tables import Table, print_facts, print_fitted
from shardmq.storage.repair.findings import Finding
from tests.cmd.pseudo_terminal import Terminal

Parsed = Callable[..., object]
LONG = "invoices.europe.north.scandinavia.sweden.stockholm.retried-after-failure"
WIDE = "x" * 120


@pytest.fixture(scope="module")
def full(broker: Broker) -> Iterator[Broker]:
    """The broker, with names of all lengths."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.exchange_declare(f"ex-{LONG}"[:70], "topic", durable=True)
        for name in ("short", LONG, WIDE):
            channel.queue_declare(name, durable=True, arguments={"x-max-length": 1000, "x-overflow": "reject-publish"})
        channel.queue_bind("short", f"ex-{LONG}"[:70], "invoices.#")
        channel.basic_publish("", LONG, b"one")
        connection.user_put("a-user-whose-name-is-rather-long-for-a-person", password="x")
        channel.basic_consume(LONG, lambda _message: None)
        yield broker


def on_terminal(broker: Broker, *words: str, columns: int) -> str:
    terminal = Terminal(command(*words), environment(SHARDMQ_URL=broker.url), columns)
    try:
        assert terminal.wait() == 0, terminal.text
        return terminal.text
    finally:
        terminal.close()


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("noun", ["queue", "exchange", "binding", "user", "connection", "channel", "consumer"])
def test_no_name_is_wrapped_or_cut(full: Broker, noun: str, columns: int) -> None:
    with shardmq.connect(full.url) as connection:
        rows = connection.topology(f"{noun}s")
    lines = on_terminal(full, noun, "list", columns=columns).splitlines()
    own = {"binding": "source", "consumer": "queue", "channel": "connection"}.get(noun, "name")
    for row in rows:
        if row.get("user") == "guest":
            continue  # connections of this moment; those of the listing itself come and go
        assert any(str(row[own]) in line for line in lines), row[own]
    longest = max(len(str(row[own])) for row in rows)
    assert all(len(line) <= max(columns, longest) for line in lines)


@pytest.mark.parametrize("columns", [80, 100])
def test_status_shows_whole_names_in_lines_that_fit(full: Broker, columns: int) -> None:
    shown = on_terminal(full, "status", "--interval", "0.1", columns=columns)
    assert all(any(name in line for line in shown.splitlines()) for name in ("short", LONG, WIDE, *full.pids))
    assert all(len(line) <= columns for line in shown.splitlines() if WIDE not in line)


def test_columns_that_do_not_fit_are_named_below_the_table(full: Broker) -> None:
    shown = on_terminal(full, "queue", "list", columns=80)
    assert "not shown for want of room: ready, unacked, delayed, consumers, features" in shown
    wide = on_terminal(full, "queue", "list", "--filter", "name=short", columns=100)
    assert "not shown" not in wide
    assert "overflow=reject-publish" in wide
    assert "1 of 3 queues" in wide


def test_a_table_is_never_wider_than_the_terminal_but_for_one_name() -> None:
    columns = (*names("name"), *numbers("ready"), Column("features", is_wrapped=True))
    rows = [{"name": "n" * 20, "ready": 1000, "features": ["durable", "lazy", "max-length=10"]}]
    for width in range(10, 60):
        _, needed = Table("queues", columns, rows).fitted(width)
        assert needed == (42 if width >= 42 else 27 if width >= 27 else 20)


@pytest.mark.parametrize("key", ["00ff", "ab" * 60])
def test_what_a_store_check_finds_and_its_repair_are_whole_at_80_columns(key: str) -> None:
    finding = Finding(
        store="shard-12",
        file=f"/{LONG}/shard-12/data.mdb",
        what="row is not what was written",
        database="segments",
        key=key,
        title=f"queue '{LONG[:40]}' in vhost '/'",
        mend="deletes the row; 10 messages are lost: 20 to 29",
    )
    group, needed = Table("found", FINDING_COLUMNS, [finding.table()]).fitted(80)
    assert needed <= 80
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        print_fitted(console, group, needed)
    shown = capture.get()
    assert all(len(line) <= 80 for line in shown.splitlines())
    words = [*finding.what.split(), *finding.title.split(), *finding.mend.split()]
    assert all(word in shown for word in words)
    assert (key in shown) == (len(key) < 20)
    assert ("not shown for want of room: place" in shown) == (len(key) > 20)


def test_a_fact_is_a_line_whatever_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts("done", {"rows": "1,000", "transaction": WIDE})
    assert capsys.readouterr().out == f"rows\t1,000\ntransaction\t{WIDE}\n"


def test_in_a_pipe_a_row_is_a_line_with_tabs(full: Broker) -> None:
    listed = subprocess.run(
        command("queue", "list", "--filter", "name=inv*"),
        env=environment(SHARDMQ_URL=full.url),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    features = "durable, max-length=1000, overflow=reject-publish"
    assert listed.stdout == f"{LONG}\t0\t1\t0\t1\t{features}\n"


def test_in_a_pipe_status_is_a_line_for_each_process_and_queue(full: Broker) -> None:
    shown = subprocess.run(
        command("status", "--interval", "0.1"),
        env=environment(SHARDMQ_URL=full.url),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert {fields[1] for fields in lines if fields[0] == "process"} == set(full.pids)
    assert [fields[2] for fields in lines if fields[:2] == ["queue", LONG]] == ["0"]


@pytest.mark.usefixtures("at", "full")
def test_rows_and_columns_can_be_chosen(printed: Callable[..., bytes]) -> None:
    names_and_ready = ("queue", "list", "--sort", "-unacked,name", "--columns", "name,unacked")
    assert printed(*names_and_ready).decode() == f"{LONG}\t1\nshort\t0\n{WIDE}\t0\n"
    assert json.loads(printed(*names_and_ready, "--filter", "unacked>0", "--json")) == [{"name": LONG, "unacked": 1}]
    whole = json.loads(printed("queue", "list", "--filter", "name=short", "--json"))
    assert whole[0]["arguments"] == {"x-max-length": 1000, "x-overflow": "reject-publish"}


@pytest.mark.usefixtures("at", "full")
def test_a_column_that_does_not_exist_is_refused_with_a_guess(refused: Callable[..., str]) -> None:
    assert "Did you mean 'ready'?" in refused("queue", "list", "--sort", "redy", code=2)
