"""Definitions of RabbitMQ's shape, both ways: what a RabbitMQ 3.10 wrote is read, what is written is read again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.definitions.importer import NOUNS
from shardmq.protocol.native.operations.administration import (
    DefinitionsExport,
    DefinitionsImport,
    PermissionPut,
    UserPut,
)
from shardmq.protocol.native.operations.topology import ExchangeDeclare, QueueBind, QueueDeclare, TopologyList
from tests.gateway.rawclient import Denied, RawClient

EXPORT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "rabbitmq-3.10-definitions.json").read_text())
"""What a RabbitMQ 3.10.8 exported: three virtual hosts, arguments of every kind, a stream, policies."""

NONE = dict.fromkeys(NOUNS, 0)


@pytest.fixture
def admin(start_broker: Callable[..., Broker]) -> Iterator[RawClient]:
    broker = start_broker(shards=2)
    with RawClient(broker).open() as admin:
        admin.broker = broker  # type: ignore[attr-defined]
        yield admin


def test_what_rabbitmq_exported_is_there_afterwards(admin: RawClient) -> None:
    answer = admin.ask(DefinitionsImport, EXPORT)
    assert answer["imported"] == {
        "vhosts": 2,
        "users": 5,
        "limits": 2,
        "permissions": 4,
        "topic_permissions": 1,
        "policies": 2,
        "topics": 0,
        "exchanges": 6,
        "queues": 9,
        "bindings": 6,
        "parameters": 0,
    }
    broker: Broker = admin.broker  # type: ignore[attr-defined]
    with RawClient(broker).open("ada", "secret-of-ada", "orders") as ada:
        queues = {row["name"]: row for row in ada.ask(TopologyList, "queues")}
        assert queues.keys() == {"plain", "limited", "timed", "urgent", "single", "safe", "log"}
        assert queues["limited"]["arguments"] == {
            "x-dead-letter-exchange": "orders.dead",
            "x-dead-letter-routing-key": "limited",
            "x-max-length": 1000,
            "x-max-length-bytes": 1048576,
            "x-overflow": "reject-publish-dlx",
        }
        plain = queues["plain"]
        assert (plain["policy"], plain["operator_policy"]) == ("lengths", "cap")
        assert plain["effective_policy_definition"] == {
            "max-length": 100000,
            "overflow": "reject-publish",
            "max-length-bytes": 1_000_000_000,
        }
        assert queues["single"]["arguments"] == {"x-single-active-consumer": True}
        exchanges = {row["name"]: row for row in ada.ask(TopologyList, "exchanges")}
        assert exchanges["orders.in"]["arguments"] == {"alternate-exchange": "orders.lost"}
        assert exchanges["orders.spread"]["type"] == "x-consistent-hash"
        arguments = [row["arguments"] for row in ada.ask(TopologyList, "bindings") if row["source"] == "orders.match"]
        assert arguments == [{"x-match": "any", "country": "de", "size": 7, "express": True, "weight": 1.5}]
        limits = {row["name"]: row["limits"] for row in ada.ask(TopologyList, "users") if row["limits"]}
        assert limits == {"bob": {"max-connections": 3, "max-channels": 20}}
    with RawClient(broker).open("eve", "secret-of-eve", "audit/eu"):
        pass
    with pytest.raises(Denied):
        RawClient(broker).open("bob", "secret-of-bob", "/")


def test_what_is_left_out_is_said(admin: RawClient) -> None:
    skipped = admin.ask(DefinitionsImport, EXPORT)["skipped"]
    for words in (
        "argument 'x-queue-master-locator' of queue 'single'",
        "argument 'x-max-in-memory-length' of queue 'safe'",
        "there is no exchange 'orders.core'",  # 3.10 leaves internal exchanges out, but not their bindings
        "global parameter 'note'",
    ):
        assert any(words in sentence for sentence in skipped), words
    assert len(skipped) == 6


def test_settings_of_policies_that_mean_nothing_here_are_left_out(admin: RawClient) -> None:
    mirrored = {"name": "ha", "vhost": "/", "pattern": ".", "definition": {"ha-mode": "all", "max-length": 5}}
    merely = {"name": "ha-only", "vhost": "/", "pattern": ".", "definition": {"ha-mode": "all"}}
    answer = admin.ask(DefinitionsImport, {"policies": [mirrored, merely]})
    assert answer["imported"] == {**NONE, "policies": 1}
    assert len(answer["skipped"]) == 3
    (policy,) = admin.ask(TopologyList, "policies")
    assert policy["definition"] == {"max-length": 5}


def test_importing_again_changes_nothing(admin: RawClient) -> None:
    first = admin.ask(DefinitionsImport, EXPORT)
    again = admin.ask(DefinitionsImport, EXPORT)
    assert again["imported"] == NONE
    assert set(first["skipped"]) <= set(again["skipped"])
    assert [sentence for sentence in again["skipped"] if sentence not in first["skipped"]] == []


def test_what_is_exported_here_makes_the_same_elsewhere(admin: RawClient, start_broker: Callable[..., Broker]) -> None:
    admin.ask(DefinitionsImport, EXPORT)
    admin.ask(ExchangeDeclare, "inner", "headers", True, {}, internal=True, auto_delete=True)
    admin.ask(QueueDeclare, "kept", True, {"x-message-ttl": 5000})
    admin.ask(QueueDeclare, "fleeting")
    admin.ask(QueueDeclare, "own", True, exclusive=True)
    admin.ask(QueueBind, "kept", "amq.topic", "a.*")
    admin.ask(QueueBind, "fleeting", "amq.topic", "b.*")
    admin.ask(UserPut, "scrypt", "secret")
    admin.ask(PermissionPut, "scrypt", "/", "", "", ".*")
    exported = admin.ask(DefinitionsExport)
    assert json.loads(json.dumps(exported)) == exported
    assert not {"fleeting", "own"} & {queue["name"] for queue in exported["queues"]}
    assert not [each for each in exported["exchanges"] if each["name"].startswith("amq.") or not each["durable"]]
    other = start_broker(shards=1)
    with RawClient(other).open() as client:
        answer = client.ask(DefinitionsImport, exported)
        assert answer["skipped"] == []
        copied = client.ask(DefinitionsExport)
        assert {noun: sorted(map(json.dumps, rows)) for noun, rows in copied.items() if isinstance(rows, list)} == {
            noun: sorted(map(json.dumps, rows)) for noun, rows in exported.items() if isinstance(rows, list)
        }
    RawClient(other).open("scrypt", "secret").socket.close()


def test_an_import_ends_at_the_first_thing_that_is_refused_and_says_what_was_made(admin: RawClient) -> None:
    definitions = {
        "vhosts": [{"name": "new"}],
        "queues": [{"name": "odd", "vhost": "new", "arguments": {"x-max-priority": 1000}}],
        "bindings": [{"source": "amq.fanout", "vhost": "new", "destination": "odd", "routing_key": ""}],
    }
    with pytest.raises(Denied, match=r"queue 'odd' in vhost 'new'.*made until then: 1 vhosts") as denied:
        admin.ask(DefinitionsImport, definitions)
    assert denied.value.code == 406
    definitions["queues"][0]["arguments"] = {}
    assert admin.ask(DefinitionsImport, definitions)["imported"] == {**NONE, "queues": 1, "bindings": 1}


def test_what_is_there_and_different_stays_as_it_is(admin: RawClient) -> None:
    admin.ask(QueueDeclare, "mine", True, {"x-max-length": 1})
    queue = {"name": "mine", "vhost": "/", "durable": True, "arguments": {"x-max-length": 2}}
    answer = admin.ask(DefinitionsImport, {"queues": [queue]})
    assert answer == {
        "imported": NONE,
        "skipped": ["queue 'mine' in vhost '/': it exists with other arguments, and stays as it is"],
    }


def test_an_export_of_one_virtual_host_belongs_where_the_connection_is(admin: RawClient) -> None:
    definitions = {
        "rabbit_version": "3.13.0",
        "queues": [{"name": "q", "durable": True, "auto_delete": False, "arguments": {}}],
        "exchanges": [{"name": "x", "type": "direct", "durable": True}],
        "bindings": [{"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "k"}],
        "users": [{"name": "plain", "password": "given", "tags": "management,monitoring"}],
    }
    answer = admin.ask(DefinitionsImport, definitions)
    assert answer == {
        "imported": {**NONE, "queues": 1, "exchanges": 1, "bindings": 1, "users": 1},
        "skipped": [],
    }
    user = next(row for row in admin.ask(TopologyList, "users") if row["name"] == "plain")
    assert user["tags"] == ["management", "monitoring"]
    assert user["hashing_algorithm"] == "shardmq_scrypt"
