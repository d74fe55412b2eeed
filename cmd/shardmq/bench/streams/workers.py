"""Members of a shared group that work for a while on each message: what is reached of what their number allows."""

import asyncio
import multiprocessing
import time
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.load import Contestant, Figures, new_name
from shardmq.cmd.bench.streams.rows import MEMBER_PREFETCH, MEMBERS, WORK_PARTITIONS, WORK_PROCESSES
from shardmq.cmd.bench.streams.sdk import START_SECONDS, STEP, scaled
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

SECONDS: Final = 2.0
"""How long all members have work for, at best."""

MESSAGES_MAX: Final = 24_000

TICK_SECONDS: Final = 0.001
"""uvloop counts whole milliseconds, and may be early by a part of one."""


def work(who: Contestant, messages: int, work_ms: float) -> Figures:
    """Have three hundred members of a shared group work on the messages of a topic, which are there before.

    What counts is the time in which the middle eight tenths were handled, as members begin and end one by one.

    Raises:
        ShardmqError: a message was handled twice, or not at all.
    """
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    topic, members = new_name(), scaled(MEMBERS, messages) // WORK_PROCESSES * WORK_PROCESSES
    messages = min(int(members * SECONDS * 1000 / work_ms), messages // 4, MESSAGES_MAX)
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WORK_PROCESSES + 1)
    ended = context.Event()
    queue: Any = context.Queue()
    processes = [
        context.Process(
            target=_members,
            args=(who.url, topic, members // WORK_PROCESSES, work_ms / 1000, (ready, ended, queue)),
            daemon=True,
        )
        for _ in range(WORK_PROCESSES)
    ]
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.topic_declare(topic, WORK_PARTITIONS)
        for process in processes:
            process.start()
        ready.wait(START_SECONDS)
        before = cpu_seconds(who.pids)
        with channel.publisher() as publisher:
            for first in range(0, messages, STEP):
                bodies = [number.to_bytes(4, "big") for number in range(first, min(first + STEP, messages))]
                publisher.publish_many("", f"{topic}-{first // STEP % WORK_PARTITIONS}", bodies)
        deadline = time.monotonic() + START_SECONDS
        while sum(row["lag"] for row in channel.topic_info(topic)["groups"]) and time.monotonic() < deadline:
            time.sleep(0.1)
        used = cpu_seconds(who.pids) - before
        ended.set()
        handled: list[tuple[float, int]] = []
        for _ in processes:
            handled += queue.get(timeout=START_SECONDS)
        for process in processes:
            process.join()
        channel.topic_delete(topic)
    if sorted(number for _, number in handled) != list(range(messages)):
        raise ShardmqError(f"of {messages} messages, {len({number for _, number in handled})} were handled")
    times = sorted(at for at, _ in handled)
    tenth = messages // 10
    seconds = times[-tenth] - times[tenth]
    rate = (messages - 2 * tenth) / seconds
    return {
        "of_theory": rate / (members * 1000 / work_ms),
        "handled_msgs_per_s": rate,
        "seconds": seconds,
        "cpu_us": used * 1e6 / messages,
    }


def _members(url: str, topic: str, members: int, seconds: float, shared: tuple[Any, Any, Any]) -> None:
    """The main function of a process of members; it sends when each message was handled, and its number.

    With so many timers the event loop is a third of a client's time: it is uvloop's, as the gateway's is.
    """
    import uvloop

    uvloop.run(_consume(url, topic, members, seconds, shared))


async def _consume(url: str, topic: str, members: int, seconds: float, shared: tuple[Any, Any, Any]) -> None:
    from shardmq.client.aio.connection import connect

    ready, ended, queue = shared
    handled: list[tuple[float, int]] = []
    loop = asyncio.get_running_loop()
    async with connect(url) as connection:
        begun = [asyncio.Event() for _ in range(members)]
        tasks = [
            asyncio.create_task(_work(await connection.channel(), topic, seconds, handled, event)) for event in begun
        ]
        await asyncio.gather(*[event.wait() for event in begun])
        await loop.run_in_executor(None, ready.wait, START_SECONDS)
        await loop.run_in_executor(None, ended.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    queue.put(handled)


async def _work(
    channel: "Channel", topic: str, seconds: float, handled: list[tuple[float, int]], begun: asyncio.Event
) -> None:
    options = {"shared": True, "prefetch": MEMBER_PREFETCH, "auto_commit": False, "start": "earliest"}
    consumer = await channel.group_consumer(topic, "bench", **options)  # type: ignore[arg-type]
    begun.set()
    async for message in consumer:
        until = time.monotonic() + seconds
        await asyncio.sleep(seconds)
        while (now := time.monotonic()) < until:
            await asyncio.sleep(TICK_SECONDS)
        message.ack()
        handled.append((now, int.from_bytes(message.body, "big")))
