"""What `bench scattered` measures: many queues, copies, round trips, declarations and connections."""

import asyncio
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.aio.connection import Connection

STAMP: Final = struct.Struct("<Qd")
"""Head of every body: the number of the message in its queue, and when it was due (CLOCK_MONOTONIC, s)."""

WINDOW: Final = 2_000
PREFETCH: Final = 1_000
Figures = dict[str, float]


class Inbox:
    """What came from some queues: every message of every queue once, or it says what is wrong.

    Args:
        expected: messages of each queue.

    Attributes:
        latencies: from when each message was due to its delivery, in ns.
    """

    def __init__(self, expected: Sequence[int]) -> None:
        self.latencies: list[int] = []
        self._seen = [bytearray(count) for count in expected]
        self._missing = sum(expected)
        self._all = asyncio.Event()

    def take(self, queue: int, bodies: Sequence[bytes]) -> None:
        """Note the messages of a batch.

        Raises:
            ShardmqError: one is not of this queue, or came twice.
        """
        now = time.monotonic()
        seen = self._seen[queue]
        for body in bodies:
            number, due = STAMP.unpack_from(body)
            if number >= len(seen) or seen[number]:
                raise ShardmqError(f"message {number} of queue {queue} came twice, or is not its own")
            seen[number] = 1
            self.latencies.append(round((now - due) * 1e9))
        self._missing -= len(bodies)
        if not self._missing:
            self._all.set()

    async def wait(self) -> None:
        """Wait until everything has come."""
        await self._all.wait()


class Bench:
    """A connection that measures.

    Args:
        connection: to the broker.
        prefix: of the names of queues and exchanges.
        size: bytes of a body.
    """

    def __init__(self, connection: "Connection", prefix: str, size: int) -> None:
        self._connection = connection
        self._prefix = prefix
        self._padding = bytes(size - STAMP.size)

    def body(self, number: int, due: float | None = None) -> bytes:
        """A message."""
        return STAMP.pack(number, time.monotonic() if due is None else due) + self._padding

    async def queues(self, count: int, exchange: str = "") -> list[str]:
        """Declare queues, all at the same time, and bind them to an exchange where one is named."""
        channel = await self._connection.channel()
        names = [f"{self._prefix}-{secrets.token_hex(3)}-{place}" for place in range(count)]
        await asyncio.gather(*(channel.queue_declare(name, durable=True) for name in names))
        if exchange:
            await asyncio.gather(*(channel.queue_bind(name, exchange) for name in names))
        return names

    def drain(self, channel: "Channel", names: Sequence[str], inbox: Inbox) -> list[asyncio.Task[None]]:
        """Begin to consume queues; returns the tasks, which go on until they are cancelled."""

        async def read(place: int, name: str) -> None:
            async for batch in channel.consume_batches(name, prefetch=PREFETCH):
                inbox.take(place, batch.bodies)
                batch.ack()

        return [asyncio.create_task(read(place, name)) for place, name in enumerate(names)]

    async def until_all_came(self, inbox: Inbox, readers: Sequence[asyncio.Task[None]]) -> None:
        """Wait until everything has come; a reader's failure is raised."""
        came = asyncio.create_task(inbox.wait())
        try:
            done, _ = await asyncio.wait([came, *readers], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in (came, *readers):
                task.cancel()
            await asyncio.gather(came, *readers, return_exceptions=True)

    async def one_by_one(self, count: int) -> Figures:
        """Declarations, one after the other."""
        channel = await self._connection.channel()
        names = [f"{self._prefix}-declared-{place}" for place in range(count)]

        async def ignore(_message: Any) -> None:
            """Nothing comes."""

        async def consume(name: str) -> object:
            return await channel.basic_consume(name, ignore, consumer_tag=name)

        steps: dict[str, Callable[[str], Awaitable[object]]] = {
            "declare": lambda name: channel.queue_declare(name, durable=True),
            "bind": lambda name: channel.queue_bind(name, "amq.direct", name),
            "consume": consume,
            "cancel": channel.basic_cancel,
            "delete": channel.queue_delete,
        }
        figures = {}
        for step, make in steps.items():
            began = time.monotonic()
            for name in names:
                await make(name)
            figures[f"{step}_ms"] = round(1000 * (time.monotonic() - began) / count, 3)
        figures["declares_per_s"] = round(1000 / max(figures["declare_ms"], 1e-3), 1)
        return figures

    async def scattered(self, queues: int, messages: int) -> Figures:
        """Messages that go to many queues in turn."""
        names = await self.queues(queues)
        inbox = Inbox([messages // queues + (place < messages % queues) for place in range(queues)])
        return await self._flow(names, inbox, messages, lambda number: ("", names[number % queues], number // queues))

    async def fan_out(self, copies: int, messages: int) -> Figures:
        """Messages that go to many queues each."""
        exchange = f"{self._prefix}-exchange"
        channel = await self._connection.channel()
        await channel.exchange_declare(exchange, "fanout")
        try:
            names = await self.queues(copies, exchange)
            return await self._flow(names, Inbox([messages] * copies), messages, lambda number: (exchange, "", number))
        finally:
            await channel.exchange_delete(exchange)

    async def _flow(
        self, names: Sequence[str], inbox: Inbox, messages: int, to: Callable[[int], tuple[str, str, int]]
    ) -> Figures:
        publishing, consuming = await self._connection.channel(), await self._connection.channel()
        readers = self.drain(consuming, names, inbox)
        cpu = await self.cpu_seconds()
        began = time.monotonic()
        async with publishing.publisher(window=WINDOW) as publisher:
            for place in range(messages):
                exchange, key, number = to(place)
                await publisher.publish(exchange, key, self.body(number))
        confirmed = time.monotonic()
        await self.until_all_came(inbox, readers)
        ended = time.monotonic()
        return {
            "publish_msgs_per_s": round(messages / (confirmed - began), 1),
            "end_to_end_msgs_per_s": round(messages / (ended - began), 1),
            **per_message(cpu, await self.cpu_seconds(), messages),
        }

    async def round_trips(self, count: int) -> Figures:
        """Requests and answers over two queues, one at a time."""
        from shardmq.cmd.bench.results import percentile

        asked, answered = await self.queues(2)
        client, server = await self._connection.channel(), await self._connection.channel()

        async def serve() -> None:
            async for message in server.consume(asked):
                await server.basic_publish("", answered, message.body)
                message.ack()

        serving = asyncio.create_task(serve())
        took: list[int] = []
        try:
            answers = client.consume(answered)
            for number in range(count):
                began = time.monotonic_ns()
                await client.basic_publish("", asked, self.body(number))
                answer = await anext(answers)
                took.append(time.monotonic_ns() - began)
                answer.ack()
                if STAMP.unpack_from(answer.body)[0] != number:
                    raise ShardmqError(f"another answer came where that to request {number} was due")
            await answers.aclose()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        seconds = sum(took) / 1e9
        took.sort()
        return {
            "round_trips_per_s": round(count / seconds, 1),
            "p50_ms": percentile(took, 0.5),
            "p99_ms": percentile(took, 0.99),
        }

    async def connections(self, url: str, count: int, rate: float, seconds: float) -> Figures:
        """Connections with a queue each, and messages at a fixed rate among them in turn, acked one by one."""
        from shardmq import aio
        from shardmq.cmd.bench.results import percentile

        messages = max(count, round(rate * seconds))
        names = await self.queues(count)
        inbox = Inbox([messages // count + (place < messages % count) for place in range(count)])
        opened = [await aio.connect(url) for _ in range(count)]
        try:
            channels = [await connection.channel() for connection in opened]
            publishers = [channel.publisher(window=WINDOW) for channel in channels]

            async def read(place: int) -> None:
                async for message in channels[place].consume(names[place], prefetch=PREFETCH):
                    inbox.take(place, [message.body])
                    message.ack()

            readers = [asyncio.create_task(read(place)) for place in range(count)]
            cpu = await self.cpu_seconds()
            began = time.monotonic()
            for number in range(messages):
                due = began + number / rate
                if (early := due - time.monotonic()) > 0:
                    await asyncio.sleep(early)
                await publishers[number % count].publish("", names[number % count], self.body(number // count, due))
            await asyncio.gather(*(publisher.close() for publisher in publishers))
            await self.until_all_came(inbox, readers)
            used = per_message(cpu, await self.cpu_seconds(), messages)
        finally:
            await asyncio.gather(*(connection.close() for connection in opened))
        latencies = sorted(inbox.latencies)
        return {**used, "p50_ms": percentile(latencies, 0.5), "p99_ms": percentile(latencies, 0.99)}

    async def cpu_seconds(self) -> float | None:
        """Processor time of the broker's processes; None where they are not on this machine."""
        from shardmq.cmd.bench.compare.comparison import cpu_seconds

        status = await self._connection.status()
        pids = [row["pid"] for row in status["processes"]]
        roles = [Path(f"/proc/{pid}/cmdline") for pid in pids]
        if not all(path.exists() and b"shardmq" in path.read_bytes() for path in roles):
            return None
        return cpu_seconds(pids)

    async def clean(self) -> None:
        """Delete all queues."""
        channel = await self._connection.channel()
        rows = await self._connection.topology("queues")
        names = [row["name"] for row in rows if row["name"].startswith(self._prefix)]
        await asyncio.gather(*(channel.queue_delete(name) for name in names))


def per_message(before: float | None, after: float | None, messages: int) -> Figures:
    """Processor time for each message in µs, where it is known."""
    return {} if before is None or after is None else {"broker_cpu_us": round((after - before) * 1e6 / messages, 1)}
