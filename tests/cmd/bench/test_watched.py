"""`shardmq bench watched`, with a broker that has a management process."""

import json
import shutil
from collections.abc import Iterator

import pytest

from shardmq.cmd.bench.watched.command import ratios
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("watched") / "data", shards=1, management=True)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())
        shutil.rmtree(broker.data_dir)


def test_browsers_are_answered_while_messages_are_measured(
    managed: Broker, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = ["--url", managed.url, "--management", managed.management_url, "--browsers", "8", "--rounds", "1"]
    assert run(["bench", "watched", *options, "--messages", "1000", "--json"]) == 0
    figures = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    assert figures["answers"] >= 1
    assert figures["scrapes"] >= 1
    assert figures["bulk_ratio"]["min"] > 0
    assert figures["p99_ratio"]["min"] > 0


def test_a_wrong_management_url_is_said(managed: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    options = ["--url", managed.url, "--management", "http://127.0.0.1:1", "--rounds", "1", "--messages", "1000"]
    assert run(["bench", "watched", *options]) == 1
    assert b"the management process at http://127.0.0.1:1 does not answer" in capfdbinary.readouterr().err


def test_a_ratio_is_that_of_its_round() -> None:
    assert ratios([2.0, 9.0, 3.0], [1.0, 3.0, 2.0]) == {"median": 2.0, "min": 1.5, "max": 3.0}
