"""Pulls of a partition: by offset, time and tag, in portions, and waiting at its end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Answer, Call, Refusal
from shardmq.bus.messages.reads import Pull
from shardmq.bus.messages.shard import DropQueue, Publish
from shardmq.bus.messages.streams import Reading
from shardmq.message.properties import Properties
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.handlers.partitions import pulls
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.driver import run_of

STREAM = {"x-queue-type": "stream"}
ENOUGH = 1 << 20


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(
        Queue("/", "log", 1, 0, durable=True, arguments=STREAM),
        Queue("/", "short", 2, 0, durable=True, arguments={**STREAM, "x-max-length-bytes": 1000}),
        Queue("/", "q", 3, 0),
    )
    yield shard
    shard.close()


def exactly(offset: int, *tags: str, has_untagged: bool = False) -> Reading:
    return Reading("offset", offset, list(tags) or None, has_untagged, is_exact=True)


def found(pulled: Any) -> list[tuple[int, int]]:
    """Offsets and bodies of what was pulled."""
    messages = []
    for first, _, _, fields in pulled[0]:
        batch = RecordBatch(*fields)
        messages += [(first + place, int(each.body)) for place, each in enumerate(unpack(batch.records, batch.count))]
    return messages


def ask(shard: Clocked, *fields: Any) -> int:
    """Ask without waiting for the answer; returns the request's number."""
    shard.requests += 1
    shard.send(Call(shard.requests, Pull(*fields)))
    return shard.requests


def answer(shard: Clocked, request: int) -> Any:
    return shard.expect(Answer, lambda answer: answer.request == request).result


def tagged(start: int, tags: list[str]) -> RecordBatch:
    records = b""
    for number, tag in enumerate(tags, start):
        own = Properties(headers={"x-stream-filter-value": tag}) if tag else None
        records += pack_many([b"%d" % number], own)
    return RecordBatch("ex", "key", 1, 5, 9, start, len(tags), records)


def test_a_pull_brings_so_many_messages_from_an_offset_on(shard: Clocked) -> None:
    shard.take_in(run_of(0, 30))
    shard.take_in(run_of(30, 30))
    pulled = shard.do(Pull, 1, exactly(25), 10, ENOUGH)
    assert found(pulled) == [(number, number) for number in range(25, 35)]
    assert pulled[1:] == [35, 0, 60, 0]
    assert found(shard.do(Pull, 1, Reading("first"), 2, ENOUGH)) == [(0, 0), (1, 1)]
    assert shard.do(Pull, 1, exactly(60), 10, ENOUGH) == [[], 60, 0, 60, 0]


def test_a_pull_brings_no_more_bytes_than_it_says_and_tells_the_size_of_what_is_larger(shard: Clocked) -> None:
    batch = run_of(0, 30)
    shard.take_in(batch)
    some = found(shard.do(Pull, 1, exactly(0), 30, len(batch.records) // 2))
    assert 10 <= len(some) < 20
    none, following, *_, size = shard.do(Pull, 1, exactly(7), 30, 1)
    assert (none, following) == ([], 7)
    assert size > 1
    assert found(shard.do(Pull, 1, exactly(7), 30, size)) == [(7, 7)]


def test_an_offset_that_is_not_kept_is_refused_with_the_range(shard: Clocked) -> None:
    for start in range(0, 2000, 100):
        shard.take_in(run_of(start, 100), queue=2)
    first = shard.do(Pull, 2, Reading("first"), 1, ENOUGH)[2]
    assert first > 0
    for offset, why in ((first - 1, "dropped"), (2001, "not published yet")):
        refusal = shard.refused(Pull, 2, exactly(offset), 10, ENOUGH)
        assert refusal.code == 416
        assert f"offset {offset} of queue 'short' in vhost '/'" in refusal.text
        assert why in refusal.text
        assert f"[{first}, 2000)" in refusal.text


def test_a_queue_has_no_offsets(shard: Clocked) -> None:
    assert shard.refused(Pull, 3, exactly(0), 10, ENOUGH).code == 406
    assert shard.refused(Pull, 4, exactly(0), 10, ENOUGH).code == 404


def test_tags_are_filtered_in_one_pull_across_what_lies_between(shard: Clocked) -> None:
    shard.take_in(tagged(0, ["a", "b", "", "a"] * 10))
    pulled = shard.do(Pull, 1, exactly(0, "a"), 10, ENOUGH)
    assert [offset for offset, _ in found(pulled)] == [each for each in range(40) if each % 4 in (0, 3)][:10]
    both = found(shard.do(Pull, 1, exactly(0, "b", has_untagged=True), 100, ENOUGH))
    assert [offset for offset, _ in both] == [each for each in range(40) if each % 4 in (1, 2)]
    assert shard.do(Pull, 1, exactly(0, "c"), 10, ENOUGH) == [[], 40, 0, 40, 0]


def test_a_pull_at_the_end_waits_for_the_next_message(shard: Clocked) -> None:
    shard.take_in(run_of(0, 3))
    waiting = ask(shard, 1, exactly(3), 10, ENOUGH, 60_000)
    late = ask(shard, 1, Reading("next"), 10, ENOUGH, 60_000)
    shard.tell()
    assert not [message for message in shard.inbox if isinstance(message, Answer) and message.request == waiting]
    shard.take_in(run_of(3, 2))
    assert found(answer(shard, waiting)) == found(answer(shard, late)) == [(3, 3), (4, 4)]


def test_a_pull_that_waits_for_a_tag_passes_over_others(shard: Clocked) -> None:
    waiting = ask(shard, 1, exactly(0, "b"), 10, ENOUGH, 60_000)
    shard.take_in(tagged(0, ["a", "a"]))
    shard.take_in(tagged(2, ["a", "b"]))
    assert found(answer(shard, waiting)) == [(3, 3)]


def test_a_pull_waits_no_longer_than_it_says(shard: Clocked) -> None:
    waiting = ask(shard, 1, exactly(0), 10, ENOUGH, 5000)
    shard.tell()
    shard.put_forward(4000)
    assert not [message for message in shard.inbox if isinstance(message, Answer) and message.request == waiting]
    shard.put_forward(1001)
    assert answer(shard, waiting) == [[], 0, 0, 0, 0]
    shard.take_in(run_of(0, 1))
    assert found(shard.do(Pull, 1, exactly(0), 10, ENOUGH)) == [(0, 0)]


def test_a_pull_of_a_partition_that_is_deleted_meanwhile_is_refused(shard: Clocked) -> None:
    waiting = ask(shard, 1, exactly(0), 10, ENOUGH, 60_000)
    shard.tell()
    shard.do(DropQueue, 1)
    assert shard.expect(Refusal, lambda refusal: refusal.request == waiting).code == 404


def test_what_waits_leaves_nothing_behind_once_it_is_answered(shard: Clocked) -> None:
    for number in range(3 * pulls.STALE_MAX):
        waiting = ask(shard, 1, exactly(number), 10, ENOUGH, 60_000)
        shard.take_in(run_of(number, 1))
        assert found(answer(shard, waiting)) == [(number, number)]
    waits = shard.loop._pulls
    assert (waits.waiting, waits._count) == ({}, 0)
    assert len(waits._deadlines._heap) <= pulls.STALE_MAX + 3
    assert sum(1 for *_, look in shard.loop._state.schedule._heap if look.action == waits._deadlines._look) == 1


def test_past_the_most_that_may_wait_pulls_are_answered_at_once(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "WAITING_MAX", 2)
    for _ in range(2):
        ask(shard, 1, exactly(0), 10, ENOUGH, 60_000)
    assert shard.do(Pull, 1, exactly(0), 10, ENOUGH, 60_000) == [[], 0, 0, 0, 0]


def test_a_gateway_that_is_gone_waits_no_more(shard: Clocked) -> None:
    ask(shard, 1, exactly(0), 10, ENOUGH, 60_000)
    shard.tell()
    assert shard.loop._pulls._count == 1
    shard.dialer._lose("for the test")
    shard.inbox.clear()
    shard.expect(LinkOpened)
    assert shard.loop._pulls._count == 0


def test_who_pulls_much_has_turns_with_others(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    shard.take_in(run_of(0, 1000))
    monkeypatch.setattr(pulls, "PASS_BYTES", 10)
    asked = []
    for _ in range(5):
        shard.requests += 1
        asked.append(shard.requests)
    shard.send(*[Call(number, Pull(1, exactly(0), 100, ENOUGH)) for number in asked])
    assert all(len(found(answer(shard, number))) == 100 for number in asked)


def test_what_is_pulled_is_on_disk(shard: Clocked) -> None:
    waiting = ask(shard, 1, exactly(0), 10, ENOUGH, 60_000)
    shard.tell()
    shard.send(Publish((1,), run_of(0, 2)))
    assert found(answer(shard, waiting)) == [(0, 0), (1, 1)]
    shard.stop()
    assert found(shard.do(Pull, 1, exactly(0), 10, ENOUGH)) == [(0, 0), (1, 1)]
