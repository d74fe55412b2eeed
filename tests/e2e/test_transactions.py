"""Transactions: messages to any number of queues that appear whole or not at all."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, NotFound, PreconditionFailed, PublishRefused, ShardmqError, Unroutable
from tests.conftest import StartBroker

from .traffic import PATIENCE_SECONDS, bodies, counts, numbers, publish_all, until


@pytest.fixture
def queues(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Eight durable queues; on four shards, no two neighbours can be sure to share one."""
    names = [f"{request.node.name[:150]}-{number}" for number in range(8)]
    with connection.channel() as channel:
        for name in names:
            channel.queue_declare(name, durable=True)
        yield names
        for name in names:
            channel.queue_delete(name)


def ready(connection: shardmq.Connection, queue: str) -> int:
    found: int = counts(connection, queue).get("ready", -1)
    return found


def staged(connection: shardmq.Connection) -> tuple[int, int]:
    """Messages and bytes staged in all shards."""
    tables = [row for table in connection.status()["processes"] for row in table.get("staged", [])]
    return sum(row["messages"] for row in tables), sum(row["bytes"] for row in tables)


def test_a_batch_to_queues_on_all_shards_appears_when_it_is_committed_and_not_before(
    connection: shardmq.Connection, channel: shardmq.Channel, queues: list[str]
) -> None:
    with channel.transaction("whole") as transaction:
        for queue in queues:
            transaction.publish_many("", queue, numbers(0, 500))
            transaction.publish("", queue, b"last")
        sealed = transaction.seal()
        assert sealed.messages == 8 * 501
        assert [ready(connection, queue) for queue in queues] == [0] * 8
        assert staged(connection)[0] == 8 * 501
        assert [row["name"] for row in connection.topology("transactions")] == ["whole"]
    for queue in queues:
        assert bodies(channel, queue) == [*numbers(0, 500), b"last"]
    assert connection.topology("transactions") == []
    assert staged(connection) == (0, 0)


def test_an_exception_inside_leaves_nothing_behind(
    connection: shardmq.Connection, channel: shardmq.Channel, queues: list[str]
) -> None:
    def fail(transaction: shardmq.Transaction) -> None:
        for queue in queues:
            transaction.publish_many("", queue, numbers(0, 1000))
        raise LookupError("the program's own")

    with pytest.raises(LookupError, match="own"), channel.transaction("half") as transaction:
        fail(transaction)
    until(lambda: staged(connection) == (0, 0), "what was staged is gone")
    assert [ready(connection, queue) for queue in queues] == [0] * 8
    with channel.transaction("half") as again:
        assert not again.is_committed
        again.publish("", queues[0], b"second try")
    assert bodies(channel, queues[0]) == [b"second try"]


def test_a_rerun_of_a_committed_name_does_nothing(channel: shardmq.Channel, queue: str) -> None:
    for attempt in range(3):
        with channel.transaction("2026-11-20") as transaction:
            assert transaction.is_committed is (attempt > 0)
            transaction.publish_many("", queue, numbers(0, 10))
            transaction.publish("", queue, b"10")
    assert bodies(channel, queue) == numbers(0, 11)


def test_the_attempts_that_a_commit_names_appear_in_its_order_and_others_never(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    sealed: dict[str, Any] = {}

    def stage(body: str) -> None:
        with shardmq.connect(broker.url) as own, own.channel() as mine:
            transaction = mine.transaction("job")
            transaction.publish_many("", queue, [f"{body}-{number}".encode() for number in range(100)])
            sealed[body] = transaction.seal()

    threads = [threading.Thread(target=stage, args=(body,)) for body in ("a", "b", "b again", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    driver = channel.transaction("job")
    assert driver.commit(sealed=[sealed["c"], sealed["a"], sealed["b again"]])
    expected = [f"{body}-{number}".encode() for body in ("c", "a", "b again") for number in range(100)]
    assert bodies(channel, queue) == expected
    until(lambda: staged(connection) == (0, 0), "the attempt that lost is gone")


def test_a_commit_that_names_an_attempt_wrongly_decides_nothing(channel: shardmq.Channel, queue: str) -> None:
    transaction = channel.transaction("typo")
    transaction.publish("", queue, b"x")
    sealed = transaction.seal()
    with pytest.raises(PreconditionFailed, match=str(sealed.attempt)):
        transaction.commit(sealed=[shardmq.Sealed(sealed.attempt, sealed.messages + 1)])
    with pytest.raises(PreconditionFailed):
        transaction.commit(sealed=[shardmq.Sealed(sealed.attempt ^ 1, 1)])
    assert transaction.commit(sealed=[sealed])
    assert bodies(channel, queue) == [b"x"]


def test_an_attempt_that_is_not_sealed_cannot_be_committed(channel: shardmq.Channel, queue: str) -> None:
    transaction, driver = channel.transaction("open"), channel.transaction("open")
    transaction.publish("", queue, b"x")
    transaction.flush()
    with pytest.raises(PreconditionFailed, match="seal"):
        driver.commit(sealed=[shardmq.Sealed(transaction.attempt, 1)])
    transaction.abort()
    assert bodies(channel, queue) == []


def test_abort_is_refused_once_it_is_committed_and_commit_once_it_is_aborted(
    channel: shardmq.Channel, queue: str
) -> None:
    done = channel.transaction("done")
    done.publish("", queue, b"x")
    sealed = done.seal()
    assert done.commit()
    with pytest.raises(PreconditionFailed, match="committed"):
        channel.transaction_abort("done")
    assert channel.transaction("done").is_committed
    given_up = channel.transaction("given up")
    given_up.publish("", queue, b"y")
    other = given_up.seal()
    channel.transaction_abort("given up")
    with pytest.raises(ShardmqError):
        given_up.commit(sealed=[other])
    channel.transaction_abort("never was")
    assert sealed.messages == 1
    assert bodies(channel, queue) == [b"x"]


def test_what_comes_late_for_a_transaction_that_is_over_is_refused(
    channel: shardmq.Channel, connection: shardmq.Connection, queue: str
) -> None:
    zombie, driver = channel.transaction("zombies"), channel.transaction("zombies")
    zombie.publish("", queue, b"early")
    zombie.flush()
    driver.publish("", queue, b"x")
    assert driver.commit()
    zombie.publish("", queue, b"late")
    with pytest.raises(PreconditionFailed, match="over"):
        zombie.seal()
    assert bodies(channel, queue) == [b"x"]
    until(lambda: staged(connection) == (0, 0), "nothing of it is left")


def test_a_transaction_that_nobody_decides_expires(
    channel: shardmq.Channel, connection: shardmq.Connection, queue: str
) -> None:
    transaction = channel.transaction("forgotten", timeout_ms=1500)
    transaction.publish_many("", queue, numbers(0, 1000))
    sealed = transaction.seal()
    assert sealed.messages == 1000
    until(lambda: connection.topology("transactions") == [], "it is over")
    until(lambda: staged(connection) == (0, 0), "its bytes are back")
    with pytest.raises(PreconditionFailed):
        transaction.commit(sealed=[sealed])
    assert ready(connection, queue) == 0


def test_routing_happens_when_it_is_published(
    channel: shardmq.Channel, connection: shardmq.Connection, queues: list[str]
) -> None:
    channel.exchange_declare("staged-topic", "topic", durable=True)
    for queue, key in zip(queues, ("eu.#", "us.#", "#", "*.new"), strict=False):
        channel.queue_bind(queue, "staged-topic", key)
    with channel.transaction("routes") as transaction:
        transaction.publish("staged-topic", "eu.new", b"1")
        transaction.publish("staged-topic", "us.old", b"2", shardmq.Properties(headers={"CC": ["eu.too"]}))
        transaction.publish("", queues[4], b"3", delay_ms=1)
        channel.queue_unbind(queues[2], "staged-topic", "#")
        transaction.publish("staged-topic", "nowhere", b"?", mandatory=True)
        with pytest.raises(Unroutable):
            transaction.flush()
    channel.exchange_delete("staged-topic")
    assert bodies(channel, queues[0]) == [b"1", b"2"]
    assert bodies(channel, queues[1]) == [b"2"]
    assert bodies(channel, queues[2]) == [b"1", b"2"]
    assert bodies(channel, queues[3]) == [b"1"]
    until(lambda: ready(connection, queues[4]) == 1, "the delayed one is there")


def test_a_consumer_gets_what_is_committed_and_the_channel_goes_on_beside_it(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    with connection.channel() as consuming:
        messages = consuming.consume(queue, inactivity_timeout=20)
        with channel.transaction("beside") as transaction:
            transaction.publish("", queue, b"staged")
            transaction.flush()
            channel.basic_publish("", queue, b"at once")
            first = next(messages)
            assert first is not None
            assert (first.body, first.redelivered) == (b"at once", False)
        second = next(messages)
        assert second is not None
        assert (second.body, second.redelivered) == (b"staged", False)


def test_times_to_live_count_from_the_commit(
    connection: shardmq.Connection, channel: shardmq.Channel, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    channel.queue_declare(name, durable=True, arguments={"x-message-ttl": 300})
    with connection.channel() as consuming:
        messages = consuming.consume(name, inactivity_timeout=PATIENCE_SECONDS)
        transaction = channel.transaction("ttl")
        transaction.publish("", name, b"x", shardmq.Properties(expiration="200"))
        transaction.seal()
        time.sleep(0.5)  # both times would be over by now
        assert transaction.commit()
        assert next(messages).body == b"x"
    channel.queue_delete(name)


@pytest.mark.parametrize(
    "arguments",
    [{"x-max-priority": 5}, {"x-max-length": 100, "x-overflow": "reject-publish"}, {"x-max-length": 30}],
    ids=["priorities", "reject-publish", "drop-head"],
)
def test_queues_with_terms_take_what_is_committed(
    channel: shardmq.Channel, request: pytest.FixtureRequest, arguments: dict[str, Any]
) -> None:
    name = request.node.name
    channel.queue_declare(name, durable=True, arguments=arguments)
    with channel.transaction(name) as transaction:
        for number in range(50):
            transaction.publish("", name, b"%d" % number, shardmq.Properties(priority=number % 5))
    got = bodies(channel, name)
    if "x-max-priority" in arguments:
        assert [int(body) % 5 for body in got] == sorted((number % 5 for number in range(50)), reverse=True)
    assert len(got) == min(50, arguments.get("x-max-length", 50))
    channel.queue_delete(name)


def test_a_full_queue_gets_what_is_committed_in_order(
    connection: shardmq.Connection, channel: shardmq.Channel, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    publish_all(channel, name, numbers(0, 10))
    for start in (10, 15):
        with channel.transaction(f"{name}-{start}") as transaction:
            transaction.publish_many("", name, numbers(start, start + 5))
    assert ready(connection, name) == 20
    with pytest.raises(PublishRefused, match="is full"):
        publish_all(channel, name, numbers(20, 21))
    assert bodies(channel, name) == numbers(0, 20)
    channel.queue_delete(name)


def test_a_queue_that_is_deleted_before_the_commit_loses_its_part(
    channel: shardmq.Channel, queue: str, request: pytest.FixtureRequest
) -> None:
    gone = f"{request.node.name}-gone"
    channel.queue_declare(gone, durable=True)
    with channel.transaction("part") as transaction:
        transaction.publish_many("", gone, numbers(0, 10))
        transaction.publish_many("", queue, numbers(0, 10))
        transaction.flush()
        channel.queue_delete(gone)
        channel.queue_declare(gone, durable=True)
    assert bodies(channel, queue) == numbers(0, 10)
    assert bodies(channel, gone) == []
    channel.queue_delete(gone)


def test_only_who_began_it_and_administrators_decide(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    for user in ("ann", "bob"):
        connection.user_put(user, password=user)
        connection.permission_put(user, "/", ".*", ".*", ".*")
    url = f"shardmq://%s:%s@127.0.0.1:{broker.port}/"
    with (
        shardmq.connect(url % ("ann", "ann")) as ann,
        shardmq.connect(url % ("bob", "bob")) as bob,
        ann.channel() as hers,
        bob.channel() as his,
    ):
        transaction = hers.transaction("hers")
        transaction.publish("", queue, b"x")
        sealed = transaction.seal()
        with pytest.raises(AccessRefused):
            his.transaction("hers")
        with pytest.raises(AccessRefused):
            his.transaction_abort("hers")
        assert transaction.commit(sealed=[sealed])
        hers.transaction("hers too").publish("", queue, b"y")
        channel.transaction_abort("hers too")
    assert bodies(channel, queue) == [b"x"]
    for user in ("ann", "bob"):
        connection.user_delete(user)


def test_a_transaction_of_a_missing_exchange_is_refused_and_takes_nothing(channel: shardmq.Channel, queue: str) -> None:
    def run() -> None:
        with channel.transaction("missing") as transaction:
            transaction.publish("", queue, b"x")
            transaction.publish("nowhere", "", b"y")

    with pytest.raises(NotFound, match="nowhere"):
        run()
    assert bodies(channel, queue) == []


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_was_staged_is_committed_after_a_restart(start_broker: StartBroker, how: str) -> None:
    broker = start_broker()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        for number in range(8):
            channel.queue_declare(f"q{number}", durable=True)
        transaction = channel.transaction("over a restart")
        for number in range(8):
            transaction.publish_many("", f"q{number}", numbers(0, 2000))
        sealed = transaction.seal()
    if how == "kill":
        broker.kill_everything()
        broker.start()
    else:
        broker.restart()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        assert staged(connection)[0] == 16_000
        again = channel.transaction("over a restart")
        assert not again.is_committed
        assert again.commit(sealed=[sealed])
        for number in range(8):
            assert counts(connection, f"q{number}")["ready"] == 2000
        assert bodies(channel, "q3") == numbers(0, 2000)
        assert channel.transaction("over a restart").is_committed


def test_bytes_of_aborted_transactions_return_to_the_store(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    def used() -> int:
        tables = connection.status()["processes"]
        return sum(table["store"]["used_bytes"] for table in tables if table["role"] == "shard")

    before = used()
    transaction = channel.transaction("large")
    transaction.publish_many("", queue, [bytes(10_000)] * 3000)
    transaction.seal()
    assert staged(connection)[1] > 30_000_000
    assert used() > before + 30_000_000
    transaction.abort()
    until(lambda: used() < before + 3_000_000, "the store has its bytes back")


def test_many_transactions_at_once_keep_apart(broker: Broker, channel: shardmq.Channel, queues: list[str]) -> None:
    def work(number: int, failures: list[BaseException]) -> None:
        try:
            with shardmq.connect(broker.url) as own, own.channel() as mine:
                for turn in range(10):
                    with mine.transaction(f"{number}/{turn}") as transaction:
                        for queue in queues:
                            transaction.publish("", queue, f"{number}/{turn}".encode())
        except BaseException as failure:
            failures.append(failure)
            raise

    failures: list[BaseException] = []
    threads = [threading.Thread(target=work, args=(number, failures)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    expected = sorted(f"{number}/{turn}".encode() for number in range(8) for turn in range(10))
    for queue in queues:
        assert sorted(bodies(channel, queue)) == expected
