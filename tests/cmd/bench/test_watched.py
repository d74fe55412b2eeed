"""`shardmq bench watched`, with a broker that has a management process."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.cmd.bench.settings import Settings
from shardmq.cmd.bench.trial import run as trial
from shardmq.cmd.bench.watched.command import ratios
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser
from tests.running import running


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(Broker(tmp_path_factory.mktemp("watched") / "data", shards=1, management=True)) as broker:
        yield broker


def test_browsers_are_answered_while_messages_are_measured(
    managed: Broker, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    file = tmp_path / "watched.json"
    options = ["--url", managed.url, "--management", managed.management_url, "--browsers", "8", "--rounds", "1"]
    assert run(["bench", "watched", *options, "--messages", "1000", "--record", str(file), "--json"]) == 0
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    assert figures["answers"] >= 1
    assert figures["scrapes"] >= 1
    assert figures["bulk_ratio"]["min"] > 0
    assert figures["p99_ratio"]["min"] > 0
    bulk, p99 = json.loads(file.read_text())["rows"]
    assert (bulk["ratio"], p99["watched"]) == (
        round(figures["bulk_ratio"]["median"], 2),
        round(figures["p99_watched_ms"]["median"], 2),
    )


def test_what_the_benchmarks_do_raises_no_findings(managed: Broker) -> None:
    modes = (("bulk", 50_000, 1.0), ("pipelined", 20_000, 1.0), ("sync", 100, 1.0), ("latency", 1000, 1000.0))
    is_done = threading.Event()
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def look() -> None:
        with Browser(managed.management_url) as browser:
            while not is_done.wait(0.3):
                found.update({(row["rule"], row["name"]): row for row in browser.get("/shardmq/findings?after=0")})

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for mode, messages, rate in modes:
            trial(Settings(mode, managed.url, messages, 100, 1, 1, 1, rate, False, 30.0), lambda *_counts: None)
    finally:
        is_done.set()
        looking.join()
    assert found == {}


def test_a_wrong_management_url_is_said(managed: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = ["--url", managed.url, "--management", "http://127.0.0.1:1", "--rounds", "1", "--messages", "1000"]
    assert run(["bench", "watched", *options]) == 1
    assert b"the management process at http://127.0.0.1:1 does not answer" in capfdbinary.readouterr().err


def test_a_ratio_is_that_of_its_round() -> None:
    assert ratios([2.0, 9.0, 3.0], [1.0, 3.0, 2.0]) == {"median": 2.0, "min": 1.5, "max": 3.0}
