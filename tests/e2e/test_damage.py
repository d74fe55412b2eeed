"""Store files of a whole broker are damaged: it says what is, and of which file, or goes on with all it had."""

import struct
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ShardmqError
from shardmq.storage.pages.page_check import check_pages
from tests.conftest import StartBroker

MESSAGES = 25


def publish(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("orders", durable=True)
        with channel.publisher() as publisher:
            for number in range(MESSAGES):
                publisher.publish("", "orders", b"order %d" % number)
                publisher.flush()


def messages(broker: Broker) -> list[bytes]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        found = []
        while (message := channel.basic_get("orders", auto_ack=False)) is not None:
            found.append(bytes(message.body))
        return found


def flip(file: Path, place: int, bit: int = 0) -> None:
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << bit]))


def place_of(file: Path, needle: bytes) -> int:
    """Where that is in a page that is in use, in the part of it that is."""
    content = file.read_bytes()
    free = {page for pages in check_pages(file).free.values() for page in pages}
    place = content.index(needle)
    while place // 4096 in free or place % 4096 < struct.unpack_from("=H", content, place // 4096 * 4096 + 14)[0]:
        place = content.index(needle, place + 1)
    return place


def places_of_commits(log: Path) -> list[int]:
    """Where the commits lie that are in a redo log since it was begun anew; on a busy machine that may be a few."""
    content = log.read_bytes()
    places = [4096]
    size, number = struct.unpack_from(">IQ", content, 4096)
    while struct.unpack_from(">IQ", content, places[-1] + 20 + size)[1] == number + 1:
        places.append(places[-1] + 20 + size)
        size, number = struct.unpack_from(">IQ", content, places[-1])
    return places


def refused(broker: Broker, *words: str) -> None:
    """It ends with exit code 78 and one sentence that has these words."""
    with pytest.raises(ShardmqError) as refusal:
        broker.start()
    assert broker.wait() == 78
    assert [word for word in words if word not in refusal.value.text] == []
    assert "Traceback" not in broker.last_words()


def test_a_damaged_row_of_the_coordinator_is_named(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    publish(broker)
    broker.stop()
    file = broker.data_dir / "coordinator" / "data.mdb"
    flip(file, place_of(file, b"\xa6orders") + 6)
    refused(broker, str(file), "damaged in database 'queues'", b"/\0orders".hex())


def test_a_damaged_page_of_a_shard_is_named(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    publish(broker)
    broker.stop()
    file = broker.data_dir / "shard-0" / "data.mdb"
    page = place_of(file, b"\xa1/\xa6orders") // 4096
    flip(file, page * 4096 + 10, 2)
    refused(broker, str(file), "damaged in database 'queues'", f"page {page}")


def test_a_bit_of_the_redo_log_that_flips_loses_nothing_that_was_confirmed(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    publish(broker)
    broker.kill_everything()
    log = broker.data_dir / "shard-0" / "redo"
    flip(log, places_of_commits(log)[:4][-1] + 30)
    broker.start()
    assert messages(broker) == [b"order %d" % number for number in range(MESSAGES)]
