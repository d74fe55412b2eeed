"""The firehose: copies of what two gateways' clients publish and get, field by field as RabbitMQ makes them."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

TRACE = "amq.rabbitmq.trace"
RECORDED = json.loads((Path(__file__).parent.parent / "data" / "rabbitmq-3.10-firehose.json").read_text())
"""What RabbitMQ 3.10.8 copies in the steps of `Steps`, without node, connection and times."""

FULL = pika.BasicProperties(
    delivery_mode=2,
    priority=3,
    content_type="text/plain",
    headers={"a": 1, "b": "x", "c": [1, "y"], "CC": ["q2"], "BCC": ["t2"], "t": True, "n": None},
    correlation_id="c",
    reply_to="r",
    expiration="100000",
    message_id="m",
    timestamp=1700000000,
    type="ty",
    user_id="guest",
    app_id="app",
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two gateways."""
    broker = Broker(tmp_path_factory.mktemp("pair") / "data", shards=2, gateways=2)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


@pytest.fixture
def vhost(pair: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host for one test, which is traced."""
    name = request.node.name
    with shardmq.connect(pair.url) as admin:
        admin.vhost_put(name)
        admin.permission_put("guest", name, ".*", ".*", ".*")
        admin.tracing_put(name)
        yield name
        admin.vhost_delete(name)


def opened(pair: Broker, vhost: str) -> shardmq.Connection:
    return shardmq.connect(pair.url.rstrip("/") + "/" + vhost)


def following(channel: shardmq.Channel, key: str = "#", **arguments: Any) -> str:
    queue = channel.queue_declare("", exclusive=True, arguments=arguments or None).queue
    channel.queue_bind(queue, TRACE, key)
    return queue


def copies(channel: shardmq.Channel, queue: str, count: int) -> list[tuple[str, dict[str, Any], bytes]]:
    """The next copies: key, headers, body."""
    found = []
    for message in channel.consume(queue, auto_ack=True):
        assert message.properties.headers is not None
        found.append((message.routing_key, message.properties.headers, message.body))
        if len(found) == count:
            break
    return found


def timeless(value: Any) -> Any:
    """A value without the times of deaths, and without the last death, which RabbitMQ tells since 3.13."""
    if isinstance(value, dict):
        return {
            name: timeless(inner)
            for name, inner in value.items()
            if name != "time" and not name.startswith("x-last-death")
        }
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


class Steps:
    """What was done with RabbitMQ to record its copies, and the copies that it makes here."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.copied: list[dict[str, Any]] = []
        for queue in ("t", "q", "q2", "t2"):
            channel.queue_declare(queue)
        channel.queue_bind("t", TRACE, "#")
        for queue, key in (("q", "k"), ("q2", "k2"), ("q", "k3")):
            channel.queue_bind(queue, "amq.direct", key)
        channel.queue_declare("d", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})

    def publish(self, exchange: str, key: str, body: bytes, properties: pika.BasicProperties | None = None) -> None:
        self.channel.basic_publish(exchange, key, body, properties)

    def get(self, queue: str, auto_ack: bool = True) -> int:
        while True:
            method, _, _ = self.channel.basic_get(queue, auto_ack)
            if method is not None:
                return int(method.delivery_tag)

    def note(self, step: str) -> None:
        """Take the copies of a step, as many as RabbitMQ made."""
        for _ in [row for row in RECORDED if row["step"] == step]:
            while (got := self.channel.basic_get("t", auto_ack=True))[0] is None:
                pass
            method, properties, body = got
            own = {name: value for name, value in vars(properties).items() if value is not None}
            headers = own.pop("headers")
            assert own == {}
            assert (headers.pop("node")[:8], "." in headers.pop("connection")) == ("gateway-", True)
            row = {"step": step, "key": method.routing_key, "headers": timeless(headers), "body": body.decode()}
            self.copied.append(row)

    def run(self, transactional: BlockingChannel) -> None:
        self.publish("amq.direct", "k", b"one")
        self.note("plain")
        self.get("q")
        self.note("get")
        self.publish("", "q", b"two", FULL)
        self.note("full")
        tag = self.get("q", auto_ack=False)
        self.note("get unacked")
        self.channel.basic_reject(tag, requeue=True)
        tag = self.get("q", auto_ack=False)
        self.note("get again")
        self.channel.basic_ack(tag)
        self.publish("amq.fanout", "nowhere", b"none")
        self.note("unroutable")
        self.publish("", "missing", b"mand")
        self.note("unroutable default")
        self.publish("amq.direct", "k", b"cc", pika.BasicProperties(headers={"CC": ["k2"], "BCC": ["k3"]}))
        self.note("cc")
        self.channel.basic_consume("q2", lambda *_: None)
        self.note("consumed q2")
        transactional.tx_select()
        transactional.basic_publish("", "q", b"tx")
        self.note("tx before commit")
        transactional.tx_rollback()
        self.publish("", "d", b"dead")
        self.channel.basic_reject(self.get("d", auto_ack=False), requeue=False)
        self.note("dead")
        self.get("q")
        self.get("q")
        self.note("get dead")


def test_copies_are_field_by_field_those_of_rabbitmq(pair: Broker, vhost: str) -> None:
    parameters = pika.ConnectionParameters(pair.host, pair.port, vhost)
    connection = pika.BlockingConnection(parameters)
    steps = Steps(connection.channel())
    steps.run(connection.channel())
    for ours, theirs in zip(steps.copied, RECORDED, strict=True):
        theirs["headers"]["vhost"] = vhost
        if theirs["step"] == "unroutable default":
            theirs["headers"]["routed_queues"] = []  # RabbitMQ names a queue there that it does not have
        assert ours == theirs
    assert steps.channel.basic_get("t")[0] is None
    connection.close()


def test_answers_to_a_direct_reply_are_copied_as_publishes_alone(pair: Broker, vhost: str) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters(pair.host, pair.port, vhost))
    channel = connection.channel()
    answers: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *found: answers.append(found[3]), auto_ack=True)
    channel.queue_declare("asked")
    with opened(pair, vhost) as follower:
        heard = follower.channel()
        queue = following(heard)
        channel.basic_publish("", "asked", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        while (got := channel.basic_get("asked", auto_ack=True))[0] is None:
            pass
        channel.basic_publish("", got[1].reply_to, b"!")
        while not answers:
            connection.process_data_events(1)
        channel.basic_publish("", "", b"last")
        found = [(key, headers.get("routed_queues"), body) for key, headers, body in copies(heard, queue, 4)]
    connection.close()
    assert found == [
        ("publish.", ["asked"], b"?"),
        ("deliver.asked", None, b"?"),
        ("publish.", [], b"!"),
        ("publish.", [], b"last"),
    ]


def test_native_publishes_and_deliveries_of_all_kinds_are_copied(pair: Broker, vhost: str) -> None:
    with opened(pair, vhost) as follower, opened(pair, vhost) as working:
        heard, channel = follower.channel(), working.channel()
        queue = following(heard)
        channel.queue_declare("work", durable=True)
        channel.topic_declare("log", 2)
        channel.basic_publish("", "work", b"1", shardmq.Properties(content_type="x", headers={"h": 1}))
        with channel.publisher() as publisher:
            publisher.publish_many("", "work", [b"2", b"3"])
            publisher.publish_keyed("log", [("a", b"4"), ("b", b"5")])
        for message in channel.consume("work", 1):
            message.ack()
            if message.body == b"3":
                break
        members = channel.consume("log", auto_ack=False, arguments={"x-group": "g", "x-stream-offset": "first"})
        logged = {next(members).body for _ in range(2)}
        found = copies(heard, queue, 10)
    assert logged == {b"4", b"5"}
    assert Counter(key.partition(".")[0] for key, _, _ in found) == {"publish": 5, "deliver": 5}
    first = next(headers for key, headers, body in found if body == b"1" and key == "publish.")
    assert first["properties"] == {"content_type": "x", "headers": {"h": 1}, "delivery_mode": 2}
    assert (first["routed_queues"], first["routing_keys"], first["user"]) == (["work"], ["work"], "guest")
    partitions = {(headers["routing_keys"][0], body) for key, headers, body in found if key == "publish.log"}
    assert partitions == {("a", b"4"), ("b", b"5")}


def test_a_sample_has_about_as_many_copies_as_it_is_to_and_nothing_is_copied_once_it_is_off(
    pair: Broker, vhost: str
) -> None:
    with opened(pair, vhost) as connection:
        channel = connection.channel()
        channel.queue_declare("many")
        queue = following(channel)

        def copied(sample: float) -> int:
            connection.tracing_put(vhost, sample)
            (row,) = [row for row in connection.topology("vhosts") if row["name"] == vhost]
            assert (row["tracing"], row["trace_sample"]) == (sample > 0, sample)
            with channel.publisher() as publisher:
                publisher.publish_many("", "many", [b"x"] * 5000)
            return channel.queue_purge(queue)

        assert 300 < copied(0.1) < 700
        assert copied(0) == 0
        with pytest.raises(errors.InvalidRequest, match=r"0 \(none\) to 1 \(all\)"):
            connection.tracing_put(vhost, 1.5)


def test_copies_that_a_queue_refuses_are_no_matter_to_publishers(pair: Broker, vhost: str) -> None:
    with opened(pair, vhost) as connection:
        channel = connection.channel()
        queue = following(channel, "publish.#", **{"x-max-length": 3, "x-overflow": "reject-publish"})
        channel.queue_declare("taken")
        for number in range(10):
            channel.basic_publish("", "taken", b"%d" % number)
        assert channel.queue_purge("taken") == 10
        assert channel.queue_purge(queue) == 3


def test_changing_tracing_takes_an_administrator(pair: Broker, vhost: str) -> None:
    with shardmq.connect(pair.url) as admin:
        admin.user_put("plain", "plain's")
        admin.permission_put("plain", vhost, ".*", ".*", ".*")
        with opened(pair, vhost) as known, pytest.raises(errors.NotFound):
            known.tracing_put("nowhere")
        url = pair.url.replace("guest:guest", "plain:plain's").rstrip("/") + "/" + vhost
        with shardmq.connect(url) as plain, pytest.raises(errors.AccessRefused, match="administrator"):
            plain.tracing_put(vhost, 0)
        admin.user_delete("plain")
