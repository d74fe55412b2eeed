"""Commits that nobody waits for: of what is published without confirms. A crash is a copy of the store."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import BusMessage, Call
from shardmq.bus.messages.columns import Publishes
from shardmq.bus.messages.shard import Ack, AtomicCommit, Confirmed, Delivered, Gateways, Get, Nack, Publish
from shardmq.message.record import pack_many
from shardmq.shards.loop import TICK_AT_REST_SECONDS
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue
from tests.shards.damaging import flip, rows
from tests.shards.driver import consume, numbers, run_of
from tests.shards.inside import Inside, inside

NEVER = 3600.0


@pytest.fixture
def shard() -> Iterator[Inside]:
    with inside() as shard:
        shard.assign(Queue("/", "q", 1, 0), Queue("/", "other", 2, 0))
        shard.ask(consume(1))
        shard.publish(Publish((1,), run_of(0, 1)))  # the mark is on disk
        first = shard.expect(Delivered)
        shard.send(Ack(1, [(first.first, first.first + 1)]))
        shard.ask(Call(1, AtomicCommit([], [], [])))
        shard.expect(Gateways)  # as in every new session
        yield shard


@pytest.fixture
def written(shard: Inside) -> list[WriteBatch]:
    """What has been written, with segments, since the shard began."""
    write, written = shard.store.write, []

    def noted(writes: WriteBatch) -> None:
        if writes.put:
            written.append(writes)
        write(writes)

    shard.store.write = noted  # type: ignore[method-assign]
    return written


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written because it has waited for long."""
    monkeypatch.setattr("shardmq.shards.storage.write_buffer.PUT_OFF_SECONDS", NEVER)
    monkeypatch.setattr("shardmq.shards.storage.write_buffer.SETTLED_SECONDS", NEVER)


def unawaited(number: int, queue: int = 1) -> Publish:
    return Publish((queue,), run_of(number, 1), unawaited=True)


def deliver(shard: Inside, *published: Publish) -> list[Delivered]:
    """Publish what nobody waits for; returns the deliveries."""
    shard.published += len(published)
    shard.send(*published)
    delivered = [shard.expect(Delivered)]
    while sum(each.batch.count for each in delivered) < len(published):
        delivered.append(shard.expect(Delivered))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
    return delivered


def ack(shard: Inside, *delivered: Delivered) -> None:
    shard.send(Ack(1, [(each.first, each.first + each.batch.count) for each in delivered]))
    until_acked(shard)


def until_acked(shard: Inside) -> None:
    deadline = time.monotonic() + 60
    while shard.loop.table()["queues"][0]["unacked"]:
        assert time.monotonic() < deadline
        shard.turn()


@pytest.mark.usefixtures("endless")
def test_what_is_acked_by_then_is_never_written(shard: Inside, written: list[WriteBatch]) -> None:
    for number in range(1, 20):
        ack(shard, *deliver(shard, unawaited(number)))
    shard.publish(Publish((2,), run_of(20, 1)))
    (only,) = written
    assert [segment.queue for segment in only.put] == [2]


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("unawaited", [True, False])
def test_so_are_publishes_to_many_queues(shard: Inside, written: list[WriteBatch], unawaited: bool) -> None:
    shard.ask(consume(2, 2))
    shard.publish(Publish((2,), run_of(0, 1)))  # its mark
    del written[:]
    shard.published += 2
    records = [run_of(number, 1).records for number in (1, 2)]
    shard.send(Publishes("", 1, 0, 5, 9, 1, [1, 2], ["q", "other"], [1, 1], records, unawaited))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
    assert bool(written) is not unawaited


def test_what_is_not_acked_is_written_after_a_while(shard: Inside, written: list[WriteBatch]) -> None:
    began = time.monotonic()
    deliver(shard, unawaited(1))
    while not written:
        assert time.monotonic() < began + 60
        shard.turn()
    shard.restart()
    shard.ask(consume(1))
    again = shard.expect(Delivered)
    assert (again.redelivered, numbers([again])) == (True, [1])


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize(
    "message",
    [
        Publish((2,), run_of(9, 1)),
        Publish((1,), run_of(9, 1), producer=7, sequence=1, unawaited=True),
        Publish((1,), run_of(9, 1), delay_ms=60_000, unawaited=True),
        Call(8, Get(2, 1, False)),
        Call(8, AtomicCommit([], [], [])),
    ],
    ids=lambda message: f"{type(message).__name__} {getattr(message, 'message', '')}"[:24],
)
def test_it_is_written_with_what_somebody_waits_for(
    shard: Inside, written: list[WriteBatch], message: BusMessage
) -> None:
    deliver(shard, unawaited(1))
    assert not written
    shard.send(message)
    deadline = time.monotonic() + 60
    while not written:
        assert time.monotonic() < deadline
        shard.turn()
    assert written[0].put[0].queue == 1


@pytest.mark.usefixtures("endless")
def test_much_is_not_put_off(shard: Inside, written: list[WriteBatch]) -> None:
    for number in range(1, 80):
        batch = run_of(number, 1)
        batch.records = pack_many([b"x" * 1000])
        shard.send(Publish((2,), batch, unawaited=True))
        shard.turn()
    assert (64 << 10) < sum(segment.bytes for segment in written[0].put) < (66 << 10)


@pytest.mark.usefixtures("endless")
def test_a_message_that_is_lost_with_the_shard_has_a_number_that_no_other_gets(shard: Inside, tmp_path: Path) -> None:
    (lost,) = deliver(shard, unawaited(1))
    shard.copy(tmp_path / "lost")
    with inside(tmp_path / "lost") as after:
        after.ask(consume(1))
        after.publish(Publish((1,), run_of(2, 1)))
        fresh = after.expect(Delivered)
        assert (fresh.redelivered, numbers([fresh])) == (False, [2])
        assert fresh.first > lost.first


@pytest.mark.usefixtures("endless")
def test_what_comes_back_unwritten_is_delivered_again_and_written(shard: Inside) -> None:
    (delivered,) = deliver(shard, unawaited(1))
    shard.send(Nack(1, [(delivered.first, delivered.first + 1)], requeue=True))
    again = shard.expect(Delivered)
    assert (again.redelivered, numbers([again])) == (True, [1])
    shard.publish(Publish((2,), run_of(2, 1)))
    shard.restart()
    shard.ask(consume(1))
    assert numbers([shard.expect(Delivered)]) == [1]


@pytest.mark.usefixtures("endless")
def test_a_shard_that_stops_has_written_everything(shard: Inside) -> None:
    deliver(shard, *(unawaited(number) for number in range(1, 4)))
    shard.loop.stop()
    shard.restart()
    shard.ask(consume(1))
    came: list[int] = []
    while len(came) < 3:
        came += numbers([shard.expect(Delivered)])
    assert came == [1, 2, 3]


@pytest.mark.usefixtures("endless")
def test_unwritten_segments_are_merged_as_others_are(
    shard: Inside, written: list[WriteBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that stood still looks after what it had put off before it writes it."""
    monkeypatch.setattr("shardmq.shards.queues.compaction._AGE_SECONDS", 0.0)
    for number in range(1, 200):
        shard.send(Publish((2,), run_of(number, 1), unawaited=True))
        shard.turn()
    looked_at = time.monotonic() + TICK_AT_REST_SECONDS
    while time.monotonic() < looked_at:
        shard.turn()
    shard.published += 199
    shard.publish(Publish((1,), run_of(200, 1)))
    found = [segment for writes in written for segment in writes.put if segment.queue == 2]
    assert sum(segment.live for segment in found) == 199
    assert len(found) < 100
    shard.restart()
    shard.ask(consume(2, 2))
    came: list[int] = []
    while len(came) < 199:
        came += numbers([shard.expect(Delivered)])
    assert came == list(range(1, 200))


@pytest.mark.usefixtures("endless")
def test_what_is_confirmed_is_written_though_its_pass_finds_damage(shard: Inside, tmp_path: Path) -> None:
    """A queue that lies in memory and in spilled rows goes out of service by itself."""
    shard.memory_bytes = 0
    shard.restart()
    shard.assign(Queue("/", "fleeting", 3, 0, durable=False))
    shard.publish(Publish((3,), run_of(0, 5, flags=0)))
    flip(shard.store, "spilled", next(iter(rows(shard.store, "spilled", 3))))
    shard.memory_bytes = 2_000_000
    shard.loop._buffer.cache.bytes_max = 2_000_000
    shard.published += 2
    shard.send(unawaited(1))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published - 1)
    shard.send(consume(5, 3), Publish((1,), run_of(2, 1)))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
    shard.copy(tmp_path / "crash")
    with inside(tmp_path / "crash") as after:
        assert after.ready(1) == 2
