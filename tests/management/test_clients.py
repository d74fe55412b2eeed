"""Clients that others wrote for RabbitMQ's HTTP API, unchanged."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser
from tests.management.conftest import peer


def rabbitmqadmin(managed: Broker, *words: str, user: str = "guest") -> str:
    script = peer("management/usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin")
    port = str(urlsplit(managed.management_url).port)
    command = [sys.executable, str(script), "-P", port, "-u", user, "-p", user, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env={"HOME": "/nowhere"})
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


def listed(managed: Broker, *words: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(rabbitmqadmin(managed, "-f", "raw_json", "list", *words))
    return rows


def test_rabbitmqadmin_declares_publishes_gets_and_deletes(managed: Broker) -> None:
    for words in (
        ("vhost", "name=v1"),
        ("user", "name=u1", "password=u1", "tags=management"),
        ("permission", "vhost=v1", "user=u1", "configure=.*", "write=.*", "read=.*"),
        ("permission", "vhost=v1", "user=guest", "configure=.*", "write=.*", "read=.*"),
    ):
        assert "declared" in rabbitmqadmin(managed, "declare", *words)
    there = ("-V", "v1")
    arguments = 'arguments={"x-max-length": 10}'
    assert "queue declared" in rabbitmqadmin(managed, *there, "declare", "queue", "name=q1", "durable=true", arguments)
    assert "exchange declared" in rabbitmqadmin(managed, *there, "declare", "exchange", "name=x1", "type=topic")
    bind = ("binding", "source=x1", "destination=q1", "routing_key=a.#")
    assert "binding declared" in rabbitmqadmin(managed, *there, "declare", *bind)
    said = rabbitmqadmin(managed, *there, "publish", "exchange=x1", "routing_key=a.b", "payload=hello")
    assert said == "Message published\n"
    assert "NOT routed" in rabbitmqadmin(managed, *there, "publish", "exchange=x1", "routing_key=z", "payload=hello")
    (got,) = json.loads(rabbitmqadmin(managed, *there, "-f", "raw_json", "get", "queue=q1", "count=5"))
    assert (got["payload"], got["routing_key"], got["message_count"]) == ("hello", "a.b", 0)
    (queue,) = [row for row in listed(managed, "queues", "name", "messages", "vhost") if row["vhost"] == "v1"]
    assert queue == {"name": "q1", "messages": 1, "vhost": "v1"}
    assert "q1" in rabbitmqadmin(managed, "-f", "tsv", "list", "bindings")
    assert "purged" in rabbitmqadmin(managed, *there, "purge", "queue", "name=q1")
    (binding,) = [row for row in listed(managed, "bindings") if row["source"] == "x1"]
    unbind = ("source=x1", "destination=q1", "destination_type=queue", f"properties_key={binding['properties_key']}")
    assert "binding deleted" in rabbitmqadmin(managed, *there, "delete", "binding", *unbind)
    for noun, name in (("queue", "q1"), ("exchange", "x1")):
        assert f"{noun} deleted" in rabbitmqadmin(managed, *there, "delete", noun, f"name={name}")
    rabbitmqadmin(managed, "delete", "permission", "vhost=v1", "user=u1")
    rabbitmqadmin(managed, "delete", "user", "name=u1")
    rabbitmqadmin(managed, "delete", "vhost", "name=v1")


def test_rabbitmqadmin_lists_all_it_knows_and_shows_the_overview(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.queue_declare("listed")
        channel.basic_consume("listed", print)
        for noun in (
            "bindings",
            "channels",
            "connections",
            "consumers",
            "exchanges",
            "nodes",
            "permissions",
            "queues",
            "users",
            "vhosts",
            "parameters",
            "vhost_limits",
        ):
            rows = listed(managed, noun)
            assert rows or noun in ("parameters", "vhost_limits")
            rabbitmqadmin(managed, "list", noun)
    assert "shardmq@" in rabbitmqadmin(managed, "show", "overview")


def test_rabbitmqadmin_exports_and_imports(managed: Broker, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    with shardmq.connect(managed.url) as connection:
        connection.channel().queue_declare("kept", durable=True)
        rabbitmqadmin(managed, "export", str(file))
        connection.channel().queue_delete("kept")
        assert "kept" in file.read_text()
        assert "Uploaded" in rabbitmqadmin(managed, "import", str(file))
        assert connection.channel().queue_declare("kept", passive=True).queue == "kept"


def test_rabbitmqadmin_is_told_why_not(managed: Broker) -> None:
    with pytest.raises(AssertionError, match="Access refused"):
        rabbitmqadmin(managed, "list", "queues", user="nobody")
    with pytest.raises(AssertionError, match="Not found"):
        rabbitmqadmin(managed, "publish", "exchange=none", "routing_key=z", "payload=x")


def python(managed: Broker, program: str) -> str:
    """What a program prints that uses the HTTP API's clients in Python."""
    folder = peer("managers/amqpstorm").parent
    parts = urlsplit(managed.management_url)
    done = subprocess.run(
        [sys.executable, "-c", program, str(parts.port), managed.management_url],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


AMQPSTORM = """
import sys
from amqpstorm.management import ManagementApi
from amqpstorm.management.exception import ApiError
api = ManagementApi(sys.argv[2].rstrip("/"), "guest", "guest")
assert api.aliveness_test("/") == {"status": "ok"}
assert api.healthchecks.get()["status"] == "ok"
assert api.overview()["product_name"] == "shardmq"
assert api.whoami()["name"] == "guest" and api.nodes()[0]["running"]
api.virtual_host.create("s1"); api.user.set_permission("guest", "s1")
api.queue.declare("q", virtual_host="s1", durable=True)
for number in range(120):
    api.queue.declare(f"many-{number}", virtual_host="s1")
assert len(api.queue.list(virtual_host="s1", page_size=50)) == 121
assert [each["name"] for each in api.queue.list(name="^many-11$", use_regex=True, virtual_host="s1")] == ["many-11"]
api.exchange.declare("x", "topic", virtual_host="s1"); api.exchange.bind("amq.topic", "x", "#", virtual_host="s1")
api.queue.bind("q", "x", "a.*", virtual_host="s1")
assert "x" in [each["source"] for each in api.queue.bindings("q", virtual_host="s1")]
assert api.basic.publish("body", "a.b", "x", virtual_host="s1", properties={"content_type": "t"}) == {"routed": True}
(message,) = api.basic.get("q", virtual_host="s1", requeue=True)
assert message.body == "body" and message.properties["content_type"] == "t"
api.queue.purge("q", virtual_host="s1"); api.queue.unbind("q", "x", "a.*", virtual_host="s1", properties_key="a.*")
api.exchange.unbind("amq.topic", "x", "#", virtual_host="s1", properties_key="%23")
api.user.create("sam", "secret", tags="monitoring"); assert api.user.get("sam")["tags"] == ["monitoring"]
api.user.delete("sam"); api.queue.delete("q", virtual_host="s1"); api.exchange.delete("x", virtual_host="s1")
assert api.connection.list() is not None and api.channel.list() is not None
try:
    api.queue.get("q", virtual_host="s1")
except ApiError as error:
    assert error.error_code == 404, error
api.virtual_host.delete("s1")
print("well")
"""

PYRABBIT = """
import sys
from pyrabbit2.api import Client
client = Client(f"127.0.0.1:{sys.argv[1]}", "guest", "guest")
assert client.is_alive() and client.get_whoami()["name"] == "guest" and client.get_overview()
assert client.get_cluster_name()["name"] == client.get_nodes()[0]["name"]
client.create_vhost("p1"); client.set_vhost_permissions("p1", "guest", ".*", ".*", ".*")
assert "p1" in client.get_vhost_names()
client.create_queue("p1", "q", durable=True); client.create_exchange("p1", "x", "direct")
client.create_binding("p1", "x", "q", "k")
assert client.publish("p1", "x", "k", "body")
assert client.get_queue_depth("p1", "q") == 1
assert client.get_messages("p1", "q", count=1, requeue=True)[0]["payload"] == "body"
client.purge_queue("p1", "q"); client.delete_binding("p1", "x", "q", "k")
client.create_user("pat", "secret", tags="management"); client.delete_user("pat")
client.delete_queue("p1", "q"); client.delete_exchange("p1", "x"); client.delete_vhost("p1")
assert client.get_definitions()["users"] and client.get_extensions() == []
print("well")
"""

KOMBU = """
import sys
from kombu import Connection
with Connection("amqp://guest:guest@127.0.0.1//", transport_options={"manager_port": sys.argv[1]}) as connection:
    manager = connection.get_manager()
manager.is_admin = True  # it takes tags for a text, which RabbitMQ has made a list in 3.9
assert manager.is_alive() and "/" in manager.get_vhost_names()
manager.create_vhost("k1"); manager.set_vhost_permissions("k1", "guest", ".*", ".*", ".*")
manager.create_queue("k1", "celery", durable=True, auto_delete=False, arguments=[])
manager.create_exchange("k1", "tasks", "topic", durable=True); manager.create_binding("k1", "tasks", "celery", "a.#")
assert manager.publish("k1", "tasks", "a.b", "body")
assert manager.get_queue_depth("k1", "celery") == 1 and len(manager.get_queues("k1")) == 1
(message,) = manager.get_messages("k1", "celery", count=1, requeue=True)
assert message["payload"] == "body", message
assert [each["source"] for each in manager.get_queue_bindings("k1", "celery")] == ["", "tasks"]
assert not manager.get_connections() and not manager.get_channels() and manager.get_users()
manager.purge_queue("k1", "celery"); manager.delete_queue("k1", "celery"); manager.delete_exchange("k1", "tasks")
manager.delete_vhost("k1")
print("well")
"""

FLOWER = """
import asyncio, sys
from flower.utils.broker import Broker
async def main():
    url = f"http://guest:guest@127.0.0.1:{sys.argv[1]}/api/"
    broker = Broker("amqp://guest:guest@127.0.0.1//", http_api=url)
    (queue,) = await broker.queues(["flowers"])
    row = [queue[name] for name in ("name", "messages", "messages_unacknowledged", "messages_ready", "consumers")]
    assert row == ["flowers", 1, 0, 1, 0], row
asyncio.run(main())
print("well")
"""


@pytest.mark.parametrize(
    ("client", "program"), [("amqpstorm", AMQPSTORM), ("pyrabbit2", PYRABBIT), ("pyrabbit", KOMBU), ("flower", FLOWER)]
)
def test_clients_in_python_do_all_they_can(managed: Broker, admin: Browser, client: str, program: str) -> None:
    peer(f"managers/{client}")
    admin.put("/queues/%2F/flowers")
    admin.delete("/queues/%2F/flowers/contents")
    admin.post("/exchanges/%2F/amq.default/publish", {"routing_key": "flowers", "payload": "x", "properties": {}})
    assert python(managed, program).endswith("well\n")  # pyrabbit prints where it asks


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ("aliveness", ()),
        ("connections", ()),
        ("objects", ()),
        ("overview", ()),
        ("queue", ("--queue=watched",)),
        ("server", ("--node=NODE",)),
        ("watermark", ("--node=NODE",)),
        ("partition", ("--node=NODE",)),
    ],
)
def test_nagios_checks_are_well(managed: Broker, admin: Browser, check: str, words: tuple[str, ...]) -> None:
    script = peer(f"nagios/usr/bin/check_rabbitmq_{check}")
    perl = script.parents[1] / "share/perl5"
    compiled = sorted((script.parents[1] / "lib").glob("*/perl5/*"))
    admin.put("/queues/%2F/watched")
    node = admin.get("/overview")["node"]
    command = ["perl", str(script), "--hostname=127.0.0.1", f"--port={urlsplit(managed.management_url).port}"]
    done = subprocess.run(
        [*command, *(word.replace("NODE", node.partition("@")[2]) for word in words)],
        env={**os.environ, "PERL5LIB": ":".join([str(perl), *map(str, compiled)])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " OK" in done.stdout
