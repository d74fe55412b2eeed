"""Texts, numbers and tables that nobody thinks of: they are refused or mean nothing, and every process goes on."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.protocol.amqp.encoder import content_frames, method_frame
from shardmq.protocol.amqp.methods.basic import BasicPublish as AmqpPublish
from shardmq.protocol.amqp.methods.connection import ConnectionClose as AmqpClose
from shardmq.protocol.amqp.tables import encode_table
from shardmq.protocol.native.operations.administration import DefinitionsImport, PermissionPut, TracingPut
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.connection import ConnectionClose
from shardmq.protocol.native.operations.connection import Refused as NotDone
from shardmq.protocol.native.operations.reads import DeathsSearch, MessagesSearch
from shardmq.protocol.native.operations.statistics import FindingsTell, StatsList
from shardmq.protocol.native.operations.topology import (
    ParameterPut,
    PolicyPreview,
    PolicyPut,
    QueueBind,
    QueueDeclare,
    ShovelReport,
    TopicPermissionPut,
    TopologyList,
)
from shardmq.search.filters import SearchFilters
from shardmq.topology.entities import EVENT_EXCHANGE
from shardmq.topology.parameters.shovel import RUNNER
from tests.gateway.amqp.rawclient import RawClient as AmqpClient
from tests.gateway.rawclient import Denied, RawClient
from tests.management.browser import Browser, Refused

from .saboteur import until

DEEP = 360
"""About as many tables inside one another as a gateway can just read."""

NO_EXPRESSIONS = ("(?au)x", "(?V0V1)", "(", "(?:" * 700 + ")" * 700)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", shards=2, management=True) as broker:
        yield broker


@pytest.fixture(autouse=True)
def others(broker: Broker) -> Iterator[None]:
    """Somebody who is connected all the time, and served in the end by the same processes as before."""
    pids = dict(broker.pids)
    with shardmq.connect(broker.url, timeout=60, recovery=None) as connection, connection.channel() as channel:
        channel.queue_declare("others", durable=True)
        yield
        channel.basic_publish("", "others", b"x")
        message = channel.basic_get("others", auto_ack=True)
        assert message is not None
        assert message.body == b"x"
        assert len(connection.status()["processes"]) == 4, "coordinator, gateway and shards answer"
    assert broker.pids == pids


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker).open() as client:
        yield client


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def refused(ask: Callable[..., Any], *given: Any, **named: Any) -> str:
    with pytest.raises(Denied) as denied:
        ask(*given, **named)
    return denied.value.text


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0" + RUNNER.encode() + b"\0\xff"),
        ("PLAIN", b"\0\xff\xfe\0\xff"),
        ("AMQPLAIN", encode_table({"LOGIN": RUNNER, "PASSWORD": b"\xff"})[4:]),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x02\xff\xfe\x08PASSWORDS\0\0\0\x01\xff"),
    ],
)
def test_a_stranger_with_bytes_that_are_no_text_is_refused(broker: Broker, mechanism: str, response: bytes) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("events", durable=True)
        channel.queue_bind("events", EVENT_EXCHANGE, "user.authentication.failure")
        channel.queue_purge("events")
        with AmqpClient(broker.port, is_open=False) as stranger:
            stranger.greet()
            stranger.login(response, mechanism)
            said = stranger.expect(AmqpClose)
        assert said.reply_code == 403
        until(lambda: channel.queue_declare("events", passive=True).messages, "it is told")
        channel.queue_delete("events")


def test_no_routing_key_is_longer_than_amqp_has_them(broker: Broker, client: RawClient) -> None:
    long, many_bytes = "k" * 256, "é" * 128
    client.ask(QueueDeclare, "copies")
    client.ask(QueueBind, "copies", "amq.fanout", "")
    for key in (long, many_bytes):
        dead = {"x-dead-letter-exchange": "amq.fanout", "x-dead-letter-routing-key": key}
        assert "255 bytes" in refused(client.ask, QueueDeclare, "dying", False, {**dead, "x-message-ttl": 1})
        policy = {"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": key}
        assert "dead letter routing key" in refused(client.ask, PolicyPut, "/", "long", ".*", policy)
    client.send(BasicPublish(100, 1, "amq.fanout", many_bytes, 0, 1, pack(None, b"x")))
    said = client.receive()
    assert isinstance(said, BasicRefused)
    assert "255 bytes" in said.text
    client.send(BasicPublish(101, 1, "amq.fanout", "é" * 127, 0, 1, pack(None, b"x")))
    assert isinstance(client.receive(), BasicConfirm)
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        message = channel.basic_get("copies", auto_ack=True)
        assert message is not None
        assert message.routing_key == "é" * 127
        channel.queue_delete("copies")


@pytest.mark.parametrize("expression", NO_EXPRESSIONS)
def test_what_is_no_regular_expression_is_refused_wherever_there_may_be_one(
    broker: Broker, client: RawClient, expression: str
) -> None:
    client.ask(QueueDeclare, "searched", True)
    limit = {"max-length": 1}
    name = expression[:255]
    for asked in (
        (MessagesSearch, "searched", 0, 0, 10, SearchFilters(regex=expression[:1024])),
        (PolicyPut, "/", "p", expression, limit),
        (PolicyPreview, "/", "p", expression, limit),
        (PermissionPut, "guest", "/", expression, "", ""),
        (TopicPermissionPut, "guest", "/", "amq.topic", expression, ""),
    ):
        assert "regular expression" in refused(client.ask, *asked), asked[0]
    for noun in ("queues", "exchanges", "users", "vhosts", "connections", "channels", "consumers"):
        assert "regular expression" in refused(client.ask, StatsList, noun, None, name, True, page=1)
    made = {"permissions": [{"user": "guest", "vhost": "/", "configure": expression, "write": "", "read": ""}]}
    assert "regular expression" in refused(client.ask, DefinitionsImport, made)
    with Browser(broker.management_url) as browser:
        for path in (
            f"/queues?page=1&use_regex=true&name={quote(name)}",
            f"/queues?use_regex=true&name={quote(name)}",
            f"/shardmq/queues/%2F/searched/messages?regex={quote(name)}",
        ):
            with pytest.raises(Refused) as answer:
                browser.get(path)
            assert answer.value.status == 400
        with pytest.raises(Refused) as answer:
            browser.ask("PUT", "/policies/%2F/p", {"pattern": expression, "definition": limit})
        assert answer.value.status == 400


@pytest.mark.parametrize("value", ["[" * 1020, '{"a":' * 200, "9" * 1020, "1e999", '"\\ud800"', "[" * 500 + "]" * 500])
def test_a_condition_with_a_value_of_any_kind_is_one(client: RawClient, value: str) -> None:
    client.ask(QueueDeclare, "searched", True)
    client.send(BasicPublish(50, 1, "", "searched", 0, 1, pack(None, value.encode())))
    assert isinstance(client.receive(), BasicConfirm)
    for sign in ("=", "!=", "<"):
        filters = SearchFilters(json=(f"${sign}{value}"[:1024],))
        assert client.ask(MessagesSearch, "searched", 0, 0, 10, filters)["next"] is None


def test_forged_times_of_death_are_no_times(broker: Broker, client: RawClient) -> None:
    times: list[Any] = [2**63 - 1, 2**64 - 1, -(2**63), -1, True, "x", float("inf"), None, [], {"a": 1}, 5]
    client.ask(QueueDeclare, "grave", True)
    for request, time in enumerate(times, 100):
        deaths = [{"queue": f"q{request}", "reason": "x", "time": time}]
        record = pack(shardmq.Properties(headers={"x-death": deaths}), b"")
        client.send(BasicPublish(request, 1, "", "grave", 0, 1, record))
        assert isinstance(client.receive(), BasicConfirm)
    with AmqpClient(broker.port) as amqp:  # its times are seconds up to 2**64 - 1
        row = b"\x05queueS\0\0\0\x03old\x06reasonS\0\0\0\x01x\x04timeT" + b"\xff" * 8
        death = b"F" + len(row).to_bytes(4, "big") + row
        table = b"\x07x-deathA" + len(death).to_bytes(4, "big") + death
        properties = b"\x20\x00" + len(table).to_bytes(4, "big") + table
        frames = content_frames(1, properties, b"x", amqp.frame_max)
        amqp.socket.sendall(method_frame(1, AmqpPublish(0, "", "grave")) + frames)
        amqp.hang_up()
    groups = client.ask(DeathsSearch, "grave", 0, 100, SearchFilters())["groups"]
    assert {queue: first for queue, _, first, *_ in groups} == {
        **{f"q{request}": None for request in range(100, 100 + len(times))},
        f"q{99 + len(times)}": 5000,
        "old": None,
    }


@pytest.mark.parametrize("depth", range(DEEP - 60, DEEP + 10, 10))
def test_tables_that_nest_as_deep_as_can_be_read_are_refused(broker: Broker, depth: int) -> None:
    deep = nested(depth)
    for kind, *fields in (
        (PolicyPut, "/", "p", ".*", {"max-length": deep}),
        (PolicyPreview, "/", "p", ".*", {"max-length": deep}),
        (ParameterPut, "/", "shovel", "s", {"src-uri": deep}),
        (FindingsTell, [(True, {"a": deep})]),
        (ShovelReport, [{"vhost": deep}]),
        (DefinitionsImport, {"queues": [{"name": "q", "arguments": deep}]}),
        (DefinitionsImport, {"parameters": [{"component": "shovel", "name": "s", "value": [[deep, 1]]}]}),
        (QueueDeclare, "deep", False, {"a": deep}),
    ):
        with RawClient(broker).open() as client:
            client.send(kind(9, 1, *fields))
            said = client.receive()
        if isinstance(said, ConnectionClose):  # it cannot even be read
            assert (said.code, "recursion" in said.text) == (502, True), said
        else:
            assert isinstance(said, NotDone), said
            assert "nest deeper" in said.text


@pytest.mark.parametrize(
    "row", [{}, {"vhost": [], "name": {}}, {"vhost": "/", "name": "s", "generation": "x", "progress": 5}]
)
def test_states_of_shovels_that_are_none_are_refused(client: RawClient, row: dict[str, Any]) -> None:
    assert "states of shovels" in refused(client.ask, ShovelReport, [row])
    assert client.ask(TopologyList, "shovels") == []


def test_the_smallest_part_of_messages_there_is_can_be_traced(client: RawClient) -> None:
    client.ask(QueueDeclare, "traced")
    client.ask(QueueBind, "traced", "amq.rabbitmq.trace", "#")
    client.ask(TracingPut, "/", 5e-324)
    client.send(BasicPublish(100, 1, "", "others", 0, 1, pack(None, b"x")))
    assert isinstance(client.receive(), BasicConfirm)
    client.ask(TracingPut, "/", 0.0)
    with pytest.raises(Denied):
        client.ask(TracingPut, "/", float("nan"))
