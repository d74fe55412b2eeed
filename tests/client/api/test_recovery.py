"""When which address is tried, and when it is given up."""

import math

import pytest

import shardmq
from shardmq.client.api.recovery import STEADY_SECONDS, Backoff, Recovery
from shardmq.client.api.url import parse_all
from shardmq.errors import InvalidRequest


def test_a_backoff_tries_every_address_beginning_behind_the_lost_one_and_pauses_between_turns() -> None:
    addresses = parse_all("shardmq://a,b,c/")
    backoff = Backoff(Recovery(first_seconds=1, max_seconds=3, attempts=4), addresses)
    backoff.connected(addresses[0])
    backoff.lost(100, 1)
    planned = []
    while (step := backoff.next(100)) is not None:
        planned.append(step)
    assert [address.host for _, address in planned] == ["b", "c", "a"] * 4
    longest = [1, 0, 0, 2, 0, 0, 3, 0, 0, 3, 0, 0]
    assert all(0 <= pause <= most for (pause, _), most in zip(planned, longest, strict=True))
    backoff.lost(200, STEADY_SECONDS - 1)
    assert backoff.next(200) is None
    backoff.lost(300, STEADY_SECONDS)
    assert backoff.next(300) is not None


def test_a_backoff_gives_up_in_time() -> None:
    backoff = Backoff(Recovery(seconds=10), parse_all("shardmq://a/"))
    backoff.lost(100, 60)
    assert backoff.next(109.5) is not None
    assert backoff.next(110.1) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("first_seconds", 0),
        ("first_seconds", 20),
        ("first_seconds", math.nan),
        ("first_seconds", math.inf),
        ("max_seconds", 0.0),
        ("max_seconds", math.nan),
        ("attempts", 0),
        ("seconds", 0),
        ("seconds", -1.0),
        ("seconds", math.nan),
    ],
)
def test_wishes_that_make_no_sense_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=field):
        Recovery(**{field: value}).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["first_seconds", "max_seconds", "attempts", "seconds"])
@pytest.mark.parametrize("value", ["300", True, [1]])
def test_wishes_that_are_no_numbers_are_type_errors_by_name(field: str, value: object) -> None:
    with pytest.raises(TypeError, match=field):
        Recovery(**{field: value}).check()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=field):
        shardmq.connect("shardmq://127.0.0.1:1/", recovery=Recovery(**{field: value}))  # type: ignore[arg-type]


def test_wishes_may_be_whole_numbers_and_infinite() -> None:
    Recovery(first_seconds=1, max_seconds=math.inf, attempts=1, seconds=math.inf).check()
    Recovery(attempts=None, seconds=None).check()
