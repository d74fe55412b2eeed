"""Answers that several get: asked once, and anew after a change."""

import asyncio

from shardmq.management.state.shared import KEPT_MAX, SharedAnswers


class Source:
    """Counts how often it was asked, and answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = asyncio.Event()

    async def ask(self) -> int:
        self.asked += 1
        count = self.asked
        await self.let.wait()
        return count


def test_who_asks_meanwhile_and_soon_after_gets_the_same_answer() -> None:
    async def ask() -> None:
        shared, source = SharedAnswers(), Source()
        waiting = [asyncio.ensure_future(shared.get("key", source.ask)) for _ in range(20)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # the others go on waiting
        source.let.set()
        assert await asyncio.gather(*waiting[1:]) == [1] * 19
        assert await shared.get("key", source.ask) == 1
        assert await shared.get("other", source.ask) == 2

    asyncio.run(ask())


def test_what_is_asked_after_a_change_is_asked_anew() -> None:
    async def ask() -> None:
        shared, source = SharedAnswers(), Source()
        before = asyncio.ensure_future(shared.get("key", source.ask))
        await asyncio.sleep(0)
        shared.forget()
        after = asyncio.ensure_future(shared.get("key", source.ask))
        await asyncio.sleep(0)
        source.let.set()
        assert await asyncio.gather(before, after) == [1, 2]
        assert await shared.get("key", source.ask) == 2
        shared.forget()
        assert await shared.get("key", source.ask) == 3

    asyncio.run(ask())


def test_where_it_fails_for_the_first_the_others_ask_themselves() -> None:
    async def ask() -> None:
        shared, source = SharedAnswers(), Source()

        async def fail() -> int:
            await source.let.wait()
            raise ConnectionError("its login has ended")

        first = asyncio.ensure_future(shared.get("key", fail))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(shared.get("key", source.ask)) for _ in range(20)]
        await asyncio.sleep(0)
        source.let.set()
        assert await asyncio.gather(*others) == [1] * 20
        assert isinstance(first.exception(), ConnectionError)

    asyncio.run(ask())


def test_all_who_wait_are_told_of_a_fault_and_it_is_not_kept() -> None:
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def ask() -> None:
        shared, source = SharedAnswers(), Source()
        faults = await asyncio.gather(*(shared.get("key", fail) for _ in range(2)), return_exceptions=True)
        assert [type(fault) for fault in faults] == [ValueError, ValueError]
        source.let.set()
        assert await shared.get("key", source.ask) == 1

    asyncio.run(ask())


def test_few_answers_are_kept() -> None:
    async def ask() -> None:
        shared, source = SharedAnswers(), Source()
        source.let.set()
        for number in range(KEPT_MAX + 1):
            shared.keep(number, number)
        assert await shared.get(KEPT_MAX, source.ask) == KEPT_MAX
        assert await shared.get(0, source.ask) == 1

    asyncio.run(ask())
