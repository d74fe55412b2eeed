"""The management process: supervised, alone, its port, and that a broker does not need it."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.management.browser import Browser, Refused


def test_a_process_that_ends_is_started_again_and_the_broker_goes_on(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.queue_declare("goes-on")
        managed.kill_and_wait("management")
        channel.basic_publish("", "goes-on", b"x")
        assert channel.queue_declare("goes-on", passive=True).messages == 1
    with Browser(managed.management_url) as browser:
        assert browser.get("/queues/%2F/goes-on")["messages"] == 1


@contextlib.contextmanager
def management(url: str) -> Iterator[str]:
    """A management process by itself; its URL."""
    words = ("management", "--url", url, "--management-port", "0")
    with subprocess.Popen(command(*words), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(20) == 0


def test_it_is_a_process_of_its_own_for_a_broker_anywhere(managed: Broker) -> None:
    with management(managed.url) as url, Browser(url) as browser:
        assert browser.get("/whoami")["name"] == "guest"


def test_a_broker_that_is_away_is_said_to_be() -> None:
    with management("shardmq://127.0.0.1:9/") as url, Browser(url) as browser:
        with pytest.raises(Refused, match="the broker cannot be reached") as refused:
            browser.get("/whoami")
        assert refused.value.status == 503


def test_a_port_that_was_chosen_and_is_taken_refuses_the_start(managed: Broker, tmp_path: Path) -> None:
    taken = managed.management_url.rpartition(":")[2].rstrip("/")
    words = ("up", "--port", "0", "--management-port", taken, "--data-dir", str(tmp_path / "data"))
    done = subprocess.run(command(*words), env=environment(), capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 78
    assert f"cannot listen on 127.0.0.1 port {taken}" in done.stderr
    assert "choose another --management-host or --management-port" in done.stderr
