"""`shardmq publish`, as a user runs it."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


@pytest.mark.usefixtures("at")
def test_publishing_to_a_queue_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["publish", "nowhere", "x"]) == 1
    assert "there is no queue 'nowhere'" in capsys.readouterr().err


@pytest.mark.usefixtures("at")
def test_topics_are_published_to_by_their_exchange_with_tags_to_choose_by(
    parsed: Parsed, printed: Printed, refused: Callable[..., str]
) -> None:
    printed("topic", "declare", "orders-of-all")
    assert "`shardmq publish --exchange orders-of-all KEY BODY`" in refused("publish", "orders-of-all", "an order")
    for tag in ("paid", "lost"):
        parsed("publish", "customer", tag, "--exchange", "orders-of-all", "--tag", tag)
    assert printed("consume", "orders-of-all-0", "--from", "earliest", "--tag", "paid") == b"paid\n"
    assert "--group" in refused("consume", "orders-of-all")
    printed("topic", "delete", "orders-of-all", "--yes")


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


@pytest.mark.parametrize("options", [(), ("--mandatory",)])
def test_of_messages_of_which_some_are_refused_and_some_come_back_both_are_counted(
    at: Broker, options: tuple[str, ...]
) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.exchange_declare("mixed", "fanout")
        none_fits = {"x-max-length": 0, "x-overflow": "reject-publish"}
        full = channel.queue_declare(exclusive=True, arguments=none_fits).queue
        seen = channel.queue_declare(exclusive=True).queue
        for queue in (full, seen):
            channel.queue_bind(queue, "mixed")
        publishing = subprocess.Popen(
            command("publish", "key", "--exchange", "mixed", "--lines", *options),
            env=environment(SHARDMQ_URL=at.url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert publishing.stdin is not None
        publishing.stdin.write(b"refused\n")
        publishing.stdin.flush()
        assert next(channel.consume(seen, inactivity_timeout=20)).body == b"refused"
        for queue in (full, seen):
            channel.queue_unbind(queue, "mixed")
        out, said = publishing.communicate(b"back\nback, too\n", timeout=30)
        channel.exchange_delete("mixed")
    assert (publishing.returncode, out) == (1, b"")
    assert b"1 message was refused, 2 messages came back; the first: " in said
    assert b"Warning" not in said


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


def test_a_body_without_quotes_is_answered_with_the_line_that_was_meant(refused: Callable[..., str]) -> None:
    said = refused("publish", "orders", "it's", "a", "body", code=2)
    assert """quote it: shardmq publish orders 'it'"'"'s a body'""" in said
    assert "there are 2 more" in said
