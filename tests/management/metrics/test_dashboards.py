"""The expressions of Grafana's dashboards, evaluated over what Prometheus scrapes of a busy broker."""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pytest
from pika.exceptions import UnroutableError

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.e2e.traffic import until
from tests.management.browser import Browser
from tests.management.metrics.evaluating import Scrape, Scrapes, evaluated, expressions, scrape

VARIABLES = {"$__rate_interval": "60s", "$__range": "3600s", "$__interval": "60s"}

ON = "on(instance, job)"
JOIN = f"{ON} group_left(rabbitmq_cluster, rabbitmq_node)"
PICKED = 'rabbitmq_cluster="$rabbitmq_cluster", namespace="$namespace", rabbitmq_endpoint="$endpoint"'
IDENTITY = f"rabbitmq_identity_info{{{PICKED}}}"
"""How dashboard 10991 picks a cluster: each metric is joined with the identity of the node that tells it."""

GAUGES = (
    *("queue_messages_ready", "queue_messages_unacked", "connections", "channels", "queues"),
    *("global_publishers", "global_consumers"),
)
RATES = (
    *("received", "routed", "confirmed", "unroutable_dropped", "unroutable_returned", "redelivered", "acknowledged"),
    *("delivered", "delivered_consume_auto_ack", "delivered_consume_manual_ack", "get_empty"),
    *("delivered_get_auto_ack", "delivered_get_manual_ack"),
)
CHURN = ("queues_declared", "queues_created", "queues_deleted")
CHURN += ("channels_opened", "channels_closed", "connections_opened", "connections_closed")
BY_NODE = "by (rabbitmq_node)"

OPEN = {"rabbitmq_connections": 2.0, "rabbitmq_channels": 3.0}
"""Clients that stay connected throughout, and their channels: the SDK has one for what connections ask."""


def joined(metric: str) -> str:
    return f"{metric} * {JOIN} {IDENTITY}"


def grown(bound: str) -> str:
    return f"sum({joined(f'increase(rabbitmq_message_size_bytes_{bound}[$__range])')})"


def of_10991() -> list[str]:
    """The expressions of dashboard 10991 as of RabbitMQ 4.1, by what they read and how they join it."""
    auto, manual = (
        joined(f"rate(rabbitmq_global_messages_delivered_consume_{way}_ack_total[60s])") for way in ("auto", "manual")
    )
    awaited, confirmed = (
        joined(f"rate(rabbitmq_global_messages_{what}_total[60s])") for what in ("received_confirm", "confirmed")
    )
    limit, taken = (joined(f"rabbitmq_{what}_bytes") for what in ("resident_memory_limit", "process_resident_memory"))
    version = "group_left(rabbitmq_version, erlang_version) rabbitmq_build_info"
    return [
        *(f"sum({joined(f'rabbitmq_{name}')})" for name in GAUGES),
        *(f"sum({joined(f'rabbitmq_{name}')}) {BY_NODE}" for name in GAUGES[:2]),
        *(joined(f"rabbitmq_{name}") for name in ("queues", "channels", "connections", "disk_space_available_bytes")),
        *(
            f"sum({joined(f'irate(rabbitmq_global_messages_{name}_total[$__rate_interval])')})"
            for name in ("delivered", "received")
        ),
        *(f"sum({joined(f'rate(rabbitmq_global_messages_{name}_total[60s])')}) {BY_NODE}" for name in RATES),
        *(f"sum({joined(f'rate(rabbitmq_{name}_total[60s])')}) {BY_NODE}" for name in CHURN),
        f"count({IDENTITY})",
        f"rabbitmq_erlang_uptime_seconds * {ON} {version} * {JOIN} {IDENTITY}",
        f"({limit}) - ({taken})",
        f"sum({awaited} - {confirmed}) {BY_NODE}",
        f"sum(({auto}) + ({manual})) {BY_NODE}",
        f"{grown('sum')} / {grown('count')}",
        *(
            f'{grown(f"""bucket{{le="{bound}"}}""")} / {grown("""bucket{le="+Inf"}""")}'
            for bound in ("100.0", "1000.0", "1e+08")
        ),
    ]


def work(url: str, amqp: Any) -> None:
    """What each counter counts, once and more: over the native protocol, and over AMQP in another virtual host."""
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        for number in range(3):
            channel.basic_publish("", "kept", b"%d" % number)
        channel.queue_declare("passing")
        channel.queue_delete("passing")
    channel = amqp.channel()
    channel.confirm_delivery()
    for size in (50, 500):
        channel.basic_publish("", "work", b"x" * size)
    channel.basic_publish("", "nowhere", b"dropped")
    with pytest.raises(UnroutableError):
        channel.basic_publish("", "nowhere", b"returned", mandatory=True)
    method, _, _ = channel.basic_get("work")
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.basic_get("work", auto_ack=True)
    assert channel.basic_get("nothing")[0] is None
    for queue, auto_ack in (("acked", False), ("autos", True)):
        channel.basic_publish("", queue, b"y" * 60)
        method, _, _ = next(channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=10))
        if not auto_ack:
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
    channel.close()


def scrape_at_rest(broker: Broker) -> Scrape:
    """What is told once the clients that have closed are gone: the broker counts an end when it hears of it."""

    def at_rest() -> Scrape | None:
        told = scrape(broker)
        open_now = {sample.name: sample.value for sample in told.samples if sample.name in OPEN}
        return told if open_now == OPEN else None

    found: Scrape = until(at_rest, "the clients that have closed are gone")
    return found


@pytest.fixture(scope="module")
def scrapes(managed: Broker) -> Iterator[Scrapes]:
    """What a busy broker tells before and after some work; two messages are unacknowledged, one consumer stays.

    Meanwhile somebody looks at a virtual host over HTTP, for which the first one opens a channel that does not count.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(shardmq.connect(managed.url))
        channel = connection.channel()
        channel.topic_declare("events", 1)
        channel.basic_publish("events", "key", b"x")
        channel.group_commit("events", "readers", {0: 0})
        channel.queue_declare("kept", durable=True)
        connection.vhost_put("busy")
        connection.permission_put("guest", "busy", ".*", ".*", ".*")
        port = int(managed.url.rpartition(":")[2].strip("/"))
        amqp = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, "busy"))
        stack.callback(amqp.close)
        held = amqp.channel()
        for queue in ("work", "acked", "autos", "nothing", "held"):
            held.queue_declare(queue)
        held.confirm_delivery()
        for _ in range(2):
            held.basic_publish("", "held", b"z")
        held.basic_consume("held", lambda *_: None)
        work(managed.url, amqp)
        before = scrape_at_rest(managed)
        work(managed.url, amqp)
        with Browser(managed.management_url) as admin:
            assert admin.get("/queues/busy/held")
        yield Scrapes(before, scrape_at_rest(managed))


def resolved(expression: str, scrapes: Scrapes) -> str:
    """An expression with the values of the dashboard's variables, which are labels of the identity."""
    (identity,) = [sample.labels for sample in scrapes.now.samples if sample.name == "rabbitmq_identity_info"]
    labels = {"$rabbitmq_cluster": identity["rabbitmq_cluster"], "$endpoint": identity["rabbitmq_endpoint"]}
    for variable, value in {**VARIABLES, **labels, "$namespace": ""}.items():
        expression = expression.replace(variable, value)
    return expression


def value(expression: str, scrapes: Scrapes) -> float:
    ((_, found),) = evaluated(resolved(expression, scrapes), scrapes)
    return found


@pytest.mark.parametrize("expression", [*of_10991(), *expressions("shardmq.json")])
def test_a_dashboards_expression_finds_what_it_reads(scrapes: Scrapes, expression: str) -> None:
    found = evaluated(resolved(expression, scrapes), scrapes)
    assert found
    assert "shardmq_" in expression or not any(math.isnan(each) for _, each in found)


def test_dashboard_10991_shows_what_was_done(scrapes: Scrapes) -> None:
    sums = {name: value(f"sum({joined(f'rabbitmq_{name}')})", scrapes) for name in GAUGES}
    assert sums["queue_messages_ready"] == 6 + 2 + 1  # kept, work of both times, and the topic's
    assert sums["queue_messages_unacked"] == 2
    assert (sums["connections"], sums["queues"], sums["global_consumers"]) == (2, 6 + 1, 1)
    seconds = scrapes.now.at - scrapes.before.at
    counted = {
        name: round(seconds * value(f"sum({joined(f'rate(rabbitmq_global_messages_{name}_total[60s])')})", scrapes))
        for name in (*RATES, "received_confirm")
    }
    assert counted == {
        **dict.fromkeys(RATES, 1),
        "received": 9,
        "received_confirm": 9,
        "routed": 7,
        "confirmed": 9,
        "delivered": 4,
    }
    assert value(f"count({IDENTITY})", scrapes) == 1
    bodies = (3 + 50 + 500 + 7 + 8 + 120) / 9
    assert value(f"{grown('sum')} / {grown('count')}", scrapes) == pytest.approx(bodies)
    small = f'{grown("""bucket{le="100.0"}""")} / {grown("""bucket{le="+Inf"}""")}'
    assert value(small, scrapes) == pytest.approx(8 / 9)
    for name, count in {
        "queues_created": 1,
        "queues_deleted": 1,
        "connections_opened": 1,
        "channels_opened": 2,
        "channels_closed": 2,
    }.items():
        assert round(seconds * value(f"sum({joined(f'rate(rabbitmq_{name}_total[60s])')})", scrapes)) == count
    version = "group_left(rabbitmq_version, erlang_version) rabbitmq_build_info"
    uptime = f"rabbitmq_erlang_uptime_seconds * {ON} {version} * {JOIN} {IDENTITY}"
    labels, _ = evaluated(resolved(uptime, scrapes), scrapes)[0]
    assert {"rabbitmq_version", "erlang_version", "rabbitmq_node", "rabbitmq_cluster"} <= labels.keys()
