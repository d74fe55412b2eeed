"""One measurement: its queues, its processes, their common start, their results."""

import asyncio
import contextlib
import multiprocessing
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Final

import msgspec

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.consumers import THREADS_MAX, Notes, consume, consume_many
from shardmq.cmd.bench.producers import LOOPS
from shardmq.cmd.bench.settings import FEATURES, Settings
from shardmq.errors import ShardmqError, Timeout

POLL_SECONDS: Final = 0.1

Progress = Callable[[int, int], None]
"""Called with (published, consumed) several times a second."""


class Published(msgspec.Struct):
    """A producer's result: the times just before its first publish and just after its last confirm, in ns."""

    first_ns: int
    last_ns: int


class Fault(msgspec.Struct):
    """The result of a process that failed. `follows`: it failed because another one did, or was too slow."""

    text: str
    follows: bool = False


class Stage:
    """What the processes of a measurement share: settings, queue names, the start, the counts."""

    def __init__(self, context: SpawnContext, settings: Settings, queues: list[str]) -> None:
        self.settings = settings
        self.queues = queues
        self.expected = settings.expected()
        self.start = context.Barrier(settings.producers + settings.consumers)
        self.published = context.RawArray("Q", settings.producers)
        self.consumed = context.RawArray("Q", settings.consumers * settings.queues)

    def is_done(self, queue: int) -> bool:
        """Whether all messages of a queue were delivered."""
        consumed: int = sum(self.consumed[queue :: self.settings.queues])
        return consumed >= self.expected[queue]


def run(settings: Settings, progress: Progress) -> tuple[list[Published], list[Notes]]:
    """Measure once.

    Args:
        settings: of the measurement.
        progress: called with the counts so far.

    Returns:
        What the producers and the consumers noted.

    Raises:
        ShardmqError: a process failed, or messages that nobody consumes are missing from their queues, or too many.
        Timeout: it took longer than `settings.timeout`.
    """
    context = multiprocessing.get_context("spawn")
    with bench_queues(settings) as queues:
        stage = Stage(context, settings, queues)
        members: list[tuple[Callable[[Stage, int], Published | Notes], int]]
        members = [(_produce, place) for place in range(settings.producers)]
        members += [(_consume, place) for place in range(settings.consumers)]
        processes: list[SpawnProcess] = []
        pipes: list[Pipe] = []
        try:
            for work, place in members:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(work, stage, place, theirs), daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
            results = _collect(stage, pipes, progress)
        finally:
            for process in processes:
                process.terminate()
                process.join()
            for pipe in pipes:
                pipe.close()
        if not settings.consumers:
            check_kept(settings, queues)
    return results[: settings.producers], results[settings.producers :]


@contextlib.contextmanager
def bench_queues(settings: Settings) -> Iterator[list[str]]:
    """Declare the queues of a measurement; they are deleted at the end."""
    prefix = f"bench-{secrets.token_hex(4)}"
    arguments = FEATURES[settings.feature].arguments
    names = [f"{prefix}-{place}" for place in range(settings.queues)]
    try:
        with connect(settings.url) as connection:
            channel = connection.channel()
            for name in names:
                channel.queue_declare(name, durable=not settings.transient, arguments=arguments)
        yield names
    finally:
        with connect(settings.url) as connection:
            channel = connection.channel()
            for name in names:
                channel.queue_delete(name)


def check_kept(settings: Settings, queues: list[str]) -> None:
    """Check that queues hold what was published to them.

    Raises:
        ShardmqError: one of them does not.
    """
    with connect(settings.url) as connection:
        channel = connection.channel()
        for name, expected in zip(queues, settings.expected(), strict=True):
            kept = channel.queue_declare(name, passive=True).messages
            if kept != expected:
                raise ShardmqError(f"queue '{name}' holds {kept:,} of {expected:,} messages")


def _collect(stage: Stage, pipes: list[Pipe], progress: Progress) -> list[Any]:
    """Every process's result, in the order of the pipes."""
    deadline = time.monotonic() + stage.settings.timeout
    results: dict[Pipe, Any] = {}
    faults: list[Fault] = []
    while len(results) < len(pipes) and not faults:
        for pipe in wait([pipe for pipe in pipes if pipe not in results], POLL_SECONDS):
            assert isinstance(pipe, Pipe)
            try:
                results[pipe] = pipe.recv()
            except EOFError:
                results[pipe] = Fault(
                    f"{_name(stage.settings, pipes.index(pipe))} ended without a result", follows=True
                )
            if isinstance(results[pipe], Fault):
                faults.append(results[pipe])
        progress(sum(stage.published), sum(stage.consumed))
        if time.monotonic() > deadline and not faults and len(results) < len(pipes):
            late = ", ".join(_name(stage.settings, place) for place, pipe in enumerate(pipes) if pipe not in results)
            raise Timeout(
                f"not done after {stage.settings.timeout:.0f} s ({late}): {sum(stage.published):,} of "
                f"{stage.settings.messages:,} messages published, {sum(stage.consumed):,} consumed; see --timeout"
            )
    if faults:
        raise ShardmqError(min(faults, key=lambda fault: fault.follows).text)
    return [results[pipe] for pipe in pipes]


def _name(settings: Settings, place: int) -> str:
    return f"producer {place}" if place < settings.producers else f"consumer {place - settings.producers}"


def _work(work: Callable[[Stage, int], Any], stage: Stage, place: int, pipe: Pipe) -> None:
    """The main function of a process: do the work, send the result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends us
    try:
        pipe.send(work(stage, place))
    except threading.BrokenBarrierError:
        pipe.send(Fault(f"not all processes were ready within {stage.settings.timeout:.0f} s", follows=True))
    except ShardmqError as fault:
        pipe.send(Fault(str(fault)))
        stage.start.abort()


def _produce(stage: Stage, place: int) -> Published:
    settings = stage.settings

    def progress(count: int) -> None:
        stage.published[place] = count

    with connect(settings.url, timeout=settings.timeout) as connection:
        channel = connection.channel()
        stage.start.wait(settings.timeout)
        first_ns = time.monotonic_ns()
        LOOPS[settings.mode](channel, stage.queues, settings, place, progress)
        published = Published(first_ns, time.monotonic_ns())
        progress(settings.share(place))
    return published


def _consume(stage: Stage, place: int) -> Notes:
    settings = stage.settings
    slot = place * settings.queues

    def note(queue: int, count: int) -> None:
        stage.consumed[slot + queue] += count

    def begin() -> None:
        stage.start.wait(settings.timeout)

    queues = {queue: stage.queues[queue] for queue in settings.readers()[place]}
    if len(queues) > THREADS_MAX:
        return asyncio.run(consume_many(queues, settings, begin, note, stage.is_done))
    with connect(settings.url) as connection:
        return consume(connection, queues, settings, begin, note, stage.is_done)
