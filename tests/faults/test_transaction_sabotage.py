"""Who abuses transactions and reservations is refused, and nobody else notices; whatever dies changes nothing."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import shardmq
from shardmq import aio
from shardmq.cmd.run.broker import Broker
from shardmq.errors import NotFound, PreconditionFailed, ShardmqError
from shardmq.message.record import pack
from shardmq.protocol.native.frames import frame
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.reads import QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)

from .saboteur import RawClient, open_files, until

StartBroker = Callable[..., Broker]

RECORD = pack(None, b"late")

SOUND: dict[type[Operation], list[Any]] = {
    TransactionBegin: [7, 1, "n", 0, 0],
    TransactionSeal: [7, 1, 1, 5],
    TransactionCommit: [7, 1, "open", 1, [[5, 0]]],
    TransactionAbort: [7, 1, "nobody", 0],
    QueueSlices: [7, 1, "hostage", 4, ""],
    QueueRead: [7, 1, "hostage", 0, 100, 10, ""],
    QueueReserve: [7, 1, "hostage", "r", 0, 0],
    ReservationEnd: [7, 1, "hostage", "r", True, [[0, 1]]],
    BasicPublish: [7, 1, "", "hostage", 0, 1, RECORD, 0, 5, 0, 1],
}
"""As they should be: fields that garbage takes the place of, one by one, but for request and channel."""

GARBAGE: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
    1.5,
    float("nan"),
    "",
    "q",
    "open",
    "x" * 255,
    "x" * 256,
    "\0",
    "é" * 128,
    b"",
    b"\xff" * 10,
    [],
    [[]],
    [[1]],
    [[1, 2, 3]],
    [[5, 0], [5, 0]],
    [[0, 0]],
    [[1, -1]],
    [[5, 2**63 - 1]],
    [[2**63, 1]],
    [[1, 2], [0, 1]],
    [[3, 3]],
    [[5, 4]],
    [[0, 2**63 - 1]],
    [[number + 1, 1] for number in range(70_000)],
    [[2 * number, 2 * number + 1] for number in range(20_000)],
    {},
    {"a": 1},
    {1: 2},
    msgpack.ExtType(1, b"x"),
]


def declare(channel: shardmq.Channel) -> None:
    for queue in ("one", "two", "hostage", "calm"):
        channel.queue_declare(queue, durable=True)


def staged(connection: shardmq.Connection) -> int:
    tables = [table for table in connection.status()["processes"] if table["role"] == "shard"]
    shards = {table["shard"] for table in connection.topology("queues")}
    return sum(row["messages"] for table in tables for row in table["staged"]) if len(tables) >= len(shards) else -1


def test_garbage_in_any_field_is_refused_and_nobody_else_notices(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        declare(channel)
        channel.transaction("open")
        for _ in range(10):
            channel.basic_publish("", "hostage", b"x")
        pids, files = dict(broker.pids), open_files(broker.pids["gateway-0"])
        client = RawClient(broker).open()
        answers: Counter[str] = Counter()
        for kind, sound in SOUND.items():
            for place in range(2, len(sound)):
                for garbage in GARBAGE:
                    fields = [*sound[:place], garbage, *sound[place + 1 :]]
                    client.socket.sendall(frame(TYPES[kind], msgpack.packb(fields)))
                    answer = client.receive()
                    answers[type(answer).__name__] += 1
                    if isinstance(answer, Ok | Refused | BasicConfirm | BasicRefused):
                        continue
                    client.close()
                    client = RawClient(broker).open()
            channel.basic_publish("", "calm", b"x")
        client.close()
        assert answers["Refused"] > 50
        assert answers["ConnectionClose"] + answers["ChannelClose"] > 200
        assert broker.pids == pids
        until(lambda: open_files(pids["gateway-0"]) <= files, "connections are gone")
        for table in connection.topology("transactions"):
            channel.transaction_abort(table["name"])
        until(lambda: staged(connection) == 0, "nothing is staged any more")


def test_who_publishes_for_a_transaction_that_is_over_leaves_nothing_behind(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        declare(channel)
        with channel.transaction("committed") as committed:
            committed.publish("", "one", b"early")
        aborted = channel.transaction("aborted")
        aborted.publish("", "one", b"void")
        aborted.flush()
        aborted.abort()
        ended = threading.Event()
        heard: Counter[int] = Counter()
        dead = (
            (committed.number, committed.attempt),
            (aborted.number, aborted.attempt),
            (aborted.number, 99),
            (999, 7),
        )
        zombies = [threading.Thread(target=haunt, args=(broker, *one, ended, heard)) for one in dead]
        for zombie in zombies:
            zombie.start()
        try:
            for victim in ("shard-0", "coordinator", "shard-1"):
                spoken = heard.total()
                until(lambda: heard.total() > spoken + 2000, "zombies publish")  # noqa: B023
                broker.kill_and_wait(victim)
        finally:
            ended.set()
            for zombie in zombies:
                zombie.join(60)
        assert not heard[0], "a publish was confirmed"
        assert heard[406]
        until(lambda: staged(connection) == 0, "nothing is staged")
        counts = [channel.queue_declare(queue, durable=True).messages for queue in ("one", "two")]
        assert counts == [1, 0]


def haunt(broker: Broker, number: int, attempt: int, ended: threading.Event, heard: Counter[int]) -> None:
    """Publish for a transaction again and again; counts the codes of refusals, 0 for confirms."""
    client = RawClient(broker).open()
    request = 10
    while not ended.is_set():
        client.send(
            *[
                BasicPublish(request + turn, 1, "", ("one", "two")[turn % 2], 0, 1, RECORD, 0, attempt, request, number)
                for turn in range(100)
            ]
        )
        answered = 0
        while answered < 100:
            answer = client.receive()
            assert isinstance(answer, BasicRefused | BasicConfirm), answer
            count = sum(last - first + 1 for first, last in answer.requests)
            heard[answer.code if isinstance(answer, BasicRefused) else 0] += count
            answered += count
        request += 100
    client.close()


def test_commits_that_do_not_name_what_is_there_decide_nothing(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        declare(channel)
        transaction, other = channel.transaction("t"), channel.transaction("t")
        transaction.publish_many("", "one", [b"1"] * 100)
        other.publish_many("", "two", [b"2"] * 100)
        own, open_one = transaction.seal(), other
        with connection.channel() as elsewhere:
            stranger = elsewhere.transaction("u")
            stranger.publish("", "one", b"3")
            foreign = stranger.seal()
            wrong = (
                [(own.attempt, own.messages + 1)],
                [(own.attempt, own.messages - 1)],
                [(own.attempt, 0)],
                [tuple(own), tuple(foreign)],
                [tuple(own), (open_one.attempt, 100)],
                [tuple(own), (1234567, 1)],
            )
            for sealed in wrong:
                with pytest.raises(PreconditionFailed):
                    channel.transaction("t").commit(sealed=sealed)
            stranger.abort()
        assert [channel.queue_declare(queue, durable=True).messages for queue in ("one", "two")] == [0, 0]
        assert channel.transaction("t").commit(sealed=[own, other.seal()])
        assert [channel.queue_declare(queue, durable=True).messages for queue in ("one", "two")] == [100, 100]
        until(lambda: staged(connection) == 0, "nothing is staged any more")


def test_asyncio_clients_go_on_when_their_gateway_died_while_the_loop_was_busy(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(shards=1)

    async def program() -> None:
        async with await aio.connect(broker.url, timeout=60) as connection, await connection.channel() as channel:
            await channel.queue_declare("one", durable=True)

            async def one(name: str) -> None:
                async with await channel.transaction(name) as transaction:
                    await transaction.publish("", "one", name.encode())

            begun = [await channel.transaction(f"t{number}") for number in range(20)]
            broker.kill_and_wait("gateway-0")
            await asyncio.gather(*[one(transaction.name) for transaction in begun])
            declared = await channel.queue_declare("one", durable=True)
            assert declared.messages == 20

    asyncio.run(program())
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.faults
def test_a_queue_is_drained_once_by_many_while_its_shard_is_killed(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1, gateways=2)
    bodies = [b"%d" % number for number in range(10_000)]
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("drained", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "drained", bodies)
    drained: dict[str, list[bytes]] = {}
    drainers = [threading.Thread(target=drain, args=(broker, f"d{number}", drained)) for number in range(3)]
    for drainer in drainers:
        drainer.start()
    dice = random.Random(4)
    for victim in ("shard-0", "shard-0", "gateway-0", "shard-0", "gateway-1", "shard-0"):
        time.sleep(dice.uniform(0, 0.3))  # not to wait for anything: to be in the middle of something
        broker.kill_and_wait(victim)
    for drainer in drainers:
        drainer.join(120)
        assert not drainer.is_alive()
    assert sorted(body for part in drained.values() for body in part) == sorted(bodies)


def drain(broker: Broker, who: str, drained: dict[str, list[bytes]]) -> None:
    """Reserve, read, acknowledge, until nothing is left; the same name again after every fault."""
    turn = 0
    while True:
        name = f"{who}-{turn}"
        try:
            with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
                reserved = channel.queue_reserve("drained", name, messages_max=400)
                if not reserved.messages and not reserved.is_acknowledged:
                    return
                if not reserved.is_acknowledged:
                    drained[name] = read(channel, name)
                    channel.reservation_end("drained", name, acknowledge=True)
                turn += 1
        except NotFound as gone:
            raise AssertionError(f"{name} is not there, and its time is not over") from gone
        except ShardmqError:
            continue


def read(channel: shardmq.Channel, name: str) -> list[bytes]:
    bodies: list[bytes] = []
    for part in channel.queue_slices("drained", 3, name):
        first: int | None = part.first
        while first is not None:
            messages, first = channel.queue_read("drained", first, part.end, 100, name)
            bodies += [message.body for message in messages]
    return bodies
