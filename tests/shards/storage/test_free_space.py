"""A shard gives the space back that it does not need: at a start, while it runs, whatever ends it meanwhile."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Confirmed, Publish, Purge
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, run_of
from tests.shards.inside import MEMORY

MB = 1 << 20
BATCHES = 80


@pytest.fixture
def shard() -> Iterator[Shard]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        shard = Shard(Path(folder), disk_free_bytes_min=0)
        shard.assign(Queue("/", "q", 1, 0), Queue("/", "kept", 2, 0))
        records = pack_many([bytes(MB)])
        shard.send(*[Publish((1,), RecordBatch("ex", "key", 1, 5, 9, number, 1, records)) for number in range(BATCHES)])
        shard.send(Publish((2,), run_of(0, 1000)))
        shard.expect(Confirmed, lambda confirmed: confirmed.upto == BATCHES + 1)
        yield shard
        shard.close()


def file_bytes(shard: Shard) -> int:
    return (shard.folder / "shard-0" / "data.mdb").stat().st_size


def test_a_start_gives_back_what_is_free_and_keeps_what_the_redo_log_has(shard: Shard) -> None:
    assert shard.ask(Call(11, Purge(1))) == BATCHES
    assert file_bytes(shard) > 80 * MB
    shard.redial()
    shard.publish(Publish((2,), run_of(1000, 5)))  # in the redo log alone
    shard.restart(signal.SIGKILL)
    assert shard.queue(2)["ready"] == 1005
    assert file_bytes(shard) < 4 * MB
    shard.restart(signal.SIGKILL)
    assert (shard.queue(1)["valid"], shard.queue(2)["ready"]) == (0, 1005)


def test_what_a_kill_left_of_a_copy_is_removed_at_the_next_start(shard: Shard) -> None:
    shard.stop(signal.SIGKILL)
    held = shard.folder / "shard-0" / "compact"
    held.mkdir()
    (held / "data.mdb").write_bytes(b"half of a copy")
    shard.start()
    shard.redial()
    assert (shard.queue(1)["ready"], shard.queue(2)["ready"]) == (BATCHES, 1000)
    assert not held.exists()


def test_while_it_runs_and_the_disk_is_short_a_shard_gives_back_what_is_free(shard: Shard) -> None:
    (shard.folder / "disk-free-bytes").write_text(str(60 * MB))
    assert shard.ask(Call(11, Purge(1))) == BATCHES
    shard.until(lambda: file_bytes(shard) < 4 * MB)
    shard.redial()
    shard.publish(Publish((2,), run_of(1000, 5)))
    shard.restart(signal.SIGKILL)
    assert (shard.queue(1)["valid"], shard.queue(2)["ready"]) == (0, 1005)
