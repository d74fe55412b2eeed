"""Frozen processes, full disks, and deaths at the wrong moment: what was confirmed is there, and life goes on."""

import contextlib
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.limits import LINK_SILENCE_SECONDS
from shardmq.storage.redo.log import REDO_BYTES

from .ledgers import Consumer, Ledger, Publisher
from .saboteur import queue_table, until

StartBroker = Callable[..., Broker]

UNWRITABLE_BYTES = 4096
"""A limit below every place where a store or its redo log is written."""


@contextlib.contextmanager
def frozen(broker: Broker, *names: str) -> Iterator[None]:
    """Processes that are stopped meanwhile."""
    for name in names:
        broker.kill(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in names:
            broker.kill(name, signal.SIGCONT)


def declare_on_each_of_two(connection: shardmq.Connection) -> tuple[str, str]:
    """A durable queue on shard 0 and one on shard 1, each with a durable fanout exchange `to-…`."""
    channel = connection.channel()
    found: dict[int, str] = {}
    for number in range(64):
        name = f"ledger-{number}"
        channel.queue_declare(name, durable=True)
        channel.exchange_declare(f"to-{name}", "fanout", durable=True)
        channel.queue_bind(name, f"to-{name}", "")
        found.update({table["shard"]: table["name"] for table in connection.topology("queues")})
        if len(found) == 2:
            return found[0], found[1]
    raise AssertionError(f"64 queues are all on one of two shards: {found}")


def drain(connection: shardmq.Connection, queue: str, ledger: Ledger) -> None:
    channel = connection.channel()
    notes = Consumer("", ledger, "drain", queue)
    for message in channel.consume(queue, inactivity_timeout=1.0):
        notes.note(message)
        message.ack()
    channel.close()


def check(ledger: Ledger) -> None:
    print(ledger.verdict())
    assert ledger.confirmed
    assert not ledger.confirmed - ledger.received.keys()
    assert not ledger.unknown
    assert not ledger.unmarked_copies


def confirm_one(channel: shardmq.Channel, queue: str, body: bytes) -> bool:
    with contextlib.suppress(errors.RequestError):
        channel.basic_publish("", queue, body)
        return True
    return False


def test_a_frozen_shard_is_given_up_after_the_silence_and_taken_back_when_it_thaws(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, timeout=30) as connection:
        cold, warm = declare_on_each_of_two(connection)
        ledgers = {cold: Ledger(), warm: Ledger()}
        publishers = [Publisher(broker.url, ledger, queue, f"to-{queue}") for queue, ledger in ledgers.items()]
        consumers = [Consumer(broker.url, ledger, queue, queue) for queue, ledger in ledgers.items()]
        for client in (*publishers, *consumers):
            client.start()
        until(lambda: all(len(ledger.confirmed) > 100 for ledger in ledgers.values()), "traffic flows")
        channel = connection.channel()
        with frozen(broker, "shard-0"):
            began = time.monotonic()
            confirmed = len(ledgers[warm].confirmed)
            with pytest.raises(errors.RequestError, match=r"shard-0.*publish again"):
                channel.basic_publish("", cold, b"into the cold")
            waited = time.monotonic() - began
            assert LINK_SILENCE_SECONDS - 2 < waited < LINK_SILENCE_SECONDS + 4
            assert len(ledgers[warm].confirmed) > confirmed + 100, "the other shard's clients notice nothing"
            with pytest.raises(errors.RequestError, match="shard-0"):
                channel.basic_publish("", cold, b"at once now")
        ledgers[cold].published |= {"into the cold", "at once now", "thawed"}
        until(lambda: confirm_one(channel, cold, b"thawed"), "the shard is taken back")
        confirmed = len(ledgers[cold].confirmed)
        until(lambda: len(ledgers[cold].confirmed) > confirmed + 100, "its clients go on")
        for publisher in publishers:
            publisher.stopping.set()
            publisher.join(30)
        for queue in ledgers:
            until(lambda: queue_table(connection, queue).get("valid") == 0, "all is consumed")  # noqa: B023
        for consumer in consumers:
            consumer.stopping.set()
            consumer.join(30)
        assert [notice.event for notice in broker.notices if notice.process] == [], "nothing was restarted"
    for ledger in ledgers.values():
        check(ledger)


def test_a_frozen_gateway_holds_up_nobody_for_longer_than_the_silence_and_thaws_with_its_clients(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(shards=1, gateways=2)

    def clients(name: str) -> int:
        connections = psutil.Process(broker.pids[name]).net_connections(kind="tcp")
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in connections)

    with contextlib.ExitStack() as stack:
        at: dict[str, shardmq.Connection] = {}
        while len(at) < 2:
            before = {name: clients(name) for name in ("gateway-0", "gateway-1")}
            connection = stack.enter_context(shardmq.connect(broker.url, timeout=30))
            [name] = [name for name, count in before.items() if clients(name) > count]
            at.setdefault(name, connection)
        cold, warm = at["gateway-0"].channel(), at["gateway-1"].channel()
        cold.queue_declare("shared", durable=True)
        with cold.publisher() as publisher:
            publisher.publish_many("", "shared", [b"%d" % number for number in range(20)])
        messages = cold.consume("shared", prefetch=5)
        held = [next(messages) for _ in range(5)]
        with frozen(broker, "gateway-0"):
            warm.basic_publish("", "shared", b"20")
            began = time.monotonic()
            warm.queue_declare("new", durable=True)  # every gateway must know of it, or be given up
            assert time.monotonic() - began < LINK_SILENCE_SECONDS + 4
            warm.basic_publish("", "new", b"x")
            until(lambda: warm.queue_declare("shared", durable=True).consumers == 0, "its consumer is given up")
            first = warm.basic_get("shared")
            assert first is not None
            assert (first.body, first.redelivered) == (b"0", True)
            first.ack()
        for message in held:
            message.ack()  # they are somebody else's by now
        until(lambda: warm.queue_declare("shared", durable=True).consumers == 1, "its consumer is back")
        got = []
        for message in messages:
            got.append(message)
            message.ack()
            if message.body == b"20":
                break
        assert [message.body for message in got] == [b"%d" % number for number in range(1, 21)]
        assert [message.redelivered for message in got[:4]] == [True] * 4
        until(lambda: confirm_one(cold, "new", b"y"), "publishing through it goes on")
        assert [notice.event for notice in broker.notices if notice.process] == [], "nothing was restarted"


def test_a_machine_that_was_suspended_goes_on_where_it_was(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    bodies = [b"%d" % number for number in range(1000)]
    with shardmq.connect(broker.url, timeout=60, heartbeat=0) as connection:
        channel = connection.channel()
        queues = declare_on_each_of_two(connection)
        channel.queue_declare("of this connection", exclusive=True)
        for queue in queues:
            with channel.publisher() as publisher:
                publisher.publish_many("", queue, bodies)
        arriving = [connection.channel().consume(queue, prefetch=100) for queue in queues]
        held = [[next(messages) for _ in range(50)] for messages in arriving]
        with channel.publisher() as publisher:
            with frozen(broker, *broker.pids):
                for queue in queues:  # they lie in the gateway's socket until it wakes
                    publisher.publish("", queue, b"meanwhile")
                time.sleep(LINK_SILENCE_SECONDS + 2)
            publisher.flush()
        for messages, first in zip(arriving, held, strict=True):
            for message in first:
                message.ack()
            got = first
            while got[-1].body != b"meanwhile":
                got.append(next(messages))
                got[-1].ack()
            assert [message.body for message in got] == [*bodies, b"meanwhile"]
            assert not any(message.redelivered for message in got)
        until(lambda: {queue_table(connection, queue)["total"] for queue in queues} == {0}, "all is acknowledged")
        assert channel.queue_declare("of this connection", exclusive=True).messages == 0
        assert [notice.event for notice in broker.notices if notice.process] == [], "nothing was restarted"


def successor(broker: Broker, name: str, dead: set[int]) -> psutil.Process:
    """The process that listens in place of one that was killed, as soon as there is one."""

    def look() -> psutil.Process | None:
        for child in psutil.Process(broker.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                words = child.cmdline()
                listens = child.pid not in dead and "--listen" in words
                if listens and words[words.index("--listen") + 1].endswith(f"/{name}"):
                    return child
        return None

    process = until(look, f"{name} is started")
    assert isinstance(process, psutil.Process)
    return process


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.25, 0.35])
def test_a_shard_killed_twice_more_while_it_starts_loses_nothing(start_broker: StartBroker, delay: float) -> None:
    broker = start_broker(shards=1)
    bodies = [b"%d" % number for number in range(20_000)]
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare("thrice", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "thrice", bodies[:10_000])
            for body in bodies[10_000:]:
                publisher.publish("", "thrice", body)
        known = len(broker.notices)
        dead = {broker.kill("shard-0")}
        for _ in range(2):
            process = successor(broker, "shard-0", dead)
            time.sleep(delay)  # not to wait for anything: to be in the middle of something
            process.kill()
            dead.add(process.pid)
        until(lambda: broker.pids["shard-0"] not in dead, "it is back", 30)
        assert len([n for n in broker.notices[known:] if n.event == "exited"]) == 3
        got = [message.body for message in channel.consume("thrice", auto_ack=True, inactivity_timeout=2.0)]
    assert got == bodies


def test_a_coordinator_killed_twice_more_while_it_starts_knows_what_it_answered(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, timeout=30) as connection:
        channel = connection.channel()
        for number in range(50):
            channel.queue_declare(f"queue-{number}", durable=number % 2 == 0)
            channel.queue_bind(f"queue-{number}", "amq.fanout")
        dead = {broker.kill("coordinator")}
        for _ in range(2):
            process = successor(broker, "coordinator", dead)
            process.kill()
            dead.add(process.pid)
        channel.queue_declare("after", durable=True)
        channel.basic_publish("amq.fanout", "", b"x")
        assert len(connection.topology("bindings")) == 50
        assert {channel.queue_declare(f"queue-{n}", durable=n % 2 == 0).messages for n in range(50)} == {1}


def test_a_full_disk_costs_only_what_was_not_confirmed_and_the_shard_comes_back(start_broker: StartBroker) -> None:
    """Twice, in the middle of publishing, nothing can be written any more, not even into the reserve."""
    broker = start_broker(shards=2)
    ledger, others = Ledger(), Ledger()
    with shardmq.connect(broker.url, timeout=30) as connection, shardmq.connect(broker.url, timeout=4) as publishing:
        full, other = declare_on_each_of_two(connection)
        publisher = publishing.channel()
        for round_of in range(2):
            known = len(broker.notices)
            publish_some(publisher, full, ledger, f"{round_of}:before", 300)
            with connection.channel() as consuming:
                held = settle_half(consuming, full, ledger)
                limit_file_size(broker, "shard-0", UNWRITABLE_BYTES)
                with pytest.raises(errors.RequestError, match="shard-0"):
                    publish_some(publisher, full, ledger, f"{round_of}:into the full")
                with contextlib.suppress(errors.ShardmqError):  # most often the publish has ended it
                    held.ack()
                broker.wait_for("exited", "shard-0", after=known)
                broker.wait_for("ready", "shard-0", after=known)
            until(lambda: queue_table(connection, full), "it is back")
            publish_one(publisher, full, ledger, f"{round_of}:back")
            publish_one(publisher, other, others, f"{round_of}:other")
        assert connection.channel().queue_declare(full, passive=True).messages >= len(ledger.confirmed - ledger.acked)
        drain(connection, full, ledger)
        drain(connection, other, others)
    exited = [notice.process for notice in broker.notices if notice.event == "exited"]
    assert exited == ["shard-0"] * 2, "each time for want of room, and nobody else"
    check(others)
    check(ledger)


def test_a_disk_with_nothing_but_the_reserve_stops_publishers_and_ends_nobody(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    ledger, others = Ledger(), Ledger()
    with shardmq.connect(broker.url, timeout=30) as connection, shardmq.connect(broker.url, timeout=4) as publishing:
        full, other = declare_on_each_of_two(connection)
        publisher = publishing.channel()
        publish_some(publisher, full, ledger, "before", 50)
        publish_some(publisher, other, others, "other", 50)
        written = sum(file.stat().st_size for file in (broker.data_dir / "shard-0").glob("*.mdb"))
        limit_file_size(broker, "shard-0", written + REDO_BYTES + 300_000)
        with pytest.raises(errors.RequestError, match=r"disk (of|alarm on) shard-0"):
            publish_some(publisher, full, ledger, "into the full")
        drain(connection, other, others)
        drain(connection, full, ledger)
        limit_file_size(broker, "shard-0", resource.RLIM_INFINITY)
        publish_one(publisher, full, ledger, "there is room")
        drain(connection, full, ledger)
    assert [notice.event for notice in broker.notices if notice.process] == [], "nobody has ended"
    check(others)
    check(ledger)


def limit_file_size(broker: Broker, name: str, size: int) -> None:
    """What a process writes behind there fails; a new one in its place has no limit."""
    pid = broker.pids[name]
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


def publish_some(channel: shardmq.Channel, queue: str, ledger: Ledger, title: str, count: int = 5000) -> None:
    for number in range(count):
        body = f"{title}:{number}:" + "x" * 2000
        ledger.published.add(body)
        channel.basic_publish("", queue, body.encode())
        ledger.confirmed.add(body)


def publish_one(channel: shardmq.Channel, queue: str, ledger: Ledger, title: str) -> None:
    """Publish until one is taken, each time another: of one that is refused nobody knows whether it is there."""

    def is_taken() -> bool:
        body = f"{title}:{len(ledger.published)}"
        ledger.published.add(body)
        if not confirm_one(channel, queue, body.encode()):
            return False
        ledger.confirmed.add(body)
        return True

    until(is_taken, "a message is taken")


def settle_half(channel: shardmq.Channel, queue: str, ledger: Ledger) -> shardmq.Message:
    """Consume and settle half of what is there; returns the next message, which is not settled."""
    notes = Consumer("", ledger, "half", queue)
    for _ in range(channel.queue_declare(queue, passive=True).messages // 2):
        message = channel.basic_get(queue)
        assert message is not None
        notes.note(message)
        message.ack()
    held = channel.basic_get(queue)
    assert held is not None
    notes.note(held)
    return held


def test_a_transaction_under_way_when_everything_dies_leaves_a_store_that_opens(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """kill -9 in the middle of large commits, five times over the same store."""
    broker = start_broker(shards=2, data_dir=tmp_path / "data")
    with shardmq.connect(broker.url) as connection:
        queue, _ = declare_on_each_of_two(connection)
    ledger = Ledger()
    for life in range(4):
        publisher = Publisher(broker.url, ledger, f"life-{life}", f"to-{queue}")
        publisher.start()
        confirmed = len(ledger.confirmed)
        until(lambda: len(ledger.confirmed) > confirmed + 300, "traffic flows")  # noqa: B023
        publisher.stopping.set()
        broker.kill_everything()
        publisher.join(30)
        broker.start()
    with shardmq.connect(broker.url) as connection:
        drain(connection, queue, ledger)
    check(ledger)
