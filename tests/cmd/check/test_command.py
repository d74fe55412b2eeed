"""`shardmq check` over a real broker: what is well ends with 0, what is not with the code of its limit."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


@pytest.mark.usefixtures("at")
def test_a_well_broker_passes_the_checks_of_itself(printed: Printed) -> None:
    assert printed("check", "alive", "--seconds", "30,60").startswith(b"SHARDMQ ALIVE OK - a message came back")
    assert printed("check", "alarms") == b"SHARDMQ ALARMS OK - no alarm is on | alarms=0;1;1\n"
    assert printed("check", "shards") == b"SHARDMQ SHARDS OK - all shards are reached | away=0;1;1\n"
    assert b"disk_free=" in printed("check", "disk", "--free-gb", "0,0")
    assert b"DISK CRITICAL" in printed("check", "disk", "--free-gb", "9e9,9e9", code=2)


@pytest.mark.usefixtures("at")
def test_messages_and_consumers_of_a_queue_are_held_against_their_limits(printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "orders")
    assert b"DEAD-LETTERS OK" in printed("check", "dead-letters", "orders")
    for _ in range(2):
        printed("publish", "orders", "x")
    assert b"| ready=2;3;9 " in printed("check", "queue", "orders", "--ready", "3,9")
    assert b"QUEUE WARNING" in printed("check", "queue", "orders", "--ready", "2,9", code=1)
    found = parsed("check", "queue", "orders", "--ready", "1,2", code=2)
    assert (found["status"], found["measures"][0]["value"], found["measures"][0]["critical"]) == ("CRITICAL", 2, 2)
    assert b"consumers=0;1:;1:" in printed("check", "consumers", "orders", code=2)
    assert b"messages=2;1;1000" in printed("check", "dead-letters", "orders", code=1)
    shown = printed("check", "dead-letters", "orders", "--format", "prometheus", code=1).decode()
    assert 'shardmq_check_status{check="dead-letters"} 1\n' in shown
    assert b"no queue 'missing'" in printed("check", "queue", "missing", code=2)


def test_what_cannot_be_counted_while_a_shard_is_away_is_unknown(
    start_broker: Callable[..., Broker], printed: Printed, parsed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(shards=2)
    monkeypatch.setenv("SHARDMQ_URL", broker.url)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(20):
            channel.queue_declare(f"dead-{number}", durable=True)
        shards = {row["name"]: row["shard"] for row in connection.topology("queues")}
        stays, leaves = (next(name for name, at in shards.items() if at == shard) for shard in (0, 1))
        channel.basic_publish("", stays, b"x")
    os.kill(broker.pid, signal.SIGSTOP)  # so that nobody starts the shard again meanwhile
    broker.kill("shard-1", signal.SIGSTOP)
    try:
        found = parsed("check", "consumers", leaves, code=3)
        assert (found["status"], found["measures"]) == ("UNKNOWN", [])
        assert f"queue '{leaves}' is away" in found["text"]
        said = printed("check", "dead-letters", stays, leaves, "--messages", "2,3", code=3).decode()
        assert f"DEAD-LETTERS UNKNOWN - '{stays}' 1, queue '{leaves}' is away | messages=1;2;3" in said
        assert b"DEAD-LETTERS CRITICAL" in printed("check", "dead-letters", leaves, stays, "--messages", "1,1", code=2)
        assert b"is away" in printed("check", "queue", leaves, "--ready", "1,2", code=2)
    finally:
        broker.kill("shard-1", signal.SIGCONT)
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.usefixtures("at")
def test_the_lag_of_a_group_is_held_against_its_limits(printed: Printed) -> None:
    printed("queue", "declare", "journal", "-a", "x-queue-type=stream")
    for number in range(3):
        printed("publish", "journal", f"line {number}")
    printed("group", "commit", "journal", "billing", "0=1")
    assert b"lag=2;1000;100000" in printed("check", "group", "journal", "billing")
    assert b"GROUP CRITICAL" in printed("check", "group", "journal", "billing", "--members", "1,1", code=2)
    assert b"no group 'nobody'" in printed("check", "group", "journal", "nobody", code=2)


def test_a_broker_that_does_not_answer_is_critical_to_alive_and_unknown_to_others(printed: Printed) -> None:
    nowhere = ("--url", "shardmq://127.0.0.1:1")
    assert json.loads(printed("check", "alive", *nowhere, "--json", code=2))["status"] == "CRITICAL"
    assert printed("check", "alarms", *nowhere, code=3).startswith(b"SHARDMQ ALARMS UNKNOWN - no broker answers")


@pytest.mark.usefixtures("at")
def test_limits_in_the_wrong_order_are_refused(refused: Callable[..., str]) -> None:
    assert "at most the critical" in refused("check", "queue", "q", "--ready", "9,3", code=2)
    assert "WARNING,CRITICAL" in refused("check", "queue", "q", "--ready", "nan", code=2)
    assert "no number" in refused("check", "queue", "q", "--ready", "nan,nan", code=2)


@pytest.mark.usefixtures("at")
def test_findings_are_those_of_the_management_process(printed: Printed) -> None:
    assert printed("check", "findings").startswith(b"SHARDMQ FINDINGS OK - nothing is wrong")
    printed("queue", "declare", "unread")
    printed("publish", "unread", "x")
    assert b"queue 'unread' has messages and no consumers (no-consumers)" in printed(
        "check", "findings", "--after", "0", code=1
    )
