"""Shovels over real processes: between queues, exchanges and brokers, through kills, with rights and states."""

import os
import signal
from collections.abc import Iterator

import pika
import pytest
from click.testing import CliRunner

import shardmq
from shardmq import errors
from shardmq.cmd.bench.compare.rabbitmq import Server
from shardmq.cmd.main import cli
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser

from .moving import PATIENCE_SECONDS, fill, put, ready, shovel, taken, until, until_empty


@pytest.fixture(autouse=True)
def _alone(connection: shardmq.Connection) -> Iterator[None]:
    """Leave no shovel behind: the next test looks at all there are, also where this one has failed."""
    yield
    for row in connection.topology("parameters"):
        connection.parameter_delete(row["vhost"], row["component"], row["name"])


def test_messages_move_in_order_with_their_properties_and_the_shovel_ends_with_the_last(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    properties = shardmq.Properties(content_type="text/plain", headers={"n": 1, "deep": {"t": [1, "a"]}}, priority=3)
    channel.queue_declare("orders", durable=True)
    channel.basic_publish("", "orders", b"first", properties)
    before = channel.queue_peek("orders", 0, 1)[0]
    fill(channel, "orders", [b"%d" % number for number in range(300)])
    given = {"headers": {"by": "us"}, "app_id": "shovel"}
    put(
        connection,
        "all",
        "orders",
        "done",
        src_delete_after="queue-length",
        dest_publish_properties=given,
        dest_add_forward_headers=True,
    )
    until(lambda: not shovel(connection, "all"), "it has moved all, and its parameter is deleted")
    found = taken(channel, "done")
    assert [message.body for message in found] == [b"first", *(b"%d" % number for number in range(300))]
    assert ready(connection, "orders") == 0
    first = found[0].properties
    assert (first.content_type, first.priority, first.app_id) == ("text/plain", 3, "shovel")
    assert found[0].message_id == before.message_id
    assert first.headers is not None
    assert {name: first.headers[name] for name in ("n", "deep", "by")} == {**(properties.headers or {}), "by": "us"}
    assert first.headers["x-shovelled"][0]["src-queue"] == "orders"
    assert connection.topology("parameters") == []


def test_the_process_of_the_shovels_comes_with_the_first_and_goes_with_the_last(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "busy", [])
    put(connection, "only", "busy", "idle")
    until(lambda: shovel(connection, "only").get("state") == "running", "it runs")
    pid = here.wait_for("ready", "shovels").pid
    assert pid is not None
    runs = [notice.pid for notice in here.notices if notice.process == "shovels"]
    connection.parameter_delete("/", "shovel", "only")
    until(lambda: not _is_alive(runs[-1]), "its process has ended")


def _is_up(broker: Broker) -> bool:
    try:
        with shardmq.connect(broker.url, recovery=None):
            return True
    except errors.ConnectionLost:
        return False


def _is_alive(pid: int | None) -> bool:
    assert pid is not None
    return os.path.exists(f"/proc/{pid}")


def test_nothing_is_lost_when_the_process_or_the_destination_is_killed(
    here: Broker, there: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    bodies = [b"%d" % number for number in range(30_000)]
    fill(channel, "far", bodies)
    put(connection, "over", "far", "landed", dest_uri=there.url, src_prefetch_count=50)
    until(lambda: ready(connection, "far") < 29_900, "it moves")
    os.kill([notice.pid for notice in here.notices if notice.process == "shovels" and notice.pid][-1] or 0, 9)
    kept = until(lambda: ready(connection, "far"), "what was under way is back")
    until(lambda: ready(connection, "far") < kept - 500, "another process goes on")
    assert ready(connection, "far")
    for name in [name for name in there.pids if name.startswith(("shard", "gateway", "coordinator"))]:
        os.kill(there.pids[name], signal.SIGKILL)
    until_empty(connection, "far")
    until(lambda: _is_up(there), "the other broker is back")
    with shardmq.connect(there.url) as other, other.channel() as remote:
        arrived: set[bytes] = set()
        for batch in remote.consume_batches("landed", auto_ack=True, inactivity_timeout=PATIENCE_SECONDS):
            arrived.update(batch.bodies)
            if len(arrived) >= len(bodies):
                break
    assert arrived == set(bodies)


@pytest.mark.parametrize("scheme", ["amqp", "shardmq"])
def test_a_shovel_brings_back_what_an_exchange_of_another_broker_routes(
    there: Broker, connection: shardmq.Connection, channel: shardmq.Channel, scheme: str
) -> None:
    uri = there.url.replace("shardmq", scheme, 1)
    channel.exchange_declare("news", "topic", durable=True)
    channel.queue_declare(f"read.{scheme}", durable=True)
    channel.queue_bind(f"read.{scheme}", "news", "eu.#")
    exchanges = {"src_queue": None, "src_exchange": "amq.topic", "src_exchange_key": "eu.*"}
    put(connection, scheme, "", "", **exchanges, src_uri=uri, dest_queue=None, dest_exchange="news")
    until(lambda: shovel(connection, scheme).get("state") == "running", "it is bound")
    with shardmq.connect(there.url) as other, other.channel() as remote:
        for key in ("eu.a", "us.a", "eu.b"):
            remote.basic_publish("amq.topic", key, key.encode(), shardmq.Properties(headers={"k": key}))
    until(lambda: ready(connection, f"read.{scheme}") == 2, "two are here")
    found = taken(channel, f"read.{scheme}")
    assert [(message.routing_key, message.body) for message in found] == [("eu.a", b"eu.a"), ("eu.b", b"eu.b")]
    assert [message.properties.headers for message in found] == [{"k": "eu.a"}, {"k": "eu.b"}]
    channel.queue_delete(f"read.{scheme}")


def test_messages_go_to_rabbitmq_and_come_back(
    rabbitmq: Server, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.port}/%2F?heartbeat=10"
    sent = shardmq.Properties(headers={"n": 5, "s": "a"}, correlation_id="c", delivery_mode=2)
    channel.queue_declare("export", durable=True)
    for body in (b"small", b"x" * 300_000):
        channel.basic_publish("", "export", body, sent)
    put(connection, "out", "export", "rabbits", dest_uri=uri, src_delete_after="queue-length")
    until(lambda: not shovel(connection, "out"), "all is there")
    with pika.BlockingConnection(pika.URLParameters(uri)) as rabbit:
        method, properties, body = rabbit.channel().basic_get("rabbits")
        assert (body, properties.headers, properties.correlation_id) == (b"small", sent.headers, "c")
        assert method is not None
    put(connection, "back", "rabbits", "import", src_uri=uri, src_delete_after=2)
    until(lambda: not shovel(connection, "back"), "all is back")
    found = taken(channel, "import")
    assert sorted(len(message.body) for message in found) == [5, 300_000]
    assert {message.properties.correlation_id for message in found} == {"c"}
    assert [message.properties.headers for message in found] == [{"n": 5, "s": "a"}] * 2


def test_what_is_wrong_is_shown_without_passwords_and_tried_again(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "stuck", [b"a"])
    wrong = f"amqp://guest:opensesame@127.0.0.1:{here.port}/"
    put(connection, "wrong", "stuck", "nowhere", dest_uri=wrong, dest_predeclared=True)
    found = until(lambda: shovel(connection, "wrong").get("error") and shovel(connection, "wrong"), "it says why")
    assert "refused" in found["error"]
    assert "opensesame" not in str(found)
    assert found["dest_uri"] == f"amqp://127.0.0.1:{here.port}/"
    put(connection, "wrong", "stuck", "nowhere", dest_uri=f"amqp://127.0.0.1:{here.port}", dest_predeclared=True)
    until(lambda: "no queue 'nowhere'" in shovel(connection, "wrong").get("error", ""), "now the queue is missing")
    assert ready(connection, "stuck") == 1
    channel.queue_declare("nowhere", durable=True)
    until(lambda: ready(connection, "nowhere") == 1, "it has tried again")
    assert "opensesame" not in here.log.read_text()
    with Browser(here.management_url) as browser:
        assert browser.delete("/shovels/vhost/%2F/wrong/restart") == 204
        until(lambda: shovel(connection, "wrong").get("state") == "running", "it runs again")
        assert shovel(connection, "wrong")["moved"] == 0
        assert browser.delete("/shovels/vhost/%2F/wrong") == 204
        assert browser.get("/shovels") == []


def test_parameters_are_rabbitmqs_over_http_and_in_definitions(here: Broker, connection: shardmq.Connection) -> None:
    value = {"src-uri": "amqp://", "src-queue": "in", "dest-uri": ["amqp:///%2F"], "dest-queue": "out"}
    path = "/parameters/shovel/%2F/web"
    with Browser(here.management_url) as browser:
        assert browser.put(path, {"value": value}) == 201
        assert browser.put(path, {"value": {**value, "prefetch-count": 5}}) == 204
        row = {"component": "shovel", "vhost": "/", "name": "web", "value": {**value, "prefetch-count": 5}}
        assert browser.get(path) == row
        assert browser.get("/parameters") == browser.get("/parameters/shovel/%2F") == [row]
        shown = browser.get("/shovels/%2F")[0]
        assert (shown["name"], shown["type"], shown["src_queue"]) == ("web", "dynamic", "in")
        exported = browser.get("/definitions")
        assert exported["parameters"] == [row]
        assert browser.delete(path) == 204
        browser.post("/definitions", {"parameters": [row]})
        assert browser.get("/parameters/shovel") == [row]
        assert browser.delete(path) == 204
    with pytest.raises(errors.InvalidRequest, match="never-ever"):
        connection.parameter_put("/", "shovel", "bad", {**value, "ack-mode": "never-ever"})
    with pytest.raises(errors.InvalidRequest, match="no source"):
        connection.parameter_put("/", "shovel", "bad", {key: each for key, each in value.items() if key != "src-queue"})
    with pytest.raises(errors.InvalidRequest, match="no component 'federation'"):
        connection.parameter_put("/", "federation", "bad", value)


def test_shovels_are_for_policymakers_who_have_the_permissions(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "secret", [b"s"])
    fill(channel, "mine.in", [])
    for name, tags in (("maker", ["policymaker"]), ("viewer", ["monitoring"])):
        connection.user_put(name, "pw-of-them", tags=tags)
        connection.permission_put(name, "/", "^mine", "^(mine|amq.default)", "^mine")
    secret = "amqp://anna:hunter22@127.0.0.1:1/"
    put(connection, "kept", "mine.in", "mine.out", dest_uri=secret, reconnect_delay=60)
    with shardmq.connect(here.url.replace("guest:guest", "maker:pw-of-them")) as maker:
        put(maker, "mine", "mine.in", "mine.out")
        for source, destination, more in (
            ("secret", "mine.out", {}),
            ("mine.in", "others", {}),
            ("mine.in", "", {"dest_queue": None, "dest_exchange": "amq.topic"}),
            ("mine.in", "", {"dest_queue": None}),
            ("mine.in", "others", {"dest_uri": "amqp://127.0.0.1/"}),
        ):
            with pytest.raises(errors.AccessRefused):
                put(maker, "bad", source, destination, **more)
        assert {row["name"] for row in maker.topology("parameters")} == {"kept", "mine"}
    with shardmq.connect(here.url.replace("guest:guest", "viewer:pw-of-them")) as viewer:
        assert viewer.topology("parameters") == []
        shown = viewer.topology("shovels")
        assert {row["name"] for row in shown} == {"kept", "mine"}
        assert "hunter22" not in str(shown)
        assert "anna" not in str(shown)
        with pytest.raises(errors.AccessRefused, match="parameters of the component 'shovel' are refused for user"):
            put(viewer, "bad", "mine.in", "mine.out")
        with pytest.raises(errors.AccessRefused):
            viewer.shovels_report([])
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(here.url.replace("guest:guest", "amq.shovels:guess"))
    for name in ("kept", "mine"):
        connection.parameter_delete("/", "shovel", name)
    assert "hunter22" not in here.log.read_text()


def test_a_shovel_publishes_nothing_that_its_maker_may_not(
    here: Broker, there: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    fill(channel, "own.in", [])
    fill(channel, "own.there", [])
    channel.exchange_declare("own.news", "topic", durable=True)
    for key, queue in (("own.a", "own.allowed"), ("others.a", "own.leaked")):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "own.news", key)
    connection.user_put("keen", "pw-of-keen", tags=["policymaker"])
    connection.permission_put("keen", "/", "^own", "^(own|amq.default)", "^own")
    for exchange in ("own.news", "own.later"):
        connection.topic_permission_put("keen", "/", exchange, "^own[.]", "^own[.]")
    to_news = {"dest_queue": None, "dest_exchange": "own.news", "dest_exchange_key": "own.a"}
    dead = {"x-dead-letter-exchange": "secret", "x-message-ttl": 0}
    with shardmq.connect(here.url.replace("guest:guest", "keen:pw-of-keen")) as keen:
        for more, said in (
            ({**to_news, "dest_exchange_key": "others.a"}, "access to topic 'others.a'"),
            ({**to_news, "dest_exchange_key": None}, "give dest-exchange-key"),
            ({**to_news, "dest_publish_properties": {"headers": {"CC": ["others.a"]}}}, "access to topic 'others.a'"),
            ({**to_news, "publish_properties": {"headers": {"BCC": ["others.a"]}}}, "access to topic 'others.a'"),
            ({**to_news, "dest_exchange": "own.later"}, "declare it before"),
            ({"src_queue": None, "src_exchange": "own.news", "src_exchange_key": "#"}, "access to topic '#'"),
            ({"src_queue": None, "src_exchange": "own.later", "src_exchange_key": "own.a"}, "declare it before"),
            ({"dest_publish_properties": {"user_id": "boss"}}, "takes the tag 'impersonator'"),
            ({"dest_queue": "own.new", "dest_queue_args": dead}, "write access to exchange 'secret'"),
            ({"dest_queue": "own.there", "dest_queue_args": dead}, "write access to exchange 'secret'"),
            ({"src_queue": "own.new", "src_queue_args": dead}, "write access to exchange 'secret'"),
            ({"src_consumer_args": {"x-group": "g", **dead}}, "write access to exchange 'secret'"),
        ):
            with pytest.raises(errors.AccessRefused, match=said):
                put(keen, "bad", "own.in", "own.out", **more)
        assert keen.topology("parameters") == []
        put(keen, "news", "own.in", "", **to_news, dest_publish_properties={"user_id": "keen", "app_id": "a"})
        own = shardmq.Properties(headers={"CC": ["others.a"], "n": 1})
        with keen.channel() as sending:
            sending.basic_publish("", "own.in", b"on", own)
        until(lambda: ready(connection, "own.allowed") == 1, "the message is where its maker may publish")
        (found,) = taken(channel, "own.allowed")
        assert (found.properties.user_id, found.properties.app_id) == ("keen", "a")
        assert (found.properties.headers or {})["n"] == 1
        assert ready(connection, "own.leaked") == 0
        put(keen, "back", "far.in", "own.back", src_uri=there.url)
        with shardmq.connect(there.url) as other, other.channel() as remote:
            fill(remote, "far.in", [])
            remote.basic_publish("", "far.in", b"b", shardmq.Properties(user_id="guest", app_id="kept"))
        until(lambda: ready(connection, "own.back") == 1, "it is here")
        (found,) = taken(channel, "own.back")
        assert (found.properties.user_id, found.properties.app_id) == (None, "kept")


def test_the_terminal_adds_lists_restarts_and_deletes(here: Broker, channel: shardmq.Channel) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, ["shovel", *words, "--url", here.url])
        assert done.exit_code == 0, done.output
        return done.output

    fill(channel, "typed", [b"a", b"b"])
    assert run("add", "tty", "--queue", "typed", "--to-queue", "shown") == "Added shovel 'tty' in virtual host '/'\n"
    until(lambda: run("list", "--columns", "name,state,moved").split()[-3:] == ["tty", "running", "2"], "two moved")
    assert "queue shown" in run("list")
    assert run("restart", "tty") == "Restarted shovel 'tty' in virtual host '/'\n"
    for words, said in (
        (("--to-queue", "shown"), "give --queue or --exchange"),
        (("--queue", "typed"), "give --to-queue or --to-exchange"),
        (("--queue", "typed", "--to-queue", "a", "--to-exchange", "b"), "has one destination"),
        (("--queue", "typed", "--to-queue", "typed"), "for ever"),
        (("--queue", "typed", "--to-queue", "a", "--binding-key", "k"), "goes with --exchange"),
        (("--queue", "typed", "--to-queue", "a", "--routing-key", "k"), "goes with --to-exchange"),
        (("--queue", "typed", "--to-queue", "a", "--delete-after", "soon"), "give never, queue-length or a number"),
    ):
        refused = CliRunner().invoke(cli, ["shovel", "add", "bad", *words, "--url", here.url])
        assert refused.exit_code != 0
        assert said in str(refused.exception if refused.exit_code == 1 else refused.output)
    assert run("delete", "tty") == "Deleted shovel 'tty' in virtual host '/'\n"


@pytest.mark.parametrize("uri", ["amqp://é..b/", "amqps://.b/", "amqp://" + "b" * 64 + "é/", "shardmq://é..b/"])
def test_a_host_that_is_none_ends_no_other_shovel(
    here: Broker, connection: shardmq.Connection, channel: shardmq.Channel, uri: str
) -> None:
    broken, whole, moved = f"broken by {uri}", f"beside {uri}", f"moved beside {uri}"
    fill(channel, broken, [b"a"])
    fill(channel, whole, [])
    put(connection, whole, whole, moved)
    until(lambda: shovel(connection, whole).get("state") == "running", "it runs")
    pid = here.pids["shovels"]
    put(connection, broken, broken, moved, dest_uri=uri)
    until(lambda: shovel(connection, broken).get("error"), "it says why")
    fill(channel, whole, [b"b"])
    until(lambda: ready(connection, moved) == 1, "the other one goes on")
    assert [message.body for message in taken(channel, moved)] == [b"b"]
    assert ready(connection, broken) == 1
    put(connection, broken, broken, moved)
    until(lambda: ready(connection, moved) == 1, "it is mended")
    assert [message.body for message in taken(channel, moved)] == [b"a"]
    assert here.pids["shovels"] == pid
