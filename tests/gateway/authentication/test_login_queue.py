"""Places for attempts to log in."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shardmq.errors import AuthenticationFailed, ReplyCode
from shardmq.gateway.authentication import login_queue
from shardmq.gateway.authentication.failed_logins import FREE, FailedLogins, Who
from shardmq.gateway.authentication.login_queue import (
    KNOWN_PLACES,
    PLACES,
    STRANGE_SUSPECTS_MAX,
    SUSPECTS_OF_SOURCE_MAX,
    LoginQueue,
)

GUEST = Who("10.0.0.1", "guest")


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


async def is_in(task: "asyncio.Task[None]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize("other", [GUEST, Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_a_source_and_a_user_have_so_many_places_and_who_waits_gets_the_next(other: Who) -> None:
    async def story() -> None:
        gate = LoginQueue(FailedLogins())
        taken = [await gate.enter(GUEST) for _ in range(PLACES)]
        late = asyncio.create_task(gate.enter(other))
        assert not await is_in(late)
        assert (gate.places, gate.waiting) == (PLACES, 1)
        await gate.enter(Who("10.0.0.2", "ann"))
        gate.leave(taken[0])
        assert await is_in(late)
        assert gate.waiting == 0

    run(story())


@pytest.mark.parametrize("attacked", [Who("10.0.0.1", "ann"), Who("10.0.0.2", "guest")])
def test_who_has_logged_in_from_there_has_places_that_others_cannot_take(attacked: Who) -> None:
    async def story() -> None:
        failed_logins = FailedLogins()
        failed_logins.succeeded(GUEST)
        gate = LoginQueue(failed_logins)
        for _ in range(PLACES):
            await gate.enter(attacked)
        for _ in range(KNOWN_PLACES):
            await gate.enter(GUEST)
        late = asyncio.create_task(gate.enter(GUEST))
        assert not await is_in(late)
        late.cancel()

    run(story())


def test_who_is_known_takes_no_places_of_strangers() -> None:
    async def story() -> None:
        failed_logins = FailedLogins()
        failed_logins.succeeded(GUEST)
        gate = LoginQueue(failed_logins)
        for _ in range(PLACES + 1):
            await gate.enter(GUEST)
        await gate.enter(Who("10.0.0.1", "ann"))
        await gate.enter(Who("10.0.0.2", "guest"))

    run(story())


def test_who_attacks_from_many_addresses_leaves_places_for_who_is_not_suspected() -> None:
    async def story() -> None:
        failed_logins = FailedLogins()
        many = [Who(f"10.1.{number}.1", f"user-{number}") for number in range(STRANGE_SUSPECTS_MAX)]
        for who in many:
            for _ in range(2 * FREE):
                failed_logins.failed(who)
        gate = LoginQueue(failed_logins)
        for who in many:
            await gate.enter(who)
        late = asyncio.create_task(gate.enter(many[0]))
        assert not await is_in(late)
        late.cancel()
        await gate.enter(GUEST)

    run(story())


def test_the_least_suspected_is_first() -> None:
    async def story() -> None:
        failed_logins = FailedLogins()
        guilty, clean = Who("10.0.0.9", "guest"), Who("10.0.0.2", "guest")
        for _ in range(PLACES):
            failed_logins.failed(guilty)
        gate = LoginQueue(failed_logins)
        taken = [await gate.enter(guilty) for _ in range(PLACES)]
        queue = [asyncio.create_task(gate.enter(each)) for each in (guilty, guilty, clean)]
        assert not await is_in(queue[2])
        gate.leave(taken[0])
        assert await is_in(queue[2])
        assert not queue[0].done()
        for task in queue[:2]:
            task.cancel()

    run(story())


def test_suspects_wait_in_small_numbers_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_queue, "HANDSHAKE_SECONDS", 0.05)

    async def story() -> None:
        failed_logins = FailedLogins()
        for _ in range(2 * FREE):
            failed_logins.failed(GUEST)
        gate = LoginQueue(failed_logins)
        taken = [await gate.enter(GUEST) for _ in range(PLACES)]
        waiting = [asyncio.create_task(gate.enter(GUEST)) for _ in range(SUSPECTS_OF_SOURCE_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(AuthenticationFailed) as refused:
            await gate.enter(GUEST)
        assert refused.value.code == ReplyCode.RESOURCE_ERROR  # it may be tried again
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, AuthenticationFailed) for outcome in outcomes)
        assert (gate.waiting, gate.places) == (0, PLACES)
        for place in taken:
            gate.leave(place)
        assert not any((gate.places, gate._queues, gate._queued, gate._of_sources, gate._of_users))

    run(story())
