"""Retries with delays (x-retry-delays): when failed messages come back, how often, and what becomes of them then."""

import time
from typing import Any

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import counts, until


def declare(channel: shardmq.Channel, name: str, **arguments: Any) -> str:
    """A queue with dead letters and arguments; returns the queue of its dead letters."""
    dead = f"{name}.dead"
    channel.queue_declare(dead, durable=True)
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(name, durable=True, arguments=terms | arguments)
    return dead


def letter_of(channel: shardmq.Channel, dead: str) -> tuple[str, int, bytes, dict[str, Any]]:
    letter = until(lambda: channel.basic_get(dead, auto_ack=True), "it is dead")
    headers = dict(letter.properties.headers)
    (death,) = headers["x-death"]
    return death["reason"], death["count"], letter.body, headers


def test_what_was_rejected_comes_back_after_each_delay_and_then_dies(channel: shardmq.Channel) -> None:
    dead = declare(channel, "rejecting", **{"x-retry-delays": "100ms, 300ms"})
    context = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b,c=d"}
    channel.basic_publish("", "rejecting", b"x", shardmq.Properties(headers=context))
    messages = channel.consume("rejecting", prefetch=1)
    seen = []
    for _ in range(3):
        message = next(messages)
        seen.append((time.monotonic(), message.deliveries, message.properties.headers.get("x-delivery-count")))
        message.nack(requeue=False)
    assert [each[1:] for each in seen] == [(0, None), (1, 1), (2, 2)]
    assert seen[1][0] - seen[0][0] >= 0.095
    assert seen[2][0] - seen[1][0] >= 0.295
    reason, count, body, headers = letter_of(channel, dead)
    assert (reason, count, body, headers["x-retry-count"]) == ("rejected", 1, b"x", 2)
    assert {name: headers[name] for name in context} == context
    messages.close()  # type: ignore[attr-defined]


def test_what_is_overdue_is_retried_and_then_dies(channel: shardmq.Channel) -> None:
    dead = declare(channel, "overdue", **{"x-retry-delays": "10ms", "x-consumer-timeout": 50})
    channel.basic_publish("", "overdue", b"x")
    messages = channel.consume("overdue", prefetch=1)
    assert [next(messages).deliveries for _ in range(2)] == [0, 1]
    reason, _, _, headers = letter_of(channel, dead)
    assert (reason, headers["x-retry-count"]) == ("ack_timeout", 1)
    messages.close()  # type: ignore[attr-defined]


def test_a_requeue_is_no_failure_and_a_delivery_limit_holds(channel: shardmq.Channel) -> None:
    dead = declare(channel, "limited", **{"x-retry-delays": "10ms,10ms,10ms", "x-delivery-limit": 1})
    declare(channel, "patient", **{"x-retry-delays": "10ms"})
    for queue in ("limited", "patient"):
        channel.basic_publish("", queue, b"x")
    for _ in range(2):
        until(lambda: channel.basic_get("limited"), "it is back").nack(requeue=False)
    assert letter_of(channel, dead)[0] == "delivery_limit"
    for count, requeue in ((0, True), (0, True), (0, False), (1, False)):
        message = until(lambda: channel.basic_get("patient"), "it is back")
        assert message.deliveries == count
        message.nack(requeue=requeue)
    assert letter_of(channel, "patient.dead")[3]["x-retry-count"] == 1


def test_a_policy_gives_a_running_queue_its_delays(broker: Broker, channel: shardmq.Channel) -> None:
    dead = declare(channel, "governed")
    with shardmq.connect(broker.url) as admin:
        settings = {"pattern": "^governed$", "definition": {"retry-delays": "10ms"}, "apply-to": "queues"}
        admin.policy_put("/", "retries", settings)
        channel.basic_publish("", "governed", b"x")
        for _ in range(2):
            until(lambda: channel.basic_get("governed"), "it is there").nack(requeue=False)
        assert letter_of(channel, dead)[3]["x-retry-count"] == 1
        admin.policy_delete("/", "retries")


def test_delays_and_counts_survive_kill_9(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        dead = declare(channel, "q", **{"x-retry-delays": "2s"})
        channel.basic_publish("", "q", b"x")
        message = channel.basic_get("q")
        assert message is not None
        start = time.monotonic()
        message.nack(requeue=False)
        until(lambda: counts(connection, "q")["delayed"] == 1, "it waits")
    broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        message = until(lambda: channel.basic_get("q"), "it is back")
        assert time.monotonic() - start >= 1.9
        assert message.deliveries == 1
        message.nack(requeue=False)
        assert letter_of(channel, dead)[3]["x-retry-count"] == 1


def test_without_dead_letters_the_overdue_stay_and_the_rejected_go(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    arguments = {"x-retry-delays": "10ms", "x-consumer-timeout": 50}
    channel.queue_declare("lonely", durable=True, arguments=arguments)
    channel.basic_publish("", "lonely", b"x")
    messages = channel.consume("lonely", prefetch=1)
    assert [next(messages).deliveries for _ in range(3)] == [0, 1, 1]
    next(messages).nack(requeue=False)
    until(lambda: counts(connection, "lonely")["valid"] == 0, "it is dropped")
    messages.close()  # type: ignore[attr-defined]
