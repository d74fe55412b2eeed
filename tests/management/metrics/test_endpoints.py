"""What Prometheus scrapes, read by its own client's parser, over a broker and a management process."""

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

import pika
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import shardmq
from shardmq import Properties
from shardmq.cmd.run.broker import Broker
from tests.management.metrics.evaluating import expressions

READ_BY_GRAFANA = [
    "build_info",
    "identity_info",
    "connections",
    "channels",
    "queues",
    "global_publishers",
    "global_consumers",
    "queue_messages_ready",
    "queue_messages_unacked",
    "connections_opened_total",
    "connections_closed_total",
    "channels_opened_total",
    "channels_closed_total",
    "queues_declared_total",
    "queues_created_total",
    "queues_deleted_total",
    "global_messages_received_total",
    "global_messages_received_confirm_total",
    "global_messages_confirmed_total",
    "global_messages_routed_total",
    "global_messages_unroutable_dropped_total",
    "global_messages_unroutable_returned_total",
    "global_messages_delivered_total",
    "global_messages_delivered_consume_auto_ack_total",
    "global_messages_delivered_consume_manual_ack_total",
    "global_messages_delivered_get_auto_ack_total",
    "global_messages_delivered_get_manual_ack_total",
    "global_messages_get_empty_total",
    "global_messages_redelivered_total",
    "global_messages_acknowledged_total",
    "process_open_fds",
    "process_max_fds",
    "process_resident_memory_bytes",
    "resident_memory_limit_bytes",
    "disk_space_available_bytes",
    "disk_space_available_limit_bytes",
    "erlang_uptime_seconds",
    "message_size_bytes_bucket",
]
"""The metrics of Grafana's dashboard 10991, without the prefix."""


def scrape(broker: Broker, path: str, user: str = "guest", password: str = "guest") -> dict[str, Metric]:
    request = urllib.request.Request(broker.management_url.rstrip("/") + path)
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family is there twice"
    return {family.name: family for family in families}


def samples(families: dict[str, Metric]) -> dict[str, float]:
    """Sums by the samples' names."""
    sums: dict[str, float] = {}
    for family in families.values():
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


@pytest.fixture(scope="module")
def busy(managed: Broker) -> Iterator[Broker]:
    """A broker whose clients have published, consumed and read a topic."""
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.queue_declare('odd "name"\\')
        channel.queue_declare("work")
        for _ in range(20):
            channel.basic_publish("", "work", b"x" * 500)
        message = channel.basic_get("work")
        assert message is not None
        message.ack()
        consumed = channel.consume("work", auto_ack=True)
        next(consumed)
        channel.topic_declare("events", 2)
        channel.basic_publish("events", "key", b"x")
        channel.group_commit("events", "readers", {0: 0, 1: 0})
        yield managed
        consumed.close()


def test_the_metrics_that_grafanas_dashboard_reads_are_there(busy: Broker) -> None:
    found = samples(scrape(busy, "/metrics"))
    assert {name for name in READ_BY_GRAFANA if f"rabbitmq_{name}" not in found} == set()
    assert found["rabbitmq_identity_info"] == 1
    assert found["rabbitmq_global_messages_received_total"] == 21
    assert found["rabbitmq_global_messages_confirmed_total"] == 21
    assert found["rabbitmq_global_messages_delivered_get_manual_ack_total"] == 1
    assert found["rabbitmq_global_messages_acknowledged_total"] == 1
    assert found["rabbitmq_message_size_bytes_count"] == 21
    assert found["rabbitmq_message_size_bytes_sum"] == 20 * 500 + 1


def test_sizes_have_rabbitmqs_buckets(busy: Broker) -> None:
    buckets = scrape(busy, "/metrics")["rabbitmq_message_size_bytes"].samples
    bounds = [sample.labels["le"] for sample in buckets if sample.name.endswith("_bucket")]
    assert bounds == ["100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf"]


def test_the_processes_tell_what_they_measure(busy: Broker) -> None:
    found = scrape(busy, "/metrics")
    for name in ("confirm", "delivery", "pass", "commit", "flush"):
        assert samples({name: found[f"shardmq_{name}_seconds"]})[f"shardmq_{name}_seconds_count"] > 0
    assert {sample.labels["process"] for sample in found["shardmq_segments"].samples} == {"shard-0", "shard-1"}
    lags = {sample.labels["group"]: sample.value for sample in found["shardmq_group_lag_messages"].samples}
    assert lags == {"readers": 1}


def test_each_object_has_metrics_of_its_own(busy: Broker) -> None:
    found = scrape(busy, "/metrics/per-object")
    ready = {sample.labels["queue"]: sample.value for sample in found["rabbitmq_queue_messages_ready"].samples}
    assert ready['odd "name"\\'] == 0
    published = {sample.labels["queue"]: sample.value for sample in found["rabbitmq_queue_messages_published"].samples}
    assert published["work"] == 20
    assert {sample.labels["rabbitmq_endpoint"] for sample in found["rabbitmq_identity_info"].samples} == {"per-object"}


def test_details_are_those_that_were_asked_for(busy: Broker) -> None:
    found = scrape(busy, "/metrics/detailed?family=queue_consumer_count&family=exchange_metrics&vhost=%2F")
    assert set(found) == {
        "rabbitmq_detailed_queue_consumers",
        "rabbitmq_detailed_exchange_messages_published",
        "rabbitmq_detailed_exchange_messages_published_out",
    }
    assert scrape(busy, "/metrics/detailed") == {}
    with pytest.raises(HTTPError, match="400"):
        scrape(busy, "/metrics/detailed?family=nonsense")
    with pytest.raises(HTTPError, match="404"):
        scrape(busy, "/metrics/detailed?family=queue_metrics&vhost=nowhere")


def test_virtual_hosts_topics_and_groups_have_details(busy: Broker) -> None:
    found = samples(scrape(busy, "/metrics/detailed?family=vhost_metrics&family=topic_metrics&family=group_metrics"))
    assert found["rabbitmq_detailed_vhost_messages_published_total"] == 21
    assert found["rabbitmq_detailed_topic_partitions"] == 2
    assert found["rabbitmq_detailed_group_lag_messages"] == 1


def test_users_and_exchanges_have_details(busy: Broker) -> None:
    with shardmq.connect(busy.url) as connection:
        channel = connection.channel()
        channel.exchange_declare("bound", "topic")
        channel.queue_bind("work", "bound", "a")
        channel.queue_bind("work", "bound", "b")
        channel.exchange_declare("hidden", "topic", internal=True)
    families = "family=user_metrics&family=exchange_bindings&family=exchange_names&family=vhost_status"
    found = scrape(busy, f"/metrics/detailed?{families}&vhost=%2F")
    users = {sample.labels["user"]: sample.value for sample in found["rabbitmq_detailed_user_connections"].samples}
    assert users["guest"] >= 1
    bindings = {
        sample.labels["exchange"]: (sample.labels["type"], sample.value)
        for sample in found["rabbitmq_cluster_exchange_bindings"].samples
    }
    assert bindings["bound"] == ("topic", 2)
    assert {sample.value for sample in found["rabbitmq_cluster_exchange_name"].samples} == {1}
    names = {sample.labels["exchange"] for sample in found["rabbitmq_cluster_exchange_name"].samples}
    assert names == bindings.keys() >= {"amq.direct", "bound"}
    assert {"", "amq.default", "hidden"}.isdisjoint(names)
    (status,) = found["rabbitmq_cluster_vhost_status"].samples
    assert (status.labels, status.value) == ({"vhost": "/"}, 1)


def test_metrics_are_for_monitors(busy: Broker) -> None:
    with shardmq.connect(busy.url) as connection:
        for user, tag in (("manager", "management"), ("monitor", "monitoring")):
            connection.user_put(user, "secret", tags=[tag])
    assert scrape(busy, "/metrics", "monitor", "secret")
    with pytest.raises(HTTPError, match="401"):
        scrape(busy, "/metrics", "manager", "secret")
    with pytest.raises(HTTPError, match="401"):
        scrape(busy, "/metrics", "guest", "wrong")


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_need_no_login(busy: Broker, path: str) -> None:
    with urllib.request.urlopen(busy.management_url.rstrip("/") + path, timeout=30) as answer:
        assert json.load(answer) == {"status": "ok"}


def test_every_metric_of_our_dashboard_is_there(busy: Broker) -> None:
    found = samples(scrape(busy, "/metrics"))
    read = {
        name
        for expression in expressions("shardmq.json")
        for name in re.findall(r"\b(?:rabbitmq|shardmq)_\w+", expression)
    }
    assert len(read) > 20
    assert {name for name in read if name not in found} == set()


def test_counters_go_on_when_who_was_counted_is_gone(busy: Broker) -> None:
    counters = [f"rabbitmq_global_messages_{what}_total" for what in ("received", "confirmed", "acknowledged")]
    before = samples(scrape(busy, "/metrics"))
    with shardmq.connect(busy.url) as connection, connection.channel() as channel:
        channel.queue_declare("passing")
        channel.basic_publish("", "passing", b"x")
        message = channel.basic_get("passing")
        assert message is not None
        message.ack()
        channel.queue_delete("passing")
    after = samples(scrape(busy, "/metrics"))
    assert [after[name] - before[name] for name in counters] == [1, 1, 1]
    assert after["rabbitmq_connections"] == before["rabbitmq_connections"]


def test_sizes_are_those_of_bodies_whoever_publishes_them_and_whether_a_queue_takes_them(busy: Broker) -> None:
    before = bodies(busy)
    properties = Properties(headers={"long": "x" * 2000})
    address = pika.ConnectionParameters(busy.host, busy.port)
    with shardmq.connect(busy.url) as connection, pika.BlockingConnection(address) as amqp:
        channel, other = connection.channel(), amqp.channel()
        channel.queue_declare("sized")
        channel.basic_publish("", "sized", b"x" * 100, properties)
        with channel.publisher() as publisher:
            for size in (0, 100, 101, 1000, 1001):  # neighbours
                publisher.publish("", "nobody", b"x" * size)
            for _ in range(60):
                publisher.publish("", "sized", b"x" * 10_000)
        other.confirm_delivery()
        other.basic_publish("", "sized", b"x" * 20, pika.BasicProperties(headers={"long": "x" * 2000}))
        other.basic_publish("", "nobody", b"x" * 2000)
        channel.queue_delete("sized")
    counts, total = bodies(busy)
    assert [new - old for new, old in zip(counts, before[0], strict=True)] == [4, 6, 68, 68, 68, 68, 68, 68, 68]
    assert total - before[1] == 100 + 0 + 100 + 101 + 1000 + 1001 + 60 * 10_000 + 20 + 2000


def bodies(busy: Broker) -> tuple[list[float], float]:
    """How many bodies are not above each bound, and how many bytes all have together."""
    found = scrape(busy, "/metrics")["rabbitmq_message_size_bytes"].samples
    counts = [sample.value for sample in found if sample.name.endswith("_bucket")]
    (total,) = [sample.value for sample in found if sample.name.endswith("_sum")]
    return counts, total
