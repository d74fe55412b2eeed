"""`shardmq queue search` and `topic search`."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.cmd.interrupts import heeding_interrupts
from tests.cmd.pseudo_terminal import Terminal

Printed = Callable[..., bytes]

pytestmark = pytest.mark.usefixtures("at")


def found(output: bytes) -> list[tuple[int, int, str]]:
    rows = [json.loads(line) for line in output.splitlines()]
    return [(row["partition"], row["position"], row["body"]) for row in rows]


def test_messages_are_found_in_queues_and_topics(at: Broker, printed: Printed, refused: Callable[..., str]) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for number in range(20):
            properties = shardmq.Properties(headers={"tenant": "acme" if number % 2 else "other"})
            channel.basic_publish("", "orders", b'{"n":%d}' % number, properties)
        channel.topic_declare("events", 2)
        for name in ("events-0", "events-1"):
            channel.basic_publish("", name, name.encode())
        filters = ("--header", "tenant=acme", "--where", "$.n > 15", "--since", "1h", "--key", "ord*")
        assert found(printed("queue", "search", "orders", *filters, "--json")) == [
            *[(0, number, f'{{"n":{number}}}') for number in (17, 19)]
        ]
        assert found(printed("queue", "search", "orders", "--from", "3", "-n", "1", "--json")) == [(0, 3, '{"n":3}')]
        everywhere = found(printed("topic", "search", "events", "--text", "events", "--json"))
        assert everywhere == [(0, 0, "events-0"), (1, 0, "events-1")]
        one = printed("topic", "search", "events", "--partition", "1", "--regex", r"-\d$").decode()
        assert "events-1" in one
        assert "events-0" not in one
        assert "no regular expression" in refused("queue", "search", "orders", "--regex", "(")
        assert "neither an age" in refused("queue", "search", "orders", "--since", "soon", code=2)
        assert "not before --until" in refused("queue", "search", "orders", "--since", "1h", "--until", "2h", code=2)
        assert "NAME or NAME=VALUE" in refused("queue", "search", "orders", "--header", "", code=2)
        assert "no queue, stream or topic 'nothing'" in refused("queue", "search", "nothing")
        assert "no partition 4 of queue 'orders'" in refused("queue", "search", "orders", "--partition", "4")
        assert printed("queue", "search", "orders", "--id", "nobody", "--json") == b""


def test_a_message_steers_no_terminal(at: Broker, printed: Printed) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("hostile", durable=True)
        channel.basic_publish("", "hostile", b"a\tb\x1b]0;owned\x07\nc", shardmq.Properties(type="\x1b[2J"))
    terminal = Terminal(command("queue", "peek", "hostile", "--url", at.url), environment())
    try:
        assert terminal.wait() == 0
    finally:
        terminal.close()
    assert "type: \\x1b[2J" in terminal.text
    assert "b\\x1b]0;owned\\x07" in terminal.text
    assert b"b\x1b]0;owned\x07\nc" in printed("queue", "peek", "hostile")


def test_an_interrupted_search_says_where_it_goes_on(at: Broker) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("much", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "much", [b'{"n": 1}', *[b'[["a%d"]]' % number for number in range(200_000)]])
        words = [sys.executable, "-m", "shardmq", "queue", "search", "much", "--json", "--regex", r"^\{|(\d+)x\1"]
        for _ in range(20):  # where this process had to wait until the search was over, again
            with heeding_interrupts():
                searching = subprocess.Popen(
                    [*words, "--url", at.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            assert searching.stdout is not None
            assert searching.stderr is not None
            with searching:
                first = json.loads(searching.stdout.readline())  # of the first page: more come
                searching.send_signal(signal.SIGINT)
                said = searching.stderr.read()
            if searching.returncode:
                break
        channel.queue_delete("much")
    assert (first["position"], searching.returncode) == (0, 130)
    assert re.fullmatch(r"Found 1 message of [\d,]+ looked at in 'much'; --from \d+ goes on", said.strip())
