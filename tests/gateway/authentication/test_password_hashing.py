"""Passwords compared on few threads, in a fair order."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from shardmq.gateway.authentication import password_hashing as hashing
from shardmq.gateway.authentication.failed_logins import FREE, FailedLogins, Who
from shardmq.gateway.authentication.password_hashing import CLEAN_THREADS, PasswordHashing
from shardmq.topology.passwords import hash_password

STORED = hash_password("secret")
GUILTY = Who("10.0.0.9", "guest")


def guilty(failed_logins: FailedLogins) -> None:
    for _ in range(2 * FREE):
        failed_logins.failed(GUILTY)


def made(
    failed_logins: FailedLogins, known: Callable[[str, str, str], bool] = lambda *_: False
) -> tuple[PasswordHashing, list[str]]:
    found: list[str] = []
    stored = {"guest": STORED, "ann": STORED}
    return PasswordHashing(
        failed_logins, lambda user: stored.get(user, ""), known, lambda user, *_: found.append(user)
    ), found


def test_a_right_password_is_right_and_told_of_and_others_are_not() -> None:
    async def story() -> None:
        one, found = made(FailedLogins())
        answers = [
            await one.is_right(Who("a", user), password)
            for user, password in (("guest", "secret"), ("guest", "wrong"), ("nobody", "secret"))
        ]
        assert answers == [True, False, False]
        assert found == ["guest"]

    asyncio.run(story())


def test_what_was_found_meanwhile_is_not_compared_again() -> None:
    async def story() -> None:
        found: list[str] = []
        known: set[str] = set()
        one = PasswordHashing(
            FailedLogins(),
            lambda _user: STORED,
            lambda user, *_: user in known,
            lambda user, *_: (found.append(user), known.add(user)),
        )
        assert all(await asyncio.gather(*(one.is_right(Who(str(number), "guest"), "secret") for number in range(50))))
        assert len(found) <= CLEAN_THREADS + 1  # those that had begun

    asyncio.run(story())


def test_who_is_suspected_has_one_thread_and_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    running = {"10.0.0.9": 0, "10.0.0.1": 0}
    most = dict(running)
    order: list[str] = []
    compare = hashing._is_password

    def watched(password: str, stored: str) -> bool:
        order.append(password)
        running[password] += 1
        most[password] = max(most[password], running[password])
        try:
            return compare(password, stored)
        finally:
            running[password] -= 1

    monkeypatch.setattr(hashing, "_is_password", watched)

    async def story() -> None:
        failed_logins = FailedLogins()
        guilty(failed_logins)
        one, _ = made(failed_logins)
        suspects = [asyncio.create_task(one.is_right(GUILTY, GUILTY.source)) for _ in range(6)]
        await asyncio.sleep(0)
        clean = [asyncio.create_task(one.is_right(Who("10.0.0.1", "ann"), "10.0.0.1")) for _ in range(4)]
        await asyncio.gather(*clean)
        assert not all(task.done() for task in suspects)
        await asyncio.gather(*suspects)

    asyncio.run(story())
    assert most["10.0.0.9"] == 1
    assert order[-1] == "10.0.0.9"


def test_sources_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    all_wait = threading.Event()
    given_threads: list[str] = []
    """Users in the order in which they get a thread; when a thread runs is the kernel's affair."""

    def watched(password: str, _stored: str) -> bool:
        return all_wait.wait(60) and password == "secret"

    def stored_of(user: str) -> str:
        given_threads.append(user)
        return STORED

    monkeypatch.setattr(hashing, "_is_password", watched)

    async def story() -> None:
        one = PasswordHashing(FailedLogins(), stored_of, lambda *_: False, lambda *_: None)
        flood = [asyncio.create_task(one.is_right(Who("10.0.0.1", f"u{number}"), "x")) for number in range(20)]
        await asyncio.sleep(0)
        single = asyncio.create_task(one.is_right(Who("10.0.0.2", "ann"), "secret"))
        await asyncio.sleep(0)
        all_wait.set()
        assert await single
        await asyncio.gather(*flood)

    asyncio.run(story())
    assert given_threads.index("ann") == CLEAN_THREADS + 1  # behind those for whom there was a thread at once
    assert len(given_threads) == 21


def test_who_gives_up_waiting_harms_nobody() -> None:
    async def story() -> None:
        failed_logins = FailedLogins()
        guilty(failed_logins)
        one, _ = made(failed_logins)
        tasks = [asyncio.create_task(one.is_right(GUILTY, "x")) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        assert await one.is_right(Who("a", "guest"), "secret")
        assert not await one.is_right(GUILTY, "x")

    asyncio.run(story())
