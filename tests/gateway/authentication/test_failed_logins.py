"""What failed logins lead to, without any I/O."""

import pytest

from shardmq.gateway.authentication.failed_logins import (
    DELAY_SECONDS,
    DELAY_SECONDS_MAX,
    FREE,
    REMEMBERED_MAX,
    TRUST_SECONDS,
    Suspicion,
    Who,
    who,
)

GUEST = Who("10.0.0.1", "guest")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def suspicion(clock: Clock) -> Suspicion:
    return Suspicion(clock)


def fail(suspicion: Suspicion, who: Who, times: int) -> list[float]:
    return [suspicion.failed(who) for _ in range(times)]


def test_a_few_failures_cost_nothing_and_then_each_twice_as_much_up_to_the_most(suspicion: Suspicion) -> None:
    delays = fail(suspicion, GUEST, FREE + 10)
    assert delays[:FREE] == [0.0] * FREE
    assert delays[FREE : FREE + 3] == [2 * DELAY_SECONDS, 4 * DELAY_SECONDS, 8 * DELAY_SECONDS]
    assert delays[-1] == DELAY_SECONDS_MAX
    assert delays == sorted(delays)


@pytest.mark.parametrize("other", [Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_failures_count_for_the_source_and_for_the_user(suspicion: Suspicion, other: Who) -> None:
    fail(suspicion, GUEST, 2 * FREE)
    assert suspicion.is_suspected(other)
    assert suspicion.failed(other) > 0
    assert not suspicion.is_suspected(Who("10.0.0.2", "ann"))


@pytest.mark.parametrize("attacked", [Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_who_has_logged_in_from_there_is_not_suspected_for_what_others_do(suspicion: Suspicion, attacked: Who) -> None:
    suspicion.succeeded(GUEST)
    fail(suspicion, attacked, 100)
    assert suspicion.rank(GUEST) == 0
    assert fail(suspicion, GUEST, FREE) == [0.0] * FREE
    assert suspicion.rank(GUEST) == 3


def test_trust_ends(suspicion: Suspicion, clock: Clock) -> None:
    suspicion.succeeded(GUEST)
    clock.now += TRUST_SECONDS - 1
    assert suspicion.is_trusted(GUEST)
    clock.now += 2
    assert not suspicion.is_trusted(GUEST)


def test_counts_fade(suspicion: Suspicion, clock: Clock) -> None:
    fail(suspicion, GUEST, 1000)
    assert suspicion.is_suspected(GUEST)
    clock.now += 120
    assert not suspicion.is_suspected(GUEST)
    assert suspicion.failed(GUEST) == 0


def test_success_forgives_a_slip_and_no_attack(suspicion: Suspicion) -> None:
    slips = Who("10.0.0.3", "ann")
    fail(suspicion, slips, FREE - 1)
    suspicion.succeeded(slips)
    assert suspicion.weight(Who("10.0.0.3", "bob")) == suspicion.weight(Who("10.0.0.4", "ann")) == 0
    fail(suspicion, GUEST, 2 * FREE)
    suspicion.succeeded(GUEST)
    assert suspicion.is_suspected(GUEST)
    suspicion.succeeded(Who("10.0.0.1", "attacker"))  # who has a user of their own clears nothing by it
    assert suspicion.is_suspected(Who("10.0.0.1", "ann"))


def test_what_is_remembered_is_bounded_whatever_strangers_say(suspicion: Suspicion) -> None:
    suspicion.succeeded(GUEST)
    for number in range(REMEMBERED_MAX + 100):
        suspicion.failed(who(f"2001:db8:{number:x}::1", "x" * 10_000 + str(number)))
    assert len(suspicion._sources._counts) == REMEMBERED_MAX
    assert len(suspicion._users._counts) == 1
    assert suspicion.is_trusted(GUEST)


def test_a_source_is_an_address_or_a_network() -> None:
    assert who("2001:db8::1", "u").source == who("2001:db8::ffff:2", "u").source == "2001:db8::/64"
    assert who("::ffff:10.0.0.1", "u") == who("10.0.0.1", "u") == Who("10.0.0.1", "u")
    assert who("fe80::1%eth0", "u").source == "fe80::/64"
    assert who("", "u").source == ""
