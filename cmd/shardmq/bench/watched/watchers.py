"""A process that asks the management process for what browsers with an open page ask, and scrapes its metrics."""

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Final

import aiohttp
import msgspec

from shardmq.errors import ShardmqError

TICK_SECONDS: Final = 5.0
"""How often the page asks again for what it shows."""

SCRAPE_SECONDS: Final = 1.0

_SPAN: Final = "lengths_age=600&lengths_incr=5&msg_rates_age=600&msg_rates_incr=5"

_SEEN: Final = "&".join([f"name=bench-{number}" for number in range(20)])
"""Rows of a list that are in a window, for their small charts."""

PAGES: Final = (
    (
        f"/api/overview?{_SPAN}",
        "/api/nodes",
        "/api/shardmq/findings",
        "/api/queues?page=1&page_size=5&sort=messages&sort_reverse=true&columns=name,vhost,messages,consumers",
    ),
    (
        "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true",
        f"/api/shardmq/samples/queues/%2F?{_SEEN}",
    ),
    ("/api/connections?page=1&page_size=50",),
    ("/api/shardmq/processes",),
)
"""What the page's views ask with each tick; browsers have them open in turn, the overview first."""

START_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 15


class Watched(msgspec.Struct):
    """What was asked for.

    Attributes:
        answers: requests of browsers that were answered.
        scrapes: scrapes that were answered.
        slowest_ms: the longest answer.
        fault: why a request was not answered; empty where all were.
    """

    answers: int = 0
    scrapes: int = 0
    slowest_ms: float = 0.0
    fault: str = ""


@contextmanager
def watching(management: str, user: str, password: str, browsers: int) -> Iterator[Watched]:
    """Have so many browsers open, and a scrape a second, until the end of the block; what they got is there behind it.

    Args:
        management: the URL of the management process.
        user: who logs in.
        password: of the user.
        browsers: how many pages are open.

    Raises:
        ShardmqError: the management process does not answer as it should.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(management, user, password, browsers, theirs), daemon=True)
    process.start()
    theirs.close()
    watched = Watched()
    try:
        if not ours.poll(START_SECONDS):
            raise ShardmqError(f"no browser could log in at {management} within {START_SECONDS:.0f} s")
        _checked(ours.recv())
        yield watched
        ours.send(None)
        if not ours.poll(2 * ANSWER_SECONDS):
            raise ShardmqError(f"browsers at {management} still wait for answers after {2 * ANSWER_SECONDS} s")
        said = _checked(ours.recv())
        watched.answers, watched.scrapes, watched.slowest_ms = said.answers, said.scrapes, said.slowest_ms
    except EOFError:
        raise ShardmqError("the process of the browsers ended without a result") from None
    finally:
        process.terminate()
        process.join()
        ours.close()


def _checked(said: Watched) -> Watched:
    if said.fault:
        raise ShardmqError(said.fault)
    return said


def _work(management: str, user: str, password: str, browsers: int, pipe: Pipe) -> None:
    """The main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends us
    watched = Watched()
    try:
        asyncio.run(_watch(management.rstrip("/"), user, password, browsers, pipe, watched))
    except (aiohttp.ClientError, TimeoutError) as fault:
        watched.fault = f"the management process at {management} does not answer: {fault}; see --management"
    pipe.send(watched)


async def _watch(management: str, user: str, password: str, browsers: int, pipe: Pipe, watched: Watched) -> None:
    """Log in, say so, and ask until somebody tells to end."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    jar = aiohttp.CookieJar(unsafe=True)  # the broker's address may be a number
    async with aiohttp.ClientSession(management, timeout=timeout, cookie_jar=jar, raise_for_status=True) as page:
        async with page.post("/api/login", data={"username": user, "password": password}):
            pass
        pipe.send(watched)
        asked = [asyncio.ensure_future(_browse(page, place, browsers, watched)) for place in range(browsers)]
        asked.append(asyncio.ensure_future(_scrape(page, aiohttp.encode_basic_auth(user, password), watched)))
        told = asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        await asyncio.wait([told, *asked], return_when=asyncio.FIRST_COMPLETED)
        for one in asked:
            if one.done():
                one.result()
            one.cancel()


async def _browse(page: aiohttp.ClientSession, place: int, browsers: int, watched: Watched) -> None:
    """Ask for one view at once, and with each tick; ticks of all browsers come together, as the page's do."""
    await asyncio.sleep(TICK_SECONDS * place / browsers)
    while True:
        for path in PAGES[place % len(PAGES)]:
            await _ask(page, path, {"X-Shardmq-Page": "1"}, watched)
            watched.answers += 1
        await asyncio.sleep(TICK_SECONDS - time.time() % TICK_SECONDS)


async def _scrape(page: aiohttp.ClientSession, authorization: str, watched: Watched) -> None:
    while True:
        await _ask(page, "/metrics", {"Authorization": authorization}, watched)
        watched.scrapes += 1
        await asyncio.sleep(SCRAPE_SECONDS)


async def _ask(page: aiohttp.ClientSession, path: str, headers: dict[str, str], watched: Watched) -> None:
    began = asyncio.get_running_loop().time()
    async with page.get(path, headers=headers) as answer:
        await answer.read()
    watched.slowest_ms = max(watched.slowest_ms, (asyncio.get_running_loop().time() - began) * 1000)
