"""Definitions at the start: imported without anybody's credentials, and again only where they have changed."""

import json
from pathlib import Path
from typing import Any

import shardmq
from tests.conftest import StartBroker
from tests.e2e.traffic import until


def queues(url: str) -> set[str]:
    with shardmq.connect(url) as connection:
        return {row["name"] for row in connection.topology("queues")}


def write(file: Path, *names: str, **more: Any) -> None:
    file.write_text(json.dumps({"queues": [{"name": name, "vhost": "/", "durable": True} for name in names], **more}))


def test_definitions_of_a_folder_are_there_after_a_start_and_not_again_unchanged(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "definitions"
    folder.mkdir()
    policy = {"name": "p", "vhost": "/", "pattern": "second", "definition": {"max-length": 5}}
    user = {"name": "ann", "password": "secret", "tags": "administrator"}
    allowed = {"user": "ann", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    write(folder / "1.json", "first", users=[user], permissions=[allowed])
    write(folder / "2.json", "second", policies=[policy])
    broker = start_broker(shards=2, options=["--definitions", str(folder)])
    until(lambda: queues(broker.url) == {"first", "second"}, "they are imported")
    with shardmq.connect(f"shardmq://ann:secret@127.0.0.1:{broker.port}/", recovery=None) as connection:
        assert connection.status()["processes"]
        connection.channel().queue_delete("first")
    broker.restart()
    until(lambda: "definitions are as they were" in broker.last_words(), "it is seen that nothing has changed")
    assert queues(broker.url) == {"second"}, "what is imported once and deleted stays so"
    write(folder / "2.json", "second", "third")
    broker.restart()
    until(lambda: queues(broker.url) == {"first", "second", "third"}, "the folder has changed")


def test_what_is_refused_is_logged_and_tried_again_at_the_next_start(start_broker: StartBroker, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    write(file, "kept", policies=[{"name": "p", "vhost": "/", "pattern": "(", "definition": {"max-length": 5}}])
    broker = start_broker(shards=1, options=["--definitions", str(file)])
    until(lambda: "pattern should be regular expression" in broker.last_words(), "it says why")
    assert queues(broker.url) == set()
    write(file, "kept")
    broker.restart()
    until(lambda: queues(broker.url) == {"kept"}, "it is imported")
