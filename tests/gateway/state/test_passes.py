"""Passes are gathered where many clients speak seldom, and nobody waits longer who may be waiting for an answer."""

import time

import pytest

from shardmq.gateway.state.passes import APART_SECONDS, Gathering


def seconds(*each: tuple[int, int, float]) -> Gathering:
    """A gathering behind seconds with so many reads, so many of them often, and so much processor time."""
    gathering = Gathering()
    used = 0.0
    gathering.look(1000.0, used)
    for number, (reads, often, share) in enumerate(each, start=1):
        used += share
        gathering.reads, gathering.often = reads, often
        gathering.look(1000.0 + number, used)
    return gathering


@pytest.mark.parametrize(
    ("reads", "often", "share", "is_on"),
    [
        (0, 0, 0.9, False),
        (2_900, 0, 0.9, False),  # a pass would have no more in it
        (20_000, 0, 0.9, True),
        (20_000, 0, 0.3, False),  # there is time to spare
        (20_000, 40, 0.9, True),
        (20_000, 100, 0.9, False),  # some may be waiting for answers
        (50_000, 45_000, 0.9, False),
    ],
)
def test_it_begins_where_a_busy_gateway_has_many_clients_that_speak_seldom(
    reads: int, often: int, share: float, is_on: bool
) -> None:
    assert seconds((reads, often, share)).is_on is is_on


def test_it_goes_on_though_it_makes_the_gateway_less_busy_until_there_is_little_to_do() -> None:
    many = (20_000, 0, 0.9)
    assert seconds(many, (20_000, 0, 0.2)).is_on
    assert not seconds(many, (20_000, 0, 0.1)).is_on
    assert not seconds(many, (20_000, 0, 0.1), (20_000, 0, 0.3)).is_on


def test_it_ends_when_the_clients_are_gone_or_one_speaks_often() -> None:
    many = (20_000, 0, 0.9)
    assert not seconds(many, (0, 0, 0.9)).is_on
    assert not seconds(many, (20_000, 100, 0.9)).is_on


def test_passes_begin_apart_and_one_that_is_late_does_not_wait() -> None:
    gathering = Gathering()
    gathering.wait()
    began = time.monotonic()
    gathering.wait()
    assert time.monotonic() - began > APART_SECONDS / 2
    gathering._began_at -= APART_SECONDS
    waited = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", waited.append)
        gathering.wait()
    assert not waited


def test_it_tells_what_clients_said_and_whether_they_may_wait() -> None:
    gathering = seconds((20_000, 100, 0.5))
    assert gathering.is_awaited
    assert gathering.busy_share == 0.5
    gathering.bytes = 3_000
    gathering.look(1003.0, 0.5)
    assert (gathering.bytes_per_s, gathering.busy_share, gathering.is_awaited) == (1_500, 0, False)
