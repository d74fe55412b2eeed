"""Shards prepare commits and follow decisions over real links, also those that were away."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.transactions import PreparationProgress
from shardmq.coordinator.handlers import commands
from shardmq.coordinator.links import shard as shard_link
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import StillPreparing, Unavailable, request_error
from shardmq.limits import TRANSACTION_TIMEOUT_MS
from shardmq.topology.commands import AbortTransaction, DeclareQueue, DeleteQueue
from tests.coordinator.transacting import A, B, begun, commit, counts, refused, visible

if TYPE_CHECKING:
    from tests.coordinator.conftest import Clock, GatewayEnd, Room, ShardEnd


NAME = next(f"q{number}" for number in range(20) if QueuePlacement(1, 2).of("/", f"q{number}") == 0)
IF_UNUSED = DeleteQueue("/", NAME, if_unused=True)


@pytest.fixture
def ends(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def test_a_commit_while_a_shard_is_away_decides_nothing(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.3)
    room.start()
    gateway, here = room.gateway(), room.shard(0)
    number, _ = begun(room, gateway)
    code, text = refused(room, gateway, commit(number))
    assert (code, text.startswith("shard-1 is not reachable")) == (506, True)
    assert list(gateway.topology.transactions) == [number]
    assert not here.decisions
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    room.shard(1)
    assert visible(room, gateway, commit(number))


def test_a_shard_that_comes_back_is_asked_again(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].answers = False
    request = gateway.ask(commit(number, (A, 2)))
    room.until(lambda: ends[1].prepared)
    room.hang_up(ends[1])
    back = room.shard(1)
    back.counts = {A: 2}
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, True)
    assert back.prepared == [(number, [A])]


def test_what_a_shard_says_of_a_commit_given_up_is_not_taken_for_the_next(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].answers = False
    ends[1].counts = {A: 1}
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.3)
    assert refused(room, gateway, commit(number, (A, 1)))[0] == 506
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    ends[1].counts = {A: 5}
    request = gateway.ask(commit(number, (B, 0), (A, 5)))
    room.until(lambda: len(ends[1].prepared) == 2)
    ends[1].answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, True)


def test_what_a_shard_says_of_a_deletion_given_up_is_not_taken_for_the_next(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    gateway = room.gateway()
    declared = room.perform(gateway, DeclareQueue("/", NAME, True, {}))
    assert isinstance(declared, Answer)
    shard = ends[0]
    shard.answers = False
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.3)
    given_up = room.perform(gateway, IF_UNUSED)
    assert isinstance(given_up, Refusal)
    assert given_up.code == 506
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    shard.busy.add(declared.result)
    before = len(shard.withheld)
    request = gateway.ask(IF_UNUSED)
    room.until(lambda: len(shard.withheld) > before)
    shard.answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Refusal(request, 406, "queue in use")
    assert ("/", NAME) in gateway.topology.queues
    assert not shard.dropped


def test_a_shards_refusal_to_prepare_reaches_who_asked(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].refusal = "out of order"
    assert refused(room, gateway, commit(number)) == (506, "shard-0: out of order")
    assert list(gateway.topology.transactions) == [number]


def test_a_commit_is_answered_when_every_shard_has_followed(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].follows = False
    request = gateway.ask(commit(number))
    room.until(lambda: ends[1].decisions and not gateway.topology.transactions)
    room.settle(gateway)
    assert request not in gateway.answers
    again = gateway.ask(commit(number))
    room.hang_up(ends[1])
    assert counts(room, gateway) == (0, 1)
    back = room.shard(1)
    room.until(lambda: gateway.answers.keys() >= {request, again})
    assert (gateway.answers[request], gateway.answers[again]) == (Answer(request, True), Answer(again, True))
    assert back.decisions == [(number, [])]
    assert len(ends[0].prepared) == 1
    assert counts(room, gateway) == (0, 0)


def test_a_commit_that_a_shard_does_not_follow_stands_and_is_not_visible_yet(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts, ends[1].follows = {A: 1}, False
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.5)
    assert not visible(room, gateway, commit(number, (A, 1)))
    assert not visible(room, gateway, commit(number, (A, 1)))
    assert begun(room, gateway) == (number, True)
    room.hang_up(ends[1])
    room.restart(boot_id="second")
    gateway, back = room.gateway("gateway-1"), room.shard(1)
    room.until(lambda: back.decisions)
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    assert visible(room, gateway, commit(number, (A, 1)))
    assert back.decisions == [(number, [A])]
    assert ends[0].decisions == [(number, [A])]
    room.restart()
    assert counts(room, room.gateway("gateway-2")) == (0, 0)


def test_a_decision_that_a_shard_refused_to_follow_is_told_again(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_link, "FOLLOW_AGAIN_SECONDS", 0.1)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].refusal = "no room on the disk"
    room.perform(gateway, AbortTransaction("/", "t", number, "anna"))
    room.until(lambda: len(ends[0].decisions) > 2)
    assert counts(room, gateway) == (0, 1)
    ends[0].refusal = None
    room.until(lambda: counts(room, gateway) == (0, 0))


def test_a_coordinator_killed_before_the_decision_has_decided_nothing(room: "Room", ends: list["ShardEnd"]) -> None:
    room.spawn()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].answers = False
    gateway.ask(commit(number, (A, 3)))
    room.until(lambda: ends[0].prepared)
    room.kill()
    ends[0].withheld.clear()
    ends[0].answers, ends[0].counts = True, {A: 3}
    room.spawn()
    gateway = room.gateway("gateway-1")
    assert list(gateway.topology.transactions) == [number]
    assert not ends[0].decisions
    assert visible(room, gateway, commit(number, (A, 3)))


def test_a_coordinator_killed_after_the_decision_has_the_shards_follow_it(room: "Room", ends: list["ShardEnd"]) -> None:
    room.spawn()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts = {A: 3}
    for shard in ends:
        shard.follows = False
    gateway.ask(commit(number, (A, 3)))
    room.until(lambda: ends[0].decisions or ends[1].decisions)
    room.kill()
    for shard in ends:
        shard.follows = True
        shard.decisions.clear()
    room.spawn()
    gateway = room.gateway("gateway-1")
    assert not gateway.topology.transactions
    assert visible(room, gateway, commit(number, (A, 3)))
    for shard in ends:  # what the first one said may have been on its way
        assert set(map(str, shard.decisions)) == {str((number, [A]))}
    assert refused(room, gateway, AbortTransaction("/", "t", number, ""))[0] == 406


@pytest.mark.usefixtures("ends")
def test_more_shards_follow_from_their_first_session_on(room: "Room") -> None:
    room.start()
    number, _ = begun(room, room.gateway())
    room.shards = 3
    third = room.shard(2)
    room.restart()
    gateway = room.gateway("gateway-1")
    assert visible(room, gateway, commit(number))
    assert third.decisions == [(number, [])]


def preparing(room: "Room", gateway: "GatewayEnd", number: int, *shards: "ShardEnd") -> int:
    """Ask for a commit for which these shards read, which the coordinator has heard; the others have answered."""
    assert room._coordinator is not None
    links = room._coordinator._shards
    for shard in shards:
        shard.answers = False
        shard.prepared.clear()
    request = gateway.ask(commit(number, (A, 1)))
    room.until(lambda: all(shard.prepared for shard in shards))
    for shard in shards:
        shard.say(PreparationProgress(number, 30, 100))
    room.until(lambda: all(links[shard.number].transactions.progress(number) for shard in shards))
    return request


def test_a_commit_for_which_shards_still_read_is_refused_with_how_far_they_are(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts = {A: 1}
    for shards, who in ((ends, "shard-0 and 1 more still read"), (ends[1:], "shard-1 still reads")):
        monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
        request = preparing(room, gateway, number, *shards)
        monkeypatch.setattr(commands, "SHARD_SECONDS", 0.0)
        answer = room.until(lambda: gateway.answers.get(request))  # noqa: B023
        assert isinstance(answer, Refusal)
        bytes_read, staged = 30 * len(shards), 100 * len(shards)
        assert answer.text.startswith(f"{who} what was staged ({bytes_read} of {staged} bytes so far); nothing of ")
        error = request_error(answer.code, answer.text)
        assert isinstance(error, StillPreparing)
        assert (error.read, error.staged, error.left) == (bytes_read, staged, staged - bytes_read)
        ends[0].answers = True
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    ends[1].withheld.clear()
    ends[1].answers = True
    assert visible(room, gateway, commit(number, (A, 1)))


def test_a_shard_that_goes_away_is_told_of_though_it_or_another_has_got_on(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    request = preparing(room, gateway, number, *ends)
    room.hang_up(ends[1])
    assert room._coordinator is not None
    links = room._coordinator._shards
    room.until(lambda: not links[1].is_open)
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.0)
    answer = room.until(lambda: gateway.answers.get(request))
    assert isinstance(answer, Refusal)
    assert answer.text.startswith("shard-1 is not reachable")
    assert type(request_error(answer.code, answer.text)) is Unavailable


def test_a_shard_that_tells_nothing_is_not_waited_for(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].answers = False
    request = gateway.ask(commit(number, (A, 1)))
    room.until(lambda: ends[1].prepared)
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.0)
    answer = room.until(lambda: gateway.answers.get(request))
    assert isinstance(answer, Refusal)
    assert answer.text.startswith("shard-1 has not said in time what it has of transaction 't'; nothing is decided")
    assert type(request_error(answer.code, answer.text)) is Unavailable


def test_a_transaction_does_not_expire_while_its_commit_gets_on(
    room: "Room", clock: "Clock", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    request = preparing(room, gateway, number, *ends)
    clock.ahead_ms = TRANSACTION_TIMEOUT_MS + 1
    assert room._coordinator is not None
    transactions = room._coordinator._state.transactions
    room.until(lambda: number in transactions._expiring)  # its abort waits for its turn
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.0)
    room.until(lambda: request in gateway.answers and number not in transactions._expiring)
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    for shard in ends:
        shard.withheld.clear()
        shard.answers = True
    assert begun(room, gateway) == (number, False)
