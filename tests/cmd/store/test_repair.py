"""`shardmq store repair`: what it asks, and what it says where it can do nothing."""

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import StoreDamaged
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.pages.page import LEAF, PAGE
from shardmq.storage.pages.page_check import check_pages
from shardmq.storage.redo.log import REDO, first_number
from tests.cmd.conftest import Parsed, Printed

SALT_AT = 25
"""Where a redo log has its salt: behind what names it, its version and its size."""

PAGE_BYTES = 4096

NEEDLE = b"a bit of this one flips"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory in which the salt of a redo log is not what was written."""
    with Broker(tmp_path / "data", shards=1):
        pass
    log = tmp_path / "data" / "shard-0" / REDO
    content = bytearray(log.read_bytes())
    content[SALT_AT] ^= 1
    log.write_bytes(content)
    return tmp_path / "data"


def test_nothing_is_said_to_be_repaired_where_no_repair_is_known(
    damaged: Path, parsed: Parsed, printed: Printed
) -> None:
    done = parsed("store", "repair", str(damaged), "--apply", "--yes", code=1)
    assert (done["applied"], done["aside"]) == (False, None)
    assert [finding["repair"] for finding in done["left"]] == [""]
    said = printed("store", "repair", str(damaged), "--apply", "--yes", code=1).decode()
    assert "Nothing was changed: no repair is known for this damage" in said
    assert "Repaired" not in said
    assert not list(damaged.glob("aside-*"))


def test_the_question_is_not_written_into_the_json(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", shards=1) as broker, shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("hurt", durable=True)
        channel.basic_publish("", "hurt", NEEDLE)
    store = tmp_path / "data" / "shard-0" / "data.mdb"
    content = store.read_bytes()
    assert NEEDLE in content
    store.write_bytes(content.replace(NEEDLE, NEEDLE.upper()))
    ours, theirs = pty.openpty()
    try:
        repair = subprocess.Popen(
            command("store", "repair", str(tmp_path / "data"), "--apply", "--json"),
            env=environment(),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
        os.write(ours, b"y\n")
        output, _ = repair.communicate(timeout=60)
        assert json.loads(output)["applied"]
        assert b"Apply this repair? [y/N]:" in os.read(ours, 65_536)
    finally:
        os.close(ours)
        os.close(theirs)


def break_page(file: Path, needle: bytes) -> None:
    """Make the header of the leaf in use nonsense that holds these bytes."""
    content = file.read_bytes()
    for page in range(2, len(content) // PAGE_BYTES):
        place = page * PAGE_BYTES
        number, _, flags, _, upper = PAGE.unpack_from(content, place)
        if number == page and flags == LEAF and needle in content[place + upper : place + PAGE_BYTES]:
            file.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
            try:
                check_pages(file)
            except StoreDamaged:
                return
            file.write_bytes(content)  # it is free
    raise AssertionError(f"{needle!r} is in no leaf of {file}")


def publish(broker: Broker) -> None:
    """A hundred messages and one of a transaction, when the redo logs do not say any more whose they are."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        logs = [broker.data_dir / store / REDO for store in ("coordinator", "shard-0")]
        while any(first_number(log) == 1 for log in logs):
            channel.queue_declare("p", durable=True)
            channel.queue_delete("p")
        with channel.publisher() as publisher:
            publisher.publish_many("", "q", [b"%d" % number for number in range(100)])
        with channel.transaction("once") as transaction:
            transaction.publish("", "q", b"100")


def test_a_shard_whose_notes_are_lost_gets_them_from_the_coordinator_and_starts(
    tmp_path: Path, printed: Printed
) -> None:
    data, shard = tmp_path / "data", tmp_path / "data" / "shard-0"
    with Broker(data, shards=1) as broker:
        publish(broker)
    before = Store.open(shard)
    identity, ended = before.identity, before.load().ended
    before.close()
    break_page(shard / "data.mdb", b"identity")
    said = printed("store", "repair", str(data), "--apply", "--yes").decode()
    assert "Repaired." in said
    after = Store.open(shard)
    contents = after.load()
    after.close()
    assert (contents.ended, contents.damaged) == (ended, [])
    assert replace(after.identity, queue=identity.queue) == identity, "but for the ids of deleted queues"
    with Broker(data, shards=1) as broker, shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        got = [channel.basic_get("q", auto_ack=True) for _ in range(101)]
        assert [int(message.body) for message in got if message is not None] == list(range(101))
        with channel.transaction("once") as transaction:
            transaction.publish("", "q", b"again")
        assert channel.basic_get("q") is None


def test_a_shard_of_which_nobody_can_tell_what_of_its_log_is_in_the_file_is_not_said_to_be_repaired(
    tmp_path: Path, printed: Printed, parsed: Parsed
) -> None:
    with Broker(tmp_path / "data", shards=1) as broker:
        publish(broker)
    store = Store.open(tmp_path / "data" / "shard-0")
    store.load()
    shutil.copytree(store.engine.file.parent, tmp_path / "crashed" / "shard-0")
    store.write(WriteBatch(marks={(77, 0): 5}))  # this one is in the log alone
    shutil.copy(store.engine.file.parent / REDO, tmp_path / "crashed" / "shard-0" / REDO)
    store.close()
    break_page(tmp_path / "crashed" / "shard-0" / "data.mdb", b"identity")
    said = printed("store", "repair", str(tmp_path / "crashed"), "--apply", "--yes", code=1).decode()
    assert "Repaired" not in said
    assert "Not all of it can be repaired; restore a copy" in said
    (left,) = parsed("store", "check", str(tmp_path / "crashed"), code=1)["findings"]
    assert (left["repair"], Path(left["file"]).name) == ("", REDO)
    assert "has lost the note of which commits are in it" in left["what"]


def test_a_coordinator_that_does_not_know_its_broker_any_more_is_not_said_to_be_repaired(
    tmp_path: Path, printed: Printed, parsed: Parsed
) -> None:
    data = tmp_path / "data"
    with Broker(data, shards=1) as broker:
        publish(broker)
    break_page(data / "coordinator" / "data.mdb", b"generation")
    said = printed("store", "repair", str(data), "--apply", "--yes", code=1).decode()
    assert "Repaired" not in said
    left = parsed("store", "check", str(data), code=1)["findings"]
    assert "the note 'broker' is lost; `shardmq store adopt` goes on without it" in [each["what"] for each in left]
    printed("store", "adopt", str(data), "--apply")
    with Broker(data, shards=1) as broker, shardmq.connect(broker.url) as connection:
        assert connection.channel().queue_declare("q", passive=True).messages == 101
