"""Transactions in a shard: what is staged, sealed and decided, and what becomes of it in queues of all kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.shard import (
    Confirmed,
    Consume,
    Counts,
    Delivered,
    DropQueue,
    Get,
    Got,
    PrepareDelete,
    Publish,
    PublishRefusal,
)
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, numbers, run_of

DEAD_LETTERED = {"x-max-length": 3, "x-overflow": "reject-publish-dlx"}

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "other", 2, 0),
    Queue("/", "volatile", 3, 0, durable=False),
    Queue("/", "ranked", 4, 0, arguments={"x-max-priority": 5}),
    Queue("/", "full", 5, 0, arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
    Queue("/", "burying", 6, 0, arguments={**DEAD_LETTERED, "x-dead-letter-exchange": "dlx"}),
    Queue("/", "short", 7, 0, arguments={"x-max-length": 3}),
    Queue("/", "no exchange", 9, 0, arguments=DEAD_LETTERED),
    Queue("/", "hasty", 8, 0, arguments={"x-message-ttl": 2000, "x-dead-letter-exchange": "dlx"}),
)

FIRST, SECOND = 71, 5
"""Attempts, in the order of commits here, which is not that of their numbers."""


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def staged(
    start: int, count: int, *queues: int, attempt: int = FIRST, transaction: int = 1, body: int = 0, delay_ms: int = 0
) -> Publish:
    """Messages that an attempt numbers from `start` on; in their bodies is `body + start` and so on."""
    batch = run_of(body + start, count)
    return Publish(queues or (1,), batch, attempt, start, delay_ms, transaction)


def send(shard: Shard, *messages: Publish, upto: int = 0) -> None:
    """In a new session, so that its publishes can be counted."""
    shard.redial()
    shard.send(*messages)
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == (upto or len(messages)))


def refusals(shard: Shard) -> list[PublishRefusal]:
    return [message for message in shard.inbox if isinstance(message, PublishRefusal)]


def seal(shard: Shard, attempt: int = FIRST, transaction: int = 1) -> Any:
    return shard.ask(Call(11, Seal(transaction, attempt)))


def conclude(shard: Shard, *attempts: int, transaction: int = 1) -> None:
    assert shard.ask(Call(12, FollowDecision(transaction, list(attempts)))) is None


def consumed(shard: Shard, count: int, queue: int = 1) -> list[int]:
    shard.ask(Call(6, Consume(50 + queue, queue, 0, True, 1 << 30)))
    got: list[Delivered] = []
    while sum(one.batch.count for one in got) < count:
        got.append(shard.expect(Delivered, lambda one: one.consumer == 50 + queue))
    return numbers(got)


def table(shard: Shard) -> list[dict[str, int]]:
    return list(shard.ask(Call(13, Inspect()))["staged"])


def test_what_is_staged_is_in_no_queue_before_it_is_committed_and_then_in_all_of_them(shard: Shard) -> None:
    send(shard, staged(0, 10, 1, 2, 3), staged(10, 5, 2))
    assert [shard.ask(Call(5, Counts(queue)))[0] for queue in (1, 2, 3)] == [0, 0, 0]
    size = len(run_of(0, 10).records) + len(run_of(10, 5).records)
    assert table(shard) == [{"number": 1, "attempts": 1, "messages": 15, "bytes": size}]
    assert seal(shard) == [15, size]
    assert shard.ask(Call(6, Prepare(1, [FIRST]))) == [15]
    assert shard.queue()["published"] == 0
    conclude(shard, FIRST)
    assert table(shard) == []
    assert consumed(shard, 10, 1) == list(range(10))
    assert consumed(shard, 15, 2) == list(range(15))
    assert consumed(shard, 10, 3) == list(range(10))


def test_attempts_follow_one_another_as_the_commit_has_them_and_what_others_staged_is_gone(shard: Shard) -> None:
    send(
        shard,
        *[
            staged(at, 5, attempt=attempt, body=body)
            for at in (0, 5, 10)
            for attempt, body in ((SECOND, 2000), (8, 3000), (FIRST, 1000), (99, 4000))
        ],
    )
    for attempt in (FIRST, SECOND, 99):
        assert seal(shard, attempt)[0] == 15
    assert shard.ask(Call(6, Prepare(1, [FIRST, SECOND, 8, 1234]))) == [15, 15, -1, 0]
    conclude(shard, FIRST, SECOND)
    assert table(shard) == []
    shard.restart()
    assert table(shard) == []
    assert consumed(shard, 30) == [*range(1000, 1015), *range(2000, 2015)]
    assert shard.queue()["ready"] == 0


def test_an_abort_leaves_nothing_behind_and_the_bytes_are_the_stores_again(shard: Shard) -> None:
    before = shard.ask(Call(5, Inspect()))["store"]["used_bytes"]
    big = RecordBatch("ex", "key", 1, 5, 9, 0, 500, pack_many([bytes(100)] * 500))
    send(
        shard,
        *[Publish((1, 2), big, FIRST, 500 * place, 0, 1) for place in range(100)],
        *[staged(place, 1, attempt=SECOND) for place in range(3000)],
    )
    seal(shard)
    assert shard.ask(Call(5, Inspect()))["store"]["used_bytes"] > before + 100 * len(big.records)
    conclude(shard)
    shard.until(lambda: shard.ask(Call(5, Inspect()))["store"]["used_bytes"] <= before + 20_000)
    assert (table(shard), shard.queue()["ready"]) == ([], 0)
    shard.restart()
    assert (table(shard), shard.queue()["ready"]) == ([], 0)


def test_a_resend_is_staged_once_whatever_frames_it_comes_in(shard: Shard) -> None:
    send(shard, staged(0, 10), staged(0, 10), staged(5, 10), staged(3, 2), staged(20, 5), staged(12, 12), staged(0, 30))
    assert refusals(shard) == []
    assert seal(shard)[0] == 30
    conclude(shard, FIRST)
    assert consumed(shard, 30) == list(range(30))
    assert shard.queue()["published"] == 30


def test_a_resend_after_a_kill_is_staged_once(shard: Shard) -> None:
    for _ in range(3):
        send(shard, staged(0, 10, 1, 2), staged(15, 5))
        shard.restart()
        send(shard, staged(8, 4, 1, 2))
        shard.restart()
    assert seal(shard)[0] == 17
    shard.restart()
    assert seal(shard)[0] == 17
    conclude(shard, FIRST)
    assert consumed(shard, 17) == [*range(12), *range(15, 20)]
    assert consumed(shard, 12, 2) == list(range(12))


def test_what_was_refused_before_many_gaps_is_not_taken_for_staged(shard: Shard) -> None:
    """Every second message goes to another shard; the first are refused, as a queue of theirs was not there yet."""
    send(
        shard,
        *[staged(number, 1, 99) for number in range(0, 20, 2)],
        *[staged(number, 1) for number in range(20, 2000, 2)],
    )
    assert {refusal.number for refusal in refusals(shard)} == set(range(1, 11))
    send(shard, *[staged(number, 2) for number in range(0, 40, 4)])
    assert refusals(shard) == []
    shard.restart()
    send(shard, *[staged(number, 1) for number in range(0, 2000, 2)])
    assert seal(shard)[0] == 1000 + 10
    conclude(shard, FIRST)
    odd = {number + 1 for number in range(0, 40, 4)}
    assert consumed(shard, 1010) == sorted({*range(0, 2000, 2), *odd})


def test_a_sealed_attempt_takes_nothing_new(shard: Shard) -> None:
    send(shard, staged(0, 10))
    assert seal(shard)[0] == 10
    for _ in range(2):
        send(shard, staged(0, 10), staged(5, 10), staged(10, 1), staged(2, 3), staged(0, 1, attempt=SECOND))
        assert [(each.number, each.code, each.taken) for each in refusals(shard)] == [(2, 406, 5), (3, 406, 0)]
        assert "attempt 71 of transaction 1 is sealed" in refusals(shard)[0].text
        assert seal(shard)[0] == 10
        shard.restart()
    conclude(shard, FIRST)
    assert consumed(shard, 10) == list(range(10))


def test_sealing_what_is_not_here_writes_nothing(shard: Shard) -> None:
    assert seal(shard) == [0, 0]
    assert table(shard) == []
    send(shard, staged(0, 1))
    assert refusals(shard) == []
    assert shard.ask(Call(6, Prepare(1, [FIRST, SECOND]))) == [-1, 0]


def test_what_comes_after_the_count_of_a_shard_that_had_nothing_is_not_committed(shard: Shard) -> None:
    """Only what is there can be sealed; and what nobody has counted, nobody has committed."""
    send(shard, staged(0, 10, 1, attempt=SECOND))
    assert [seal(shard)[0], seal(shard, SECOND)[0]] == [0, 10]
    assert shard.ask(Call(6, Prepare(1, [FIRST, SECOND]))) == [0, 10]
    send(shard, staged(0, 5, 1))
    conclude(shard, FIRST, SECOND)
    assert table(shard) == []
    shard.restart()
    assert (table(shard), shard.queue()["ready"]) == ([], 10)


def test_what_comes_for_a_transaction_that_is_over_is_refused_for_ever(shard: Shard) -> None:
    send(shard, staged(0, 10))
    seal(shard)
    conclude(shard, FIRST)
    conclude(shard, transaction=2)
    for _ in range(2):
        send(shard, staged(0, 10), staged(10, 1), staged(0, 1, transaction=2), staged(0, 1, transaction=3))
        assert [(each.number, each.code, each.taken) for each in refusals(shard)] == [
            (1, 406, 0),
            (2, 406, 0),
            (3, 406, 0),
        ]
        assert refusals(shard)[0].text == (
            "transaction 1 is over: it was committed, aborted or has expired; begin it again"
        )
        shard.send(Call(20, Seal(1, FIRST)), Call(21, Prepare(2, [FIRST])))
        assert [shard.expect(Refusal).code for _ in range(2)] == [406, 406]
        assert [each["number"] for each in table(shard)] == [3]
        shard.restart()
    assert shard.ask(Call(5, Counts(1)))[0] == 10


def test_a_decision_told_again_changes_nothing(shard: Shard) -> None:
    send(shard, staged(0, 10))
    seal(shard)
    shard.send(Call(31, FollowDecision(1, [FIRST])), Call(32, FollowDecision(1, [FIRST])))
    for request in (31, 32):
        assert shard.expect(Answer).request == request
    conclude(shard, FIRST)
    shard.restart()
    conclude(shard, FIRST)
    assert shard.ask(Call(5, Counts(1)))[0] == 10


def test_a_publish_to_a_queue_that_goes_or_is_gone_is_staged_for_none(shard: Shard) -> None:
    shard.ask(Call(6, PrepareDelete(2, False, False)))
    send(shard, staged(0, 10, 1, 2), staged(0, 10, 1, 99))
    assert [(each.code, each.taken) for each in refusals(shard)] == [(506, 0), (404, 0)]
    assert table(shard) == []
    shard.assign(QUEUES[1])
    send(shard, staged(0, 10, 1, 2))
    seal(shard)
    conclude(shard, FIRST)
    assert [shard.ask(Call(5, Counts(queue)))[0] for queue in (1, 2)] == [10, 10]


def test_a_deleted_queue_loses_its_part_and_one_that_is_condemned_gets_it(shard: Shard) -> None:
    send(shard, staged(0, 10, 1, 2, 4), staged(10, 5, 2))
    seal(shard)
    shard.ask(Call(6, DropQueue(2)))
    shard.ask(Call(7, PrepareDelete(4, False, False)))
    conclude(shard, FIRST)
    assert (table(shard), shard.queue(4)["ready"]) == ([], 10)
    assert consumed(shard, 10) == list(range(10))


def test_delays_count_from_the_commit(shard: Shard) -> None:
    send(shard, staged(0, 3, 1, 3, delay_ms=60_000), staged(3, 2, delay_ms=1))
    seal(shard)
    assert shard.queue()["delayed"] == 0
    conclude(shard, FIRST)
    assert consumed(shard, 2) == [3, 4]
    assert (shard.queue()["delayed"], shard.queue(3)["delayed"]) == (3, 3)
    shard.restart()
    assert shard.queue()["delayed"] == 3


def test_times_to_live_count_from_the_commit(shard: Shard) -> None:
    batch = run_of(0, 1)
    batch.ttl_ms = 0
    send(shard, Publish((1, 8), batch, FIRST, 0, 0, 1), staged(1, 4, 8))
    seal(shard)
    shard.ask(consume(1))
    conclude(shard, FIRST)
    assert numbers([shard.expect(Delivered)]) == [0]  # a time of 0: to who is there when it comes, or to nobody
    dead = [shard.expect(DeadLetter) for _ in range(2)]
    assert [number for letter in dead for number in numbers_of(letter.batch)] == list(range(5))
    assert dead[1].batch.timestamp_ms > 1_000_000  # when it joined the queue; the publish said 5


def numbers_of(batch: RecordBatch) -> list[int]:
    return [int(record.body) for record in unpack(batch.records, batch.count)]


def test_priorities_count(shard: Shard) -> None:
    for place, priority in enumerate((1, 5, 3, 9)):
        batch = run_of(place * 10, 10)
        batch.priority = priority
        send(shard, Publish((4, 1), batch, FIRST, place * 10, 0, 1))
    seal(shard)
    conclude(shard, FIRST)
    assert consumed(shard, 40, 4) == [*range(10, 20), *range(30, 40), *range(20, 30), *range(10)]
    assert consumed(shard, 40) == list(range(40))


def test_a_full_queue_gets_it_all_the_same(shard: Shard) -> None:
    send(shard, staged(0, 2, 5, 6, 7, 9), staged(2, 3, 5, 6, 7, 9))
    seal(shard)
    conclude(shard, FIRST)
    assert [(shard.queue(queue)["ready"], shard.queue(queue)["delayed"]) for queue in (5, 9)] == [(5, 0), (5, 0)]
    assert numbers_of(shard.expect(DeadLetter).batch) == [3, 4]
    shard.restart()
    assert [consumed(shard, 5, queue) for queue in (5, 9)] == [list(range(5))] * 2
    assert consumed(shard, 3, 6) == [0, 1, 2]
    assert consumed(shard, 3, 7) == [2, 3, 4]


def test_what_is_committed_later_does_not_come_before_what_a_full_queue_got(shard: Shard) -> None:
    send(shard, staged(0, 5, 5), staged(0, 1, 5, transaction=2, body=5))
    seal(shard)
    seal(shard, transaction=2)
    conclude(shard, FIRST)
    shard.send(Call(5, Get(1, 5, True)))
    shard.expect(Got)  # and there is room for one, by the queue's limit
    conclude(shard, FIRST, transaction=2)
    assert consumed(shard, 5, 5) == [1, 2, 3, 4, 5]


def test_consumers_that_wait_get_it_before_the_commit_is_answered(shard: Shard) -> None:
    shard.ask(consume(1))
    send_on = [staged(0, 100)]
    shard.send(*send_on, Call(11, Seal(1, FIRST)), Call(12, FollowDecision(1, [FIRST])))
    shard.expect(Answer, lambda answer: answer.request == 12)
    assert numbers([one for one in shard.inbox if isinstance(one, Delivered)]) == list(range(100))


def test_a_big_transaction_leaves_turns_for_others_and_is_whole_in_the_end(shard: Shard) -> None:
    records = pack_many([b"%0500d" % number for number in range(1000)])
    total = 60
    for place in range(total):
        shard.send(Publish((1, 2), RecordBatch("ex", "key", 1, 5, 9, 0, 1000, records), FIRST, place * 1000, 0, 1))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == total)
    shard.ask(Call(11, Seal(1, FIRST)))
    shard.send(Call(12, FollowDecision(1, [FIRST])))
    between = left = 0
    while not any(isinstance(message, Answer) and message.request == 12 for message in shard.inbox):
        between += 1
        shard.publish(Publish((2,), run_of(between, 1)))
        for each in table(shard):
            assert left == 0 or each["messages"] <= left
            left = each["messages"]
    assert between > 3
    assert 0 < left < total * 1000
    assert [shard.ask(Call(5, Counts(queue)))[0] for queue in (1, 2)] == [total * 1000, total * 1000 + between]


def test_transactions_take_turns(shard: Shard) -> None:
    records = pack_many([b"%01000d" % number for number in range(1000)])
    for place in range(30):
        shard.send(Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 1000, records), FIRST, place * 1000, 0, 1))
    shard.send(staged(0, 5, 2, transaction=2))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 31)
    shard.ask(Call(11, Seal(1, FIRST)))
    shard.ask(Call(11, Seal(2, FIRST)))
    shard.send(Call(12, FollowDecision(1, [FIRST])), Call(13, FollowDecision(2, [FIRST])))
    assert shard.expect(Answer).request == 13
    assert shard.expect(Answer).request == 12


def test_a_kill_while_it_is_carried_out_loses_and_doubles_nothing(shard: Shard) -> None:
    records = pack_many([b"%0500d" % number for number in range(1000)])
    total = 40
    for place in range(total):
        for attempt in (SECOND, FIRST):
            batch = RecordBatch("ex", "key", 1, 5, 9, place * 1000, 1000, records)
            shard.send(Publish((1, 2), batch, attempt, place * 1000, 0, 1))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 2 * total)
    shard.ask(Call(11, Seal(1, FIRST)))
    shard.send(Call(12, FollowDecision(1, [FIRST])))
    kills = 0
    while table(shard):
        shard.restart()  # nobody tells it the decision again
        kills += 1
    assert kills
    conclude(shard, FIRST)
    for queue in (1, 2):
        assert shard.ask(Call(5, Counts(queue)))[0] == total * 1000
        assert consumed(shard, total * 1000, queue) == list(range(1000)) * total
