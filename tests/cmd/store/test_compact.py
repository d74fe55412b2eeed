"""`shardmq store compact`: the space that stores do not need is the disk's again, and nothing else has changed."""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from tests.cmd.conftest import Parsed, Printed

MB = 1 << 20
COUNT = 100


def fill(broker: Broker) -> None:
    """A queue of which most is gone."""
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("work", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "work", [b"%03d" % number + os.urandom(MB // 2) for number in range(COUNT)])
        for message in channel.consume("work", prefetch=COUNT):
            if int(message.body[:3]) >= COUNT - 10:
                break
            message.ack()


def left(broker: Broker) -> list[int]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        count = channel.queue_declare("work", passive=True).messages
        found = []
        for _ in range(count):
            message = channel.basic_get("work")
            assert message is not None
            found.append(int(message.body[:3]))
        return found


def test_stores_are_compacted_and_say_the_same(start_broker: Callable[..., Broker], parsed: Parsed) -> None:
    broker = start_broker(shards=2)
    fill(broker)
    broker.stop()
    rows = {row["store"]: row for row in parsed("store", "compact", str(broker.data_dir))["stores"]}
    assert set(rows) == {"coordinator", "shard-0", "shard-1"}
    largest = max(rows.values(), key=lambda row: row["bytes_before"])
    assert largest["bytes_before"] > 40 * MB
    assert largest["bytes_after"] < 8 * MB
    assert not any(row["error"] for row in rows.values())
    assert (broker.data_dir / largest["store"] / "data.mdb").stat().st_size < 8 * MB
    again = parsed("store", "compact", str(broker.data_dir))["stores"]
    assert all(row["bytes_after"] == row["bytes_before"] for row in again)
    broker.start()
    assert left(broker) == list(range(COUNT - 10, COUNT))


def test_a_data_directory_that_is_in_use_is_refused(start_broker: Callable[..., Broker], printed: Printed) -> None:
    broker = start_broker(shards=1)
    printed("store", "compact", str(broker.data_dir), code=EXIT_CONFIG)


def test_a_folder_without_stores_is_refused(tmp_path: Path, printed: Printed) -> None:
    printed("store", "compact", str(tmp_path), code=EXIT_CONFIG)


def test_where_there_is_no_room_for_the_copy_the_store_is_as_it_was(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    fill(broker)
    broker.stop()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MB, MB))

    words = command("store", "compact", str(broker.data_dir))
    ended = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert ended.returncode == 1
    assert "shard-0/data.mdb takes" in ended.stderr
    assert "shard-0: " in ended.stdout
    assert sorted(path.name for path in (broker.data_dir / "shard-0").iterdir()) == [
        "data.mdb",
        "lock",
        "lock.mdb",
        "redo",
    ]
    broker.start()
    assert left(broker) == list(range(COUNT - 10, COUNT))
