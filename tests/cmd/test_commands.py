"""The commands that talk to a broker, as a user runs them."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.admin.rates import with_rates
from shardmq.cmd.admin.status import logins
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.terminal.values import counted, duration, size

from .interrupts import heeding_interrupts

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


@pytest.mark.usefixtures("at")
def test_publishing_to_a_queue_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["publish", "nowhere", "x"]) == 1
    assert "there is no queue 'nowhere'" in capsys.readouterr().err


@pytest.mark.usefixtures("at")
def test_properties_and_headers_travel_along(parsed: Parsed, printed: Printed, refused: Callable[..., str]) -> None:
    printed("queue", "declare", "ranked", "-a", "x-max-priority=5")
    for priority in ("1", "5"):
        printed(
            "publish",
            "ranked",
            priority,
            "--priority",
            priority,
            "--expiration",
            "60000",
            "--header",
            "n=7",
            "--property",
            "reply_to=answers",
            "--property",
            "message_id=m" + priority,
        )
    first = parsed("consume", "ranked", "-n", "1", "--prefetch", "1", "--exclusive", "--priority", "3")
    assert (first["body"], first["message_id"]) == ("5", "m5")
    assert first["properties"] == {
        "priority": 5,
        "expiration": "60000",
        "headers": {"n": 7},
        "reply_to": "answers",
        "message_id": "m5",
    }
    assert "color" in refused("publish", "ranked", "x", "--property", "color=red", code=2)


@pytest.mark.usefixtures("at")
def test_mandatory_messages_that_no_queue_takes_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["publish", "nobody", "x", "--exchange", "amq.direct"]) == 0
    assert run(["publish", "nobody", "x", "--exchange", "amq.direct", "--mandatory"]) == 1
    assert "NO_ROUTE" in capsys.readouterr().err


@pytest.mark.usefixtures("at")
def test_delayed_messages_come_later(printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "later")
    printed("publish", "later", "x", "--delay", "300")
    (row,) = [row for row in parsed("queue", "list") if row["name"] == "later"]
    assert (row["ready"], row["delayed"]) == (0, 1)
    assert printed("consume", "later", "-n", "1", "--wait", "5") == b"x\n"


@pytest.mark.usefixtures("at")
def test_consuming_acks_unless_told_otherwise(printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "letters")
    printed("publish", "letters", "a", "--content-type", "text/plain")
    message = parsed("consume", "letters", "--no-ack", "--count", "1")
    assert message["body"] == "a"
    assert message["routing_key"] == "letters"
    assert message["redelivered"] is False
    assert message["properties"] == {"content_type": "text/plain"}
    assert message["persistent"] is True
    assert parsed("consume", "letters", "--count", "1")["redelivered"] is True
    assert printed("consume", "letters", "--wait", "0.1") == b""


@pytest.mark.usefixtures("at")
def test_consuming_takes_no_more_than_asked_for(printed: Printed, parsed: Parsed, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    printed("queue", "declare", "numbers")
    published = parsed("publish", "numbers", "--lines", "--file", str(tmp_path / "lines"))
    assert published["published"] == 1000
    first = printed("consume", "numbers", "--count", "300")
    rest = printed("consume", "numbers", "--wait", "0.5")
    assert (first + rest).split() == [b"%d" % number for number in range(1000)]
    assert first.count(b"\n") == 300


@pytest.mark.usefixtures("at")
def test_consuming_fewer_than_asked_for_is_a_failure(printed: Printed) -> None:
    printed("queue", "declare", "sparse")
    printed("publish", "sparse", "only")
    assert printed("consume", "sparse", "--count", "2", "--wait", "0.1", code=1) == b"only\n"


def test_bytes_pass_from_stdin_to_stdout_unharmed(at: Broker) -> None:
    blob = bytes(range(256))
    environ = environment(SHARDMQ_URL=at.url)
    with shardmq.connect(at.url) as connection:
        connection.channel().queue_declare("blobs", durable=True)
    subprocess.run(command("publish", "blobs"), env=environ, input=blob, timeout=30, check=True, capture_output=True)
    got = subprocess.run(
        command("consume", "blobs", "-n", "1"), env=environ, timeout=30, check=True, capture_output=True
    )
    assert got.stdout == blob + b"\n"


def test_following_a_queue_goes_on_until_interrupted(at: Broker) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("stream", durable=True)
        with heeding_interrupts():
            follower = subprocess.Popen(
                command("consume", "stream", "--follow", "--url", at.url),
                env=environment(),
                stdout=subprocess.PIPE,
            )
        try:
            assert follower.stdout is not None
            for body in (b"one", b"two"):
                channel.basic_publish("", "stream", body)
                assert follower.stdout.readline() == body + b"\n"
            os.kill(follower.pid, signal.SIGINT)
            assert follower.wait(10) == 130
        finally:
            follower.kill()
            follower.wait()
            if follower.stdout is not None:
                follower.stdout.close()


def test_status_shows_every_process_and_queue(at: Broker, printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "seen")
    printed("publish", "seen", "abc", "--count", "7")
    state = parsed("status", "--interval", "0.2")
    processes = {row["process"]: row for row in state["processes"]}
    assert {name: row["pid"] for name, row in processes.items()} == at.pids
    assert all(row["rss_bytes"] < 100 << 20 for row in processes.values())
    assert processes["shard-0"]["store"]["file_bytes"] > 0
    queue = next(row for row in state["queues"] if row["name"] == "seen")
    assert (queue["ready"], queue["unacked"], queue["consumers"]) == (7, 0, 0)
    assert queue["publish_rate"] == 0
    shown = printed("status", "--interval", "0.1").decode()
    assert all(name in shown for name in (*at.pids, "seen"))


def test_status_of_a_user_without_monitoring_tells_of_what_is_theirs(at: Broker, printed: Printed) -> None:
    printed("user", "add", "clerk", "--password", "secret")
    printed("permission", "set", "clerk", "--vhost", "/", "", "", "")
    printed("queue", "declare", "of-all")
    own = f"shardmq://clerk:secret@127.0.0.1:{at.port}/"
    shown = printed("status", "--interval", "0.1", "--url", own).decode()
    assert "this user has 1 connection, 1 channel and 0 consumers" in shown
    assert "of-all" in shown
    assert not any(name in shown for name in at.pids)
    assert b'"processes":[]' in printed("status", "--interval", "0.1", "--url", own, "--json")


def test_status_tells_of_refused_logins_where_there_are_any() -> None:
    assert logins([{"logins_refused": 0, "logins_delayed": 0, "logins_waiting": 0}, {}]) == []
    rows = [{"logins_refused": 1000, "logins_delayed": 7, "logins_waiting": 1}] * 2
    assert logins(rows) == ["refused since the gateways began: 2,000 logins, 14 of them late; waiting now: 2"]


def test_rates_come_from_two_looks() -> None:
    def look(published: int, cpu: float, pid: int = 7) -> dict[str, Any]:
        queue = {"id": 1, "published": published, "delivered": 0, "acked": 0}
        return {"processes": [{"pid": pid, "cpu_seconds": cpu}], "queues": [queue]}

    state = with_rates(look(100, 1.0), look(300, 1.5), 2.0)
    assert state["queues"][0]["publish_rate"] == 100.0
    assert state["processes"][0]["cpu_percent"] == 25.0
    restarted = with_rates(look(100, 1.0), look(50, 0.1, pid=8), 1.0)
    assert restarted["queues"][0]["publish_rate"] == 50.0
    assert restarted["processes"][0]["cpu_percent"] is None


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000_000_000, "2.0 TB")]
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (61, "1m 1s"), (3600, "1h 0m"), (90_000, "1d 1h")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 queues"), (1, "1 queue"), (2000, "2,000 queues")])
def test_counts_read_well(number: int, text: str) -> None:
    assert counted(number, "queue") == text
