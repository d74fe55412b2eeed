"""Room for large messages, lent in turn: within a limit for each connection, and one for all."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.gateway.state.message_loans import Account, Lender
from shardmq.limits import LOANS_ARRIVING_BYTES, LOANS_BYTES

MEGABYTE = 1 << 20
SIZE = 12 * MEGABYTE


def note(granted: list[str], name: str, is_wanted: bool = True) -> Callable[[], bool]:
    def grant() -> bool:
        granted.append(name)
        return is_wanted

    return grant


@pytest.fixture
def lender() -> Lender:
    return Lender(1000 * MEGABYTE)


def test_a_connection_has_no_more_than_its_limit_and_its_requests_in_their_order(lender: Lender) -> None:
    account, granted = Account(lender), list[str]()
    for name in "abcd":
        account.ask(SIZE, note(granted, name))
        while account.lent and lender.arriving:
            account.arrived(SIZE, SIZE)
    assert granted == ["a", "b"]
    assert account.lent == 2 * SIZE <= LOANS_BYTES
    account.repay(SIZE)
    assert granted == ["a", "b", "c"]


def test_a_message_larger_than_every_limit_goes_when_nothing_else_is_lent() -> None:
    lender = Lender(MEGABYTE)
    account, other, granted = Account(lender), Account(lender), list[str]()
    account.ask(100, note(granted, "small"))
    account.arrived(100, 100)
    account.ask(100 * MEGABYTE, note(granted, "large"))
    assert granted == ["small"]
    account.repay(100)
    assert granted == ["small", "large"]
    other.ask(100, note(granted, "other"))
    account.arrived(100 * MEGABYTE, 100 * MEGABYTE)
    assert granted == ["small", "large"]
    account.repay(100 * MEGABYTE)
    assert granted == ["small", "large", "other"]


def test_few_are_on_their_way_at_a_time_whoever_gets_them(lender: Lender) -> None:
    accounts, granted = [Account(lender) for _ in range(3)], list[str]()
    for number, account in enumerate(accounts):
        account.ask(SIZE, note(granted, str(number)))
    assert granted == ["0"]
    assert lender.arriving <= LOANS_ARRIVING_BYTES
    assert not lender.is_short
    accounts[0].arrived(SIZE, SIZE)
    assert granted == ["0", "1"]


def test_what_is_not_wanted_any_more_takes_no_room(lender: Lender) -> None:
    account, granted = Account(lender), list[str]()
    for name in "abc":
        account.ask(LOANS_BYTES, note(granted, name, is_wanted=name == "c"))
    assert granted == ["a", "b", "c"]
    assert (account.lent, lender.lent) == (LOANS_BYTES, LOANS_BYTES)


def test_a_connection_that_ends_leaves_its_room_and_its_place_to_others() -> None:
    lender = Lender(2 * SIZE)
    first, second, third = (Account(lender) for _ in range(3))
    granted: list[str] = []
    for name in "ab":
        first.ask(SIZE, note(granted, name))
        first.arrived(SIZE, SIZE)
    second.ask(SIZE, note(granted, "c"))
    third.ask(SIZE, note(granted, "d"))
    assert lender.is_short
    second.close()
    assert granted == ["a", "b"]
    first.close()
    assert granted == ["a", "b", "d"]
    first.repay(SIZE)
    third.close()
    assert (lender.lent, lender.arriving, lender.is_short) == (0, 0, False)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40 * MEGABYTE), st.booleans()), max_size=40))
def test_nothing_waits_for_ever_and_no_limit_is_passed_by_more_than_one_message(
    requests: list[tuple[int, int, bool]],
) -> None:
    limit = 50 * MEGABYTE
    lender = Lender(limit)
    accounts = [Account(lender) for _ in range(4)]
    lent: list[tuple[Account, int]] = []
    waiting = len(requests)

    def grant(account: Account, size: int, is_wanted: bool) -> bool:
        nonlocal waiting
        waiting -= 1
        if is_wanted:
            lent.append((account, size))
        return is_wanted

    for number, size, is_wanted in requests:
        account = accounts[number]
        account.ask(size, lambda account=account, size=size, is_wanted=is_wanted: grant(account, size, is_wanted))
    while lent:
        assert lender.lent <= limit or len(lent) == 1
        account, size = lent.pop(0)
        account.arrived(size, size // 2)
        account.repay(size // 2)
    assert (waiting, lender.lent, lender.arriving) == (0, 0, 0)
