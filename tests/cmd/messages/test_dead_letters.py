"""`shardmq dead-letters`, as a user runs it."""

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def channel(at: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(at.url) as connection:
        yield connection.channel()


def dead(queue: str, reason: str = "expired", at: int = 1_000_000_000) -> shardmq.Properties:
    death = {"queue": queue, "reason": reason, "count": 1, "time": datetime.fromtimestamp(at, UTC)}
    return shardmq.Properties(headers={"x-death": [death], "tenant": "acme"})


def bodies(channel: shardmq.Channel, queue: str) -> list[bytes]:
    return [bytes(message.body) for message in channel.queue_peek(queue, 0, 1000)]


def test_dead_letters_are_counted_by_queue_reason_and_age(
    channel: shardmq.Channel, parsed: Parsed, printed: Printed, refused: Refused
) -> None:
    for name in ("crypt", "vault", "alive"):
        channel.queue_declare(name, durable=True)
    now = int(datetime.now(UTC).timestamp())
    channel.basic_publish("", "crypt", b"old", dead("orders", "rejected"))
    channel.basic_publish("", "vault", b"old", dead("mail"))
    channel.basic_publish("", "vault", b"new", dead("mail", at=now))
    channel.basic_publish("", "alive", b"")

    def listed(*words: str) -> list[tuple[str, str, str, int]]:
        rows = parsed("dead-letters", "list", *words)
        return [(row["queue"], row["reason"], row["source"], row["messages"]) for row in rows]

    crypt = ("crypt", "rejected", "orders", 1)
    assert listed() == [crypt, ("vault", "expired", "mail", 2)]
    assert listed("vault") == [("vault", "expired", "mail", 2)]
    assert listed("--newer-than", "1h") == [("vault", "expired", "mail", 1)]
    assert listed("--older-than", "60m", "--source", "mail") == [("vault", "expired", "mail", 1)]
    assert listed("--reason", "rejected") == listed("--filter", "messages<2") == [crypt]
    line = printed("dead-letters", "list", "crypt").decode().split("\t")
    assert line[:4] == ["crypt", "rejected", "orders", "1"]
    assert "write it as 90s, 10m, 1h or 7d" in refused("dead-letters", "list", "--older-than", "long", code=2)


def test_chosen_dead_letters_are_redriven_after_a_dry_run(
    channel: shardmq.Channel, parsed: Parsed, printed: Printed
) -> None:
    for name in ("grave", "work"):
        channel.queue_declare(name, durable=True)
    for number in range(5):
        channel.basic_publish("", "grave", b"%d" % number, dead("work", "rejected" if number % 2 else "expired"))
    channel.basic_publish("", "grave", b"homeless", dead("gone"))
    channel.basic_publish("", "grave", b"never died")
    dry = parsed("dead-letters", "redrive", "grave", "--reason", "rejected", "--dry-run")
    assert (dry["dry_run"], dry["redriven"], dry["targets"]) == (True, 2, {"work": 2})
    assert bodies(channel, "work") == []
    said = printed("dead-letters", "redrive", "grave", "--reason", "rejected").decode()
    assert said == "Redrove 2 messages from queue 'grave'\n  2 to queue 'work'\n"
    assert bodies(channel, "work") == [b"1", b"3"]
    assert parsed("dead-letters", "redrive", "grave", "--limit", "1", "--header", "tenant=acme")["redriven"] == 1
    assert b"1 message stays, as the queue it died in is gone" in printed("dead-letters", "redrive", "grave")
    assert bodies(channel, "work") == [b"1", b"3", b"0", b"2", b"4"]
    assert bodies(channel, "grave") == [b"homeless", b"never died"]


def test_what_a_dry_run_has_printed_is_redriven_and_nothing_else(
    channel: shardmq.Channel, printed: Printed, parsed: Parsed, refused: Refused, tmp_path: Path
) -> None:
    for name in ("ditch", "field", "other"):
        channel.queue_declare(name, durable=True)
    for number in range(6):
        channel.basic_publish("", "ditch", b'{"n": %d}' % number, dead("field"))
    file = tmp_path / "shown.json"
    wanted = ("--where", "$.n > 2", "--regex", "[35]", "--header", "tenant=acme")
    file.write_bytes(printed("dead-letters", "redrive", "ditch", *wanted, "--dry-run", "--json"))
    (row,) = parsed("dead-letters", "list", "ditch", *wanted)
    assert row["messages"] == 2
    channel.basic_publish("", "ditch", b'{"n": 53}', dead("field"))
    answer = parsed("dead-letters", "redrive", "ditch", "--shown", str(file))
    assert (answer["redriven"], answer["targets"]) == (2, {"field": 2})
    assert bodies(channel, "field") == [b'{"n": 3}', b'{"n": 5}']
    assert "has messages of queue 'ditch'" in refused("dead-letters", "redrive", "other", "--shown", str(file), code=2)


def test_a_redrive_that_is_done_does_nothing_under_its_id(
    channel: shardmq.Channel, parsed: Parsed, printed: Printed
) -> None:
    for name in ("once", "mail"):
        channel.queue_declare(name, durable=True)
    channel.basic_publish("", "once", b"first", dead("mail"))
    assert parsed("dead-letters", "redrive", "once", "--id", "mine")["redriven"] == 1
    channel.basic_publish("", "once", b"second", dead("mail"))
    assert b"redrive 'mine' was done before" in printed("dead-letters", "redrive", "once", "--id", "mine")
    assert bodies(channel, "once") == [b"second"]


def test_a_redrive_that_breaks_off_says_how_it_is_finished(
    at: Broker, channel: shardmq.Channel, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shardmq.connect(at.url) as connection:
        connection.user_put("fixer", "fixes")
        monkeypatch.setenv("SHARDMQ_URL", at.url.replace("guest:guest", "fixer:fixes"))
        connection.permission_put("fixer", "/", "", "", "")
        for name in ("-grave", "reports"):
            channel.queue_declare(name, durable=True)
        assert "to finish it" not in refused("dead-letters", "redrive", "--", "-grave")  # it has not begun
        connection.permission_put("fixer", "/", "", ".*", ".*")
        with channel.publisher() as publisher:
            for number in range(500):
                properties = dead("reports")
                if number == 250:  # users other than guest may not publish this one, unless they may impersonate
                    properties = shardmq.Properties(headers=properties.headers, user_id="guest")
                publisher.publish("", "-grave", b"%d" % number, properties)
        said = refused("dead-letters", "redrive", "--limit", "450", "--", "-grave")
        assert "Warning: 200 messages redriven so far" in said
        (line,) = [found.partition(": shardmq ")[2] for found in said.splitlines() if found.startswith("Warning")]
        assert "--limit 250" in line
        connection.user_put("fixer", "fixes", tags=["impersonator"])
    assert run(shlex.split(line)) == 0
    assert [*map(int, bodies(channel, "reports"))] == list(range(450))
    assert len(bodies(channel, "-grave")) == 50
