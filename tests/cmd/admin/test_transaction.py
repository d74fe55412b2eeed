"""Transactions on the command line: what is undecided, what is staged, and giving it up."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.admin.status import transactions
from shardmq.cmd.admin.transaction import COLUMNS
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def channel(at: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        for name in ("left", "right"):
            channel.queue_declare(name, durable=True)
        yield channel


def named(parsed: Parsed, name: str) -> dict[str, Any]:
    (row,) = [row for row in parsed("transaction", "list") if row["name"] == name]
    assert isinstance(row, dict)
    return row


def test_what_is_staged_is_listed_and_counted_and_gone_when_it_is_given_up(
    channel: shardmq.Channel, printed: Printed, parsed: Parsed
) -> None:
    transaction = channel.transaction("orders", timeout_ms=90_000)
    transaction.publish("", "left", b"x" * 1000)
    transaction.publish_many("", "right", [b"y"] * 9)
    transaction.seal()
    row = named(parsed, "orders")
    assert (row["user"], row["vhost"], row["timeout_ms"], row["messages"]) == ("guest", "/", 90_000, 10)
    assert row["bytes"] > 1000
    assert row["attempts"] >= 1
    assert b"orders" in printed("transaction", "list")
    state = parsed("status", "--interval", "0.1")
    staged = [each for process in state["processes"] if process["role"] == "shard" for each in process["staged"]]
    assert sum(each["messages"] for each in staged if each["number"] == row["number"]) == 10
    assert b"staged: 10 messages" in printed("status", "--interval", "0.1")
    assert b"Aborted transaction 'orders'" in printed("transaction", "abort", "orders", "--yes")
    assert parsed("transaction", "list") == []
    assert b"staged" not in printed("status", "--interval", "0.1")
    assert channel.queue_declare("left", durable=True).messages == 0


@pytest.mark.usefixtures("channel")
def test_aborting_a_transaction_that_does_not_exist_is_a_failure(refused: Refused) -> None:
    said = refused("transaction", "abort", "never-begun", "--yes")
    assert said == "Error: there is no undecided transaction 'never-begun'; `shardmq transaction list` shows all\n"


@pytest.mark.usefixtures("at")
def test_giving_up_wants_to_be_sure(refused: Refused) -> None:
    assert "--yes" in refused("transaction", "abort", "orders", code=2)


def test_a_committed_transaction_is_not_given_up(channel: shardmq.Channel, refused: Refused, parsed: Parsed) -> None:
    with channel.transaction("settled") as transaction:
        transaction.publish("", "left", b"x")
    assert "committed" in refused("transaction", "abort", "settled", "--yes")
    assert parsed("consume", "left", "-n", "1")["body"] == "x"


def test_times_and_bytes_read_well() -> None:
    row = {"name": "n", "idle_ms": 61_000, "timeout_ms": 86_400_000, "bytes": 1500}
    columns = {column.name: column for column in COLUMNS}
    assert [columns[name].shown(row) for name in ("idle", "timeout", "bytes")] == ["1m 1s", "1d 0h", "1.5 kB"]
    assert columns["bytes"].shown({**row, "bytes": None}) == ""


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        ([{"role": "shard", "staged": []}, {"role": "coordinator", "transactions": 0, "concluding": 0}], []),
        ([{"role": "shard"}, {"role": "gateway"}], []),
        (
            [
                {"role": "shard", "staged": [{"messages": 3, "bytes": 2000}, {"messages": 4, "bytes": 1}]},
                {"role": "shard", "staged": [{"messages": 1, "bytes": 0}]},
                {"role": "coordinator", "transactions": 1},
            ],
            ["staged: 8 messages, 2.0 kB; undecided: 1 transaction (`shardmq transaction list`)"],
        ),
        (
            [{"role": "coordinator", "transactions": 0, "concluding": 2}],
            ["decided, and not yet so on every shard: 2 transactions"],
        ),
    ],
    ids=["none", "another version", "staged", "concluding"],
)
def test_status_tells_of_transactions_where_there_are_any(processes: list[dict[str, Any]], said: list[str]) -> None:
    assert transactions(processes) == said
