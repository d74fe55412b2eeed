"""Parameters of shovels as they are stored: in a backup, and where one of them cannot be read."""

import shutil
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.coordinator.storage.store import Store
from shardmq.topology.changes import ParameterPut
from shardmq.topology.entities import Parameter
from shardmq.topology.parameters.shovel import SHOVEL
from tests.running import backed_up

from .moving import fill, put, ready, shovel, until


def test_a_restored_broker_moves_on_also_beside_settings_that_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, restored = tmp_path / "copy", tmp_path / "restored"
    with Broker(tmp_path / "data", shards=1) as broker, shardmq.connect(broker.url) as connection:
        put(connection, "kept", "in", "out", dest_uri="amqp://127.0.0.1:1/", reconnect_delay=0)
        value = connection.topology("parameters")[0]["value"]
        with connection.channel() as channel:
            fill(channel, "in", [b"a"])
        backed_up(broker.url, copy)
    assert run(["restore", str(copy), str(restored)]) == 0
    _store(restored, "aged", {**value, "ack-mode": "someday"})
    broker = Broker(restored, shards=1)
    try:
        with shardmq.connect(broker.start().url) as connection:
            assert {row["name"] for row in connection.topology("parameters")} == {"aged", "kept"}
            assert next(row for row in connection.topology("parameters") if row["name"] == "kept")["value"] == value
            put(connection, "later", "in", "out")
            until(lambda: ready(connection, "out") == 1, "others are started")
            aged = shovel(connection, "aged")
            assert aged["state"] == "terminated"
            assert "ack-mode is 'someday'; give on-confirm" in aged["error"]
            capsys.readouterr()
            assert run(["shovel", "list", "--url", broker.url]) == 0
            assert "cannot be read" in " ".join(capsys.readouterr().out.split())
            connection.parameter_put("/", SHOVEL, "aged", {**value, "dest-uri": "amqp://"})
            until(lambda: shovel(connection, "aged").get("state") == "running", "set anew, it runs")
    finally:
        broker.close()
        print(broker.last_words())
        shutil.rmtree(restored)


def _store(data: Path, name: str, value: dict[str, object]) -> None:
    """Write a parameter into the store of a broker that is not running, as another version might have."""
    store = Store.open(data / "coordinator", "another boot")
    try:
        store.load(1)
        store.write([ParameterPut(Parameter("/", SHOVEL, name, value, 1))], (), ())
    finally:
        store.close()
