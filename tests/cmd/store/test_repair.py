"""`shardmq store repair`: what it asks, and what it says where it can do nothing."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.storage.redo.log import REDO
from tests.cmd.conftest import Parsed, Printed

SALT_AT = 25
"""Where a redo log has its salt: behind what names it, its version and its size."""

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
