"""What failed logins lead to, without any I/O."""

import pytest

from shardmq.gateway.authentication.failed_logins import (
    DELAY_SECONDS,
    DELAY_SECONDS_MAX,
    FREE,
    REMEMBERED_MAX,
    TRUST_SECONDS,
    FailedLogins,
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
def failed_logins(clock: Clock) -> FailedLogins:
    return FailedLogins(clock)


def fail(failed_logins: FailedLogins, who: Who, times: int) -> list[float]:
    return [failed_logins.failed(who) for _ in range(times)]


def test_a_few_failures_cost_nothing_and_then_each_twice_as_much_up_to_the_most(failed_logins: FailedLogins) -> None:
    delays = fail(failed_logins, GUEST, FREE + 10)
    assert delays[:FREE] == [0.0] * FREE
    assert delays[FREE : FREE + 3] == [2 * DELAY_SECONDS, 4 * DELAY_SECONDS, 8 * DELAY_SECONDS]
    assert delays[-1] == DELAY_SECONDS_MAX
    assert delays == sorted(delays)


@pytest.mark.parametrize("other", [Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_failures_count_for_the_source_and_for_the_user(failed_logins: FailedLogins, other: Who) -> None:
    fail(failed_logins, GUEST, 2 * FREE)
    assert failed_logins.is_suspected(other)
    assert failed_logins.failed(other) > 0
    assert not failed_logins.is_suspected(Who("10.0.0.2", "ann"))


@pytest.mark.parametrize("attacked", [Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_who_has_logged_in_from_there_is_not_suspected_for_what_others_do(
    failed_logins: FailedLogins, attacked: Who
) -> None:
    failed_logins.succeeded(GUEST)
    fail(failed_logins, attacked, 100)
    assert failed_logins.rank(GUEST) == 0
    assert fail(failed_logins, GUEST, FREE) == [0.0] * FREE
    assert failed_logins.rank(GUEST) == 3


def test_trust_ends(failed_logins: FailedLogins, clock: Clock) -> None:
    failed_logins.succeeded(GUEST)
    clock.now += TRUST_SECONDS - 1
    assert failed_logins.is_trusted(GUEST)
    clock.now += 2
    assert not failed_logins.is_trusted(GUEST)


def test_counts_fade(failed_logins: FailedLogins, clock: Clock) -> None:
    fail(failed_logins, GUEST, 1000)
    assert failed_logins.is_suspected(GUEST)
    clock.now += 120
    assert not failed_logins.is_suspected(GUEST)
    assert failed_logins.failed(GUEST) == 0


def test_success_forgives_a_slip_and_no_attack(failed_logins: FailedLogins) -> None:
    slips = Who("10.0.0.3", "ann")
    fail(failed_logins, slips, FREE - 1)
    failed_logins.succeeded(slips)
    assert failed_logins.weight(Who("10.0.0.3", "bob")) == failed_logins.weight(Who("10.0.0.4", "ann")) == 0
    fail(failed_logins, GUEST, 2 * FREE)
    failed_logins.succeeded(GUEST)
    assert failed_logins.is_suspected(GUEST)
    failed_logins.succeeded(Who("10.0.0.1", "attacker"))  # who has a user of their own clears nothing by it
    assert failed_logins.is_suspected(Who("10.0.0.1", "ann"))


def test_what_is_remembered_is_bounded_whatever_strangers_say(failed_logins: FailedLogins) -> None:
    failed_logins.succeeded(GUEST)
    for number in range(REMEMBERED_MAX + 100):
        failed_logins.failed(who(f"2001:db8:{number:x}::1", "x" * 10_000 + str(number)))
    assert len(failed_logins._sources._counts) == REMEMBERED_MAX
    assert len(failed_logins._users._counts) == 1
    assert failed_logins.is_trusted(GUEST)


def test_a_source_is_an_address_or_a_network() -> None:
    assert who("2001:db8::1", "u").source == who("2001:db8::ffff:2", "u").source == "2001:db8::/64"
    assert who("::ffff:10.0.0.1", "u") == who("10.0.0.1", "u") == Who("10.0.0.1", "u")
    assert who("fe80::1%eth0", "u").source == "fe80::/64"
    assert who("", "u").source == ""
