"""Offsets of groups in transactions, at a shard: staged, prepared, carried out, forgotten, over restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.groups import CommitOffset, DropGroup, GroupReading, InspectPartition, ResetGroup, StageOffset
from shardmq.bus.messages.shard import Consume, Publish, Release
from shardmq.bus.messages.streams import Reading
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.limits import DELIVERY_WINDOW_BYTES, OFFSETS_FROM
from shardmq.message.record import pack_many
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.handlers import decisions
from shardmq.shards.storage.schema import CURSORS, cursor_key
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip
from tests.shards.driver import run_of

ATTEMPT = 77
FIRST = Reading("first")


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(Queue("/", "log", 1, 0, durable=True, arguments={"x-queue-type": "stream"}), Queue("/", "q", 2, 0))
    shard.take_in(run_of(0, 30))
    yield shard
    shard.close()


def stage(offset: int, epoch: int = 0, transaction: int = 5, place: int = 0, queue: int = 1) -> tuple[object, ...]:
    return transaction, ATTEMPT, OFFSETS_FROM + place, queue, "g", offset, epoch


def join(number: int, epoch: int) -> tuple[object, ...]:
    reading = GroupReading("g", False, epoch, f"member-{number}", FIRST)
    return number, 1, 0, False, DELIVERY_WINDOW_BYTES, 0, False, 0, False, 0, None, reading


def offset(shard: Clocked) -> int | None:
    groups = shard.do(InspectPartition, 1)[5]
    return groups[0][2] if groups else None


def prepare(shard: Clocked, transaction: int = 5) -> list[int]:
    shard.do(Seal, transaction, ATTEMPT)
    counts: list[int] = shard.do(Prepare, transaction, [ATTEMPT])
    return counts


@pytest.mark.parametrize("restarts", [False, True])
def test_an_offset_moves_when_its_transaction_is_committed(shard: Clocked, restarts: bool) -> None:
    shard.do(StageOffset, *stage(12))
    shard.do(StageOffset, *stage(12))
    assert offset(shard) is None
    assert prepare(shard) == [1]
    if restarts:
        shard.stop()
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert offset(shard) == 12
    assert shard.loop._groups.staged._staged == {}
    shard.stop()
    assert offset(shard) == 12
    assert shard.table()["total"] == 30


def test_an_offset_of_an_aborted_transaction_moves_nothing(shard: Clocked) -> None:
    shard.do(StageOffset, *stage(12))
    prepare(shard)
    shard.do(FollowDecision, 5, [])
    assert offset(shard) is None
    assert not shard.loop._groups.staged.is_deciding(1, "g")


def test_messages_with_numbers_of_offsets_are_taken_for_none_at_a_start(shard: Clocked) -> None:
    message = RecordBatch("", "g", PERSISTENT, 1, 1, 12, 1, pack_many([b"no offset"]))
    assert not shard.publish(Publish((1,), message, ATTEMPT, OFFSETS_FROM, 0, 5))
    shard.do(Seal, 5, ATTEMPT)
    shard.stop()
    assert shard.do(Consume, *join(1, 9)) == 0
    assert not shard.loop._groups.staged.is_deciding(1, "g")


def test_what_may_not_be_committed_may_not_be_staged(shard: Clocked) -> None:
    assert shard.refused(StageOffset, *stage(31)).code == 416
    assert shard.refused(StageOffset, *stage(0, queue=2)).code == 406
    assert shard.refused(StageOffset, *stage(0, queue=3)).code == 404
    shard.do(CommitOffset, 1, "g", 20, 0)
    assert "does not go back" in shard.refused(StageOffset, *stage(12)).text
    shard.do(Consume, *join(1, 9))
    assert "commit as one of them" in shard.refused(StageOffset, *stage(25)).text
    assert "epoch 8 is older than 9" in shard.refused(StageOffset, *stage(25, 8)).text


def test_a_member_that_was_fenced_meanwhile_cannot_commit(shard: Clocked) -> None:
    shard.do(Consume, *join(1, 9))
    shard.do(StageOffset, *stage(12, 9))
    shard.do(Consume, *join(2, 10))
    shard.do(Seal, 5, ATTEMPT)
    refusal = shard.refused(Prepare, 5, [ATTEMPT])
    assert refusal.code == 406
    assert "newer member of group 'g': epoch 9 is older than 10" in refusal.text
    shard.do(FollowDecision, 5, [])
    assert offset(shard) == 0


def test_what_was_staged_before_a_reset_cannot_be_committed(shard: Clocked) -> None:
    shard.do(Consume, *join(1, 9))
    shard.do(StageOffset, *stage(12, 9))
    assert shard.do(ResetGroup, 1, "g", FIRST, False) == [0, 0]
    assert "epoch 9 is older than 10" in shard.refused(StageOffset, *stage(14, 9, place=1)).text
    shard.do(Seal, 5, ATTEMPT)
    assert "epoch 9 is older than 10" in shard.refused(Prepare, 5, [ATTEMPT]).text


def join_shared(number: int) -> tuple[object, ...]:
    return *join(number, 0)[:-1], GroupReading("g", True, 0, f"member-{number}", FIRST)


def prepare_refused(shard: Clocked, restarts: bool = False) -> str:
    """The text with which a commit is refused; the transaction is aborted then."""
    if restarts:
        shard.stop()
    shard.do(Seal, 5, ATTEMPT)
    refusal = shard.refused(Prepare, 5, [ATTEMPT])
    assert refusal.code == 406
    shard.do(FollowDecision, 5, [])
    assert shard.loop.table()["staged"] == []
    return refusal.text


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", ["shared", "of nobody", "new in the partition"])
def test_what_a_program_staged_before_a_reset_cannot_be_committed(shard: Clocked, kind: str, restarts: bool) -> None:
    if kind == "shared":
        shard.do(Consume, *join_shared(1))
        shard.tell(Release(1))
    if kind != "new in the partition":
        shard.do(CommitOffset, 1, "g", 10, 0)
    shard.do(StageOffset, *stage(12))
    shard.do(ResetGroup, 1, "g", FIRST, False, True)
    assert "or the group was reset" in prepare_refused(shard, restarts)
    assert offset(shard) == 0
    shard.do(StageOffset, *stage(12, transaction=6))
    assert prepare(shard, 6) == [1]
    shard.do(FollowDecision, 6, [ATTEMPT])
    assert offset(shard) == 12


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("begins_anew", [False, True])
@pytest.mark.parametrize("has_begun", [False, True])
def test_what_was_staged_of_a_group_that_was_deleted_cannot_be_committed(
    shard: Clocked, has_begun: bool, begins_anew: bool, restarts: bool
) -> None:
    if has_begun:
        shard.do(CommitOffset, 1, "g", 10, 0)
    shard.do(StageOffset, *stage(12))
    assert shard.do(DropGroup, 1, "g") is has_begun
    if begins_anew:
        shard.do(CommitOffset, 1, "g", 7, 0)
    assert "group 'g' was deleted in" in prepare_refused(shard, restarts)
    assert offset(shard) == (7 if begins_anew else None)
    shard.do(StageOffset, *stage(12, transaction=6))
    assert prepare(shard, 6) == [1]


def test_a_group_is_not_reset_or_deleted_while_its_offset_is_decided(shard: Clocked) -> None:
    shard.do(StageOffset, *stage(12))
    prepare(shard)
    for kind, fields in ((DropGroup, (1, "g")), (ResetGroup, (1, "g", FIRST, False, True))):
        refusal = shard.refused(kind, *fields)
        assert (refusal.code, "is being decided" in refusal.text) == (506, True)
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert offset(shard) == 12
    assert shard.do(DropGroup, 1, "g")


def test_nothing_stays_staged_where_a_group_is_deleted_while_an_abort_is_carried_out(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "DROPPED_BATCHES_PER_PASS", 1)
    for place in range(8):
        shard.do(StageOffset, *stage(12 + place, place=place))
    shard.send(Call(1, FollowDecision(5, [])))
    while shard.loop.table()["staged"][0]["messages"] == 8:
        shard.turn()
    shard.do(DropGroup, 1, "g")
    assert shard.loop.table()["staged"], "the abort was over before"
    shard.expect(Answer, lambda answer: answer.request == 1)
    assert list(shard.store.staging.all()) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_program_beside_the_group_commits_while_it_has_no_members(shard: Clocked, restarts: bool) -> None:
    shard.do(Consume, *join(1, 9))
    shard.tell(Release(1))
    shard.do(StageOffset, *stage(12))
    if restarts:
        shard.stop()
    assert prepare(shard) == [1]
    assert "is being decided" in shard.refused(Consume, *join(2, 10)).text
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert (offset(shard), shard.do(Consume, *join(2, 10))) == (12, 12)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("epoch", [9, 10])
def test_who_was_given_the_partition_since_keeps_a_program_from_committing(
    shard: Clocked, epoch: int, restarts: bool
) -> None:
    """Also under the epoch of before, as a member whose gateway was away, and one that is gone again."""
    shard.do(Consume, *join(1, 9))
    shard.tell(Release(1))
    shard.do(StageOffset, *stage(12))
    if restarts:
        shard.stop()
    assert shard.do(Consume, *join(1, epoch)) == 0
    if epoch > 9:
        shard.tell(Release(1))
    shard.do(Seal, 5, ATTEMPT)
    assert "was given to a member of group 'g' since transaction 5" in shard.refused(Prepare, 5, [ATTEMPT]).text


@pytest.mark.parametrize("restarts", [False, True])
def test_nobody_is_given_a_partition_while_it_is_decided(shard: Clocked, restarts: bool) -> None:
    shard.do(Consume, *join(1, 9))
    shard.do(StageOffset, *stage(12, 9))
    prepare(shard)
    if restarts:
        shard.stop()
    else:
        shard.tell(Release(1))
    resets = [(ResetGroup, (1, "g", FIRST, dry_run)) for dry_run in (True, False)]
    for kind, fields in [(Consume, join(2, 10)), *resets]:
        refusal = shard.refused(kind, *fields)
        assert refusal.code == 506
        assert "is being decided" in refusal.text
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert shard.do(Consume, *join(2, 10)) == 12


def test_a_member_is_further_than_what_its_transaction_commits(shard: Clocked) -> None:
    shard.do(StageOffset, *stage(12))
    shard.do(CommitOffset, 1, "g", 20, 0)
    assert prepare(shard) == [1]
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert offset(shard) == 20


def damage_cursor(shard: Clocked, group: str = "g") -> None:
    shard.stop()
    flip(shard.store, "cursors", cursor_key(1, group))
    shard.stop()


def test_nothing_is_committed_where_a_cursor_is_damaged(shard: Clocked) -> None:
    for group in ("g", "other"):
        shard.do(CommitOffset, 1, group, 10, 0)
    shard.do(StageOffset, *stage(12))
    damage_cursor(shard)
    sentence = "group 'g' is out of service in stream 'log' in vhost '/': its cursor in"
    for kind, fields in (
        (StageOffset, stage(14, place=1)),
        (Consume, join(1, 9)),
        (CommitOffset, (1, "g", 14, 0)),
        (ResetGroup, (1, "g", FIRST, False, True)),
        (DropGroup, (1, "g")),
        (InspectPartition, (1, "g")),
    ):
        refusal = shard.refused(kind, *fields)
        assert (refusal.code, sentence in refusal.text) == (506, True)
    for kind, fields in ((CommitOffset, (1, "new", 14, 0)), (ResetGroup, (1, "new", FIRST, True, True))):
        assert "group 'new' cannot begin in stream 'log'" in shard.refused(kind, *fields).text
    shard.do(Seal, 5, ATTEMPT)
    assert sentence in shard.refused(Prepare, 5, [ATTEMPT]).text
    shard.do(FollowDecision, 5, [])
    assert shard.do(CommitOffset, 1, "other", 14, 0) == 14
    assert [(group[0], group[11]) for group in shard.do(InspectPartition, 1)[5]] == [("other", False), ("g", True)]
    assert shard.do(ResetGroup, 1, "g", FIRST, True) == [0, 0]
    assert shard.do(ResetGroup, 1, "g", FIRST, False, True, 77) == [0, 0]
    assert [(group[2], group[3]) for group in shard.do(InspectPartition, 1, "g")[5]] == [(0, 77)]
    shard.take_in(run_of(30, 5))
    assert shard.table()["total"] == 35


@pytest.mark.parametrize("restarts", [False, True])
def test_an_offset_that_was_decided_waits_for_its_damaged_cursor_and_a_reset_comes_behind_it(
    shard: Clocked, restarts: bool
) -> None:
    shard.do(CommitOffset, 1, "g", 10, 0)
    shard.do(StageOffset, *stage(12))
    assert prepare(shard) == [1]
    damage_cursor(shard)
    for _ in range(2):
        assert "group 'g' is out of service in stream 'log'" in shard.refused(FollowDecision, 5, [ATTEMPT]).text
        assert [(group[0], group[11]) for group in shard.do(InspectPartition, 1)[5]] == [("g", True)]
        shard.stop()
    assert shard.do(ResetGroup, 1, "g", FIRST, True) == [0, 0]
    assert shard.do(ResetGroup, 1, "g", FIRST, False, True, 77) == [0, 0]
    if restarts:
        shard.stop()
    shard.do(FollowDecision, 5, [ATTEMPT])
    assert shard.loop.table()["staged"] == []
    assert shard.do(Consume, *join(2, 78)) == 0
    shard.stop()
    assert offset(shard) == 0


def test_a_damaged_cursor_is_not_reset_while_a_transaction_is_decided(shard: Clocked) -> None:
    shard.do(CommitOffset, 1, "g", 10, 0)
    shard.do(StageOffset, *stage(12))
    assert prepare(shard) == [1]
    damage_cursor(shard)
    for dry_run in (True, False):
        refusal = shard.refused(ResetGroup, 1, "g", FIRST, dry_run, True, 77)
        assert refusal.code == 506
        assert refusal.text.endswith("is being decided; reset the group in a moment")
    shard.do(FollowDecision, 5, [])
    assert shard.do(ResetGroup, 1, "g", FIRST, False, True, 77) == [0, 0]


def test_what_was_staged_before_a_damaged_cursor_was_reset_is_not_committed(shard: Clocked) -> None:
    shard.do(CommitOffset, 1, "g", 10, 0)
    shard.do(StageOffset, *stage(12, 6))
    damage_cursor(shard)
    shard.do(ResetGroup, 1, "g", FIRST, False, True, 1)  # lower than what is staged: of a coordinator without its store
    shard.do(Seal, 5, ATTEMPT)
    assert "is older than" in shard.refused(Prepare, 5, [ATTEMPT]).text
    shard.stop()
    assert "is older than" in shard.refused(Prepare, 5, [ATTEMPT]).text


@pytest.mark.parametrize(
    ("queue", "name", "refused"),
    [
        (1, "w", "group 'g' is out of service in stream 'log'"),
        (1, "x", "group 'g' cannot begin in stream 'log'"),
        (3, "g", "group 'g' is out of service in stream 'log'"),
        (1 + (1 << 40), "g", "group 'g' is out of service in stream 'log'"),
    ],
    ids=["one bit of the name", "bits of the name", "another partition", "no partition"],
)
def test_a_group_whose_cursor_has_a_damaged_key_does_not_begin_anew(
    shard: Clocked, queue: int, name: str, refused: str
) -> None:
    shard.assign(Queue("/", "log-3", 3, 0, durable=True, arguments={"x-queue-type": "stream"}))
    shard.do(CommitOffset, 1, "g", 10, 0)
    shard.stop()
    engine = shard.store.engine
    engine.sync()
    with engine._env.begin(write=True, db=engine._dbs[CURSORS]) as transaction:
        assert transaction.put(cursor_key(queue, name), transaction.pop(cursor_key(1, "g")))
    shard.stop()
    assert refused in shard.refused(Consume, *join(1, 9)).text
    assert refused in shard.refused(StageOffset, *stage(14)).text
    assert shard.do(CommitOffset, 3, "other", 0, 0) == 0
