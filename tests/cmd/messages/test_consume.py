"""`shardmq consume`, as a user runs it."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.interrupts import heeding_interrupts

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


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
    assert printed("consume", "sparse", "--count", "2", "--wait", "1", code=1) == b"only\n"


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


@pytest.mark.usefixtures("at")
def test_streams_are_read_from_anywhere_and_by_groups_once(printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "tape", "-a", "x-queue-type=stream")
    printed("publish", "tape", "--header", "x-stream-filter-value=even", "0")
    for line in ("1", "2"):
        printed("publish", "tape", line)
    assert printed("consume", "tape", "-n", "3", "--from", "earliest", "--wait", "5") == b"0\n1\n2\n"
    assert printed("consume", "tape", "-n", "2", "--from", "1", "--wait", "5") == b"1\n2\n"
    assert printed("consume", "tape", "-n", "3", "--from", "2001-01-01", "--wait", "5") == b"0\n1\n2\n"
    assert printed("consume", "tape", "-n", "1", "--from", "earliest", "--tag", "even", "--wait", "5") == b"0\n"
    assert printed("consume", "tape", "--from", "latest", "--wait", "0.2") == b""
    once = ("consume", "tape", "--group", "once", "--from", "earliest")
    assert printed(*once, "-n", "2", "--wait", "5") == b"0\n1\n"
    assert printed(*once, "-n", "1", "--wait", "5") == b"2\n"
    assert printed(*once, "--wait", "0.2") == b""
    assert printed("consume", "tape", "--group", "turns", "--shared", "-n", "3", "--from", "0", "--wait", "5") == (
        b"0\n1\n2\n"
    )
    assert [row["type"] for row in parsed("group", "list") if row["topic"] == "tape"] == ["ordered", "shared"]


@pytest.mark.usefixtures("at")
def test_a_place_that_is_none_is_refused_with_those_that_are(refused: Callable[..., str]) -> None:
    assert "neither an offset" in refused("consume", "tape", "--from", "somewhere", code=2)
    assert "name it with --group" in refused("consume", "tape", "--shared", code=2)
