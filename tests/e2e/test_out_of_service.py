"""A bit flips in what one queue has stored: that queue is out of service, and nothing else; a repair loses no more."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest
import requests

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, take, until

BATCH = 10
NEEDLE = b"a bit of this one flips"


def store_command(*arguments: str, code: int) -> Any:
    """`shardmq store …` in a process of its own."""
    command = [sys.executable, "-m", "shardmq.cmd.main", "store", *arguments]
    ended = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == code, (ended.stdout + ended.stderr).decode()
    return json.loads(ended.stdout) if "--json" in arguments else (ended.stdout + ended.stderr).decode()


def flip(file: Path) -> None:
    """One bit, wherever the needle lies: older pages may have it, too."""
    content = bytearray(file.read_bytes())
    places = [found.start() for found in re.finditer(NEEDLE, bytes(content))]
    assert places
    for place in places:
        content[place] ^= 1
    file.write_bytes(content)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    """On one shard, a queue whose second batch is damaged, and one that is well."""
    with Broker(tmp_path / "data", shards=1) as broker:
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            for queue in ("hurt", "well"):
                channel.queue_declare(queue, durable=True)
            publish_all(channel, "hurt", numbers(0, BATCH))
            publish_all(channel, "hurt", [NEEDLE + body for body in numbers(0, BATCH)])
            publish_all(channel, "hurt", numbers(20, 20 + BATCH))
        broker.stop()
        flip(tmp_path / "data" / "shard-0" / "data.mdb")
        broker.start()
        yield broker
        print(broker.last_words())


def goes_on(channel: shardmq.Channel) -> None:
    """The other queue of that shard takes and gives."""
    publish_all(channel, "well", numbers(0, 100))
    assert [message.body for message in take(channel, "well")] == numbers(0, 100)


def out_of_service(connection: shardmq.Connection) -> str:
    """What everybody is told."""
    with connection.channel() as channel, pytest.raises(errors.Unavailable) as refused:
        channel.basic_get("hurt")
    assert refused.value.text.startswith("queue 'hurt' in vhost '/' is out of service: row ")
    return refused.value.text


def test_a_damaged_queue_is_out_of_service_until_it_is_repaired_and_nothing_else_is(broker: Broker) -> None:
    pids = dict(broker.pids)
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        messages = channel.consume("hurt", prefetch=BATCH // 2)
        assert [next(messages).body for _ in range(BATCH // 2)] == numbers(0, BATCH // 2)
        text = amqp_clients_hear_of_it(broker, connection)
        with pytest.raises(errors.Unavailable, match="out of service: row "):
            next(messages)
        with connection.channel() as other:
            goes_on(other)
            with pytest.raises(errors.PublishRefused, match="out of service"):
                publish_all(other, "hurt", [b"no"])
            with pytest.raises(errors.RequestError, match="out of service"):
                other.queue_delete("hurt")
            assert other.queue_declare("new").messages == 0
        (row,) = [row for row in connection.status()["queues"] if row["name"] == "hurt"]
        assert row["out_of_service"] == text
        alarms = [alarm for process in connection.status()["processes"] for alarm in process.get("damaged", [])]
        assert [(alarm["name"], alarm["database"]) for alarm in alarms] == [("hurt", "segments")]
    assert broker.pids == pids
    assert text in broker.log.read_text()
    folder = str(broker.data_dir)
    assert "is in use" in store_command("check", folder, code=78)
    broker.stop()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        assert out_of_service(connection) == text
    broker.stop()
    repaired(broker.data_dir)
    broker.start()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        assert [message.body for message in take(channel, "hurt")] == numbers(0, BATCH) + numbers(20, 20 + BATCH)
        publish_all(channel, "hurt", [b"again"])
        goes_on(channel)
        assert not any(process.get("damaged") for process in connection.status()["processes"])


def amqp_clients_hear_of_it(broker: Broker, connection: shardmq.Connection) -> str:
    """A consumer over AMQP is cancelled when another client meets the damage; its connection goes on."""
    parameters = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F")
    amqp = pika.BlockingConnection(parameters)
    channel = amqp.channel()
    got: list[bytes] = []
    cancelled: list[Any] = []
    channel.basic_qos(prefetch_count=BATCH - BATCH // 2)
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("hurt", lambda _channel, _method, _properties, body: got.append(body))

    def heard(what: list[Any], count: int) -> bool:
        amqp.process_data_events(0.02)
        return len(what) == count

    until(lambda: heard(got, BATCH - BATCH // 2), "deliveries over AMQP")
    text = out_of_service(connection)
    until(lambda: heard(cancelled, 1), "the consumer over AMQP is cancelled")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("hurt", passive=True)
    assert closed.value.reply_code == 506
    assert closed.value.reply_text.startswith("RESOURCE_ERROR - queue 'hurt' in vhost '/' is out of service")
    other = amqp.channel()
    other.basic_publish("", "well", b"over AMQP")
    assert until(lambda: other.basic_get("well", auto_ack=True)[2], "a message over AMQP") == b"over AMQP"
    amqp.close()
    return text


def repaired(folder: Path) -> None:
    """Looked at, looked at again, repaired, and looked at."""
    before = digests(folder)
    looked = store_command("check", str(folder), "--json", code=1)
    assert {(found["store"], found["title"], found["database"]) for found in looked["findings"]} == {
        ("shard-0", "queue 'hurt' in vhost '/'", "segments"),
        ("shard-0", "queue 'hurt' in vhost '/'", "state"),
    }
    assert "queue 'hurt' in vhost '/'" in " ".join(store_command("check", str(folder), code=1).split())
    dry = store_command("repair", str(folder), "--json", code=1)
    assert (dry["messages_lost"], dry["applied"]) == (BATCH, False)
    assert [found["numbers"] for found in dry["findings"] if found["messages_lost"]] == [[[BATCH, 2 * BATCH]]]
    assert "--yes" in store_command("repair", str(folder), "--apply", code=2)
    assert digests(folder) == before
    done = store_command("repair", str(folder), "--apply", "--yes", "--json", code=0)
    kept = digests(Path(done["aside"]))
    assert {Path(path).name: digest for path, digest in kept.items()} == {
        Path(path).name: digest for path, digest in before.items() if "shard-0/" in path
    }
    assert "all is well" in store_command("check", str(folder), code=0)


def test_streams_out_of_service_hide_no_groups_and_stop_none_in_other_partitions(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", shards=1, management=True) as broker:
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("hurt", durable=True, arguments={"x-queue-type": "stream"})
            channel.topic_declare("wide", 2)
            for stream in ("hurt", "wide-1"):
                publish_all(channel, stream, [NEEDLE])
            publish_all(channel, "wide-0", numbers(0, 3))
            for topic in ("hurt", "wide"):
                channel.group_commit(topic, "left", {0: 0})
        broker.stop()
        flip(tmp_path / "data" / "shard-0" / "data.mdb")
        broker.start()
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            for topic, number in (("hurt", 0), ("wide", 1)):
                with pytest.raises(errors.Unavailable, match="out of service: row "):
                    channel.pull(topic, number, 0)
            rows = [(row["topic"], row["group"], row["lag"], row["unknown"]) for row in connection.topology("groups")]
            assert rows == [("wide", "left", 3, [1])]
            are_told_of(broker)
            for group, is_shared in (("ordered", False), ("shared", True)):
                with channel.group_consumer(
                    "wide", group, start="earliest", auto_commit=False, shared=is_shared
                ) as consumer:
                    found: list[bytes] = []
                    until(lambda: found.extend(each.body for each in consumer.poll(1)) or len(found) == 3, "all come")  # noqa: B023
                    assert consumer.commit() == {0: 3}


def are_told_of(broker: Broker) -> None:
    """Metrics, findings and checks tell of the group of a topic with a partition that is out of service."""
    said = requests.get(f"{broker.management_url}metrics", auth=("guest", "guest"), timeout=60)
    assert said.status_code == 200, said.text
    [lag] = re.findall(r"^shardmq_group_lag_messages\{.*\} (.*)$", said.text, re.MULTILINE)
    assert float(lag) == 3
    url = f"{broker.management_url}api/shardmq/findings?after=0"
    found = requests.get(url, auth=("guest", "guest"), timeout=60).json()
    assert {"queue-damaged", "group-without-members"} <= {row["rule"] for row in found}
    words = [sys.executable, "-m", "shardmq.cmd.main", "check", "group", "wide", "left", "--url", broker.url]
    checked = subprocess.run(words, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
    assert (checked.returncode, b"without partition 1" in checked.stdout) == (1, True), checked
