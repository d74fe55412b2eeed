"""Typos are failures: an exit code, and a sentence that names what does not exist."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.pseudo_terminal import Terminal

Printed = Callable[..., bytes]
Parsed = Callable[..., object]
Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


@pytest.fixture(scope="module")
def bound(broker: Broker) -> Broker:
    """A queue that is bound to an exchange."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "topic", durable=True)
        for name in ("sports", "culture"):
            channel.queue_declare(name, durable=True)
        channel.queue_bind("sports", "news", "sports.#", {"n": 1})
    return broker


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize(
    "words",
    [
        ("news", "sports", "sport.#", "-a", "n=1"),
        ("news", "sports", "sports.#"),
        ("news", "culture", "sports.#", "-a", "n=1"),
        ("newz", "sports", "sports.#", "-a", "n=1"),
        ("news", "sports", "sports.#", "-a", "n=1", "--to-exchange"),
    ],
)
def test_a_binding_that_was_never_made_is_not_deleted(refused: Refused, parsed: Parsed, words: tuple[str, ...]) -> None:
    said = refused("binding", "delete", *words)
    assert "is not bound to exchange" in said
    assert "NOT_FOUND" not in said, "no broker spoke"
    assert len(parsed("binding", "list", "--filter", "source=news")) == 1  # type: ignore[arg-type]


@pytest.mark.usefixtures("bound")
def test_the_binding_itself_is_deleted(printed: Printed, parsed: Parsed) -> None:
    printed("binding", "declare", "news", "culture", "culture.*")
    shown = printed("binding", "delete", "news", "culture", "culture.*").decode()
    assert shown == "Unbound queue 'culture' from exchange 'news' with routing key 'culture.*'\n"
    assert parsed("binding", "list", "--filter", "destination=culture") == []


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "delete", "nope", "--yes"),
        ("queue", "purge", "nope", "--yes"),
        ("queue", "peek", "nope"),
        ("queue", "move", "nope", "nope2"),
        ("exchange", "delete", "nope"),
        ("user", "delete", "nope", "--yes"),
        ("user", "tags", "nope", "administrator"),
        ("user", "limits", "nope"),
        ("vhost", "delete", "nope", "--yes"),
        ("vhost", "limits", "nope"),
        ("permission", "clear", "nope"),
        ("connection", "close", "nope"),
        ("transaction", "abort", "nope", "--yes"),
        ("publish", "nope", "x"),
        ("consume", "nope"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_does_not_exist_is_named(refused: Refused, words: tuple[str, ...]) -> None:
    said = refused(*words)
    assert "'nope'" in said
    assert said.startswith("Error: ")
    assert said.count("\n") == 1


def test_a_folder_without_keys_is_a_failure(refused: Refused, tmp_path: Path) -> None:
    assert f"{tmp_path} has no keys" in refused("keys", "list", "--dir", str(tmp_path))
    assert "there is no folder" in refused("keys", "list", "--dir", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (("quue", "list"), "Did you mean 'queue'?"),
        (("queue", "lst"), "Did you mean 'list'?"),
        (("queue", "list", "--jsn"), "Did you mean '--json'?"),
        (("up", "--shard", "2"), "--shards"),
        (("store", "chek"), "Did you mean 'check'?"),
    ],
)
def test_commands_and_options_that_do_not_exist_are_guessed(
    refused: Refused, words: tuple[str, ...], guess: str
) -> None:
    assert guess in refused(*words, code=2)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("queue", "delete", "kept"), "deletes its messages"),
        (("queue", "purge", "kept"), "removes its messages"),
        (("user", "delete", "kept"), "deletes the permissions"),
        (("vhost", "delete", "kept"), "deletes its queues"),
        (("transaction", "abort", "kept"), "loses what was published"),
    ],
    ids=lambda words: " ".join(words[:2]) if isinstance(words, tuple) else "",
)
def test_what_is_lost_for_good_is_asked_for(at: Broker, refused: Refused, words: tuple[str, ...], what: str) -> None:
    around = environment(SHARDMQ_URL=at.url)
    unasked = subprocess.run(
        command(*words), env=around, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    assert unasked.returncode == 2
    assert what in unasked.stderr
    assert "--yes" in unasked.stderr
    terminal = Terminal(command(*words), around)
    try:
        assert "'kept'" in terminal.read_until("[y/N]")
        terminal.type("n\n")
        assert terminal.wait() == 130
    finally:
        terminal.close()
    assert "'kept'" in refused(*words, "--yes"), "nobody asks, and there is none"


def test_yes_on_a_terminal_deletes_the_queue(at: Broker, printed: Printed, parsed: Parsed) -> None:
    printed("queue", "declare", "doomed")
    printed("publish", "doomed", "x", "--count", "3")
    terminal = Terminal(command("queue", "delete", "doomed"), environment(SHARDMQ_URL=at.url))
    try:
        assert terminal.read_until("[y/N]").startswith("Delete queue 'doomed' with its messages?")
        terminal.type("y\n")
        assert terminal.wait() == 0
        assert "Deleted queue 'doomed' with 3 messages" in terminal.text
    finally:
        terminal.close()
    assert parsed("queue", "list", "--filter", "name=doomed") == []


def test_publishing_warns_when_no_queue_takes_the_messages(at: Broker) -> None:
    def publish(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command("publish", "nobody", "x", *words),
            env=environment(SHARDMQ_URL=at.url),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    one = publish("--exchange", "amq.direct")
    assert one.returncode == 0
    assert one.stdout.startswith("Published 1 message in ")
    assert (
        one.stderr == "Warning: the message was dropped: exchange 'amq.direct' has no queue for routing key 'nobody'\n"
    )
    many = publish("--exchange", "amq.direct", "--count", "3", "--json")
    assert '"published":3' in many.stdout
    assert many.stderr.startswith("Warning: messages were dropped: ")
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("somebody", durable=True)
        channel.queue_bind("somebody", "amq.direct", "nobody")
    assert publish("--exchange", "amq.direct").stderr == ""
