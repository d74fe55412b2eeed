"""Import plans: definitions that make no sense are refused, and what is skipped is told."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from shardmq.definitions.importer import ImportPlan
from shardmq.errors import InvalidRequest
from shardmq.topology.changes import QueueAdded, UserPut, VhostPut
from shardmq.topology.commands import PutUser
from shardmq.topology.entities import Queue, User, Vhost
from shardmq.topology.topology import Topology

EXPORT: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "rabbitmq-3.10-definitions.json").read_text())
"""What a RabbitMQ 3.10.8 exported: three virtual hosts, arguments of every kind, a stream, policies."""


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("queues",), 5, "queues"),
        (("queues", 0, "name"), 5, r"\$.queues\[0\].name"),
        (("queues", 0, "arguments"), "x", "arguments"),
        (("exchanges", 0), {"name": "x"}, "type"),
        (("bindings", 0, "destination_type"), "planet", "destination_type"),
        (("users", 0, "limits"), {"max-channels": "many"}, "max-channels"),
        (("queues", 0, "arguments"), {"x": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}, "nest"),
    ],
)
def test_definitions_without_sense_make_nothing(path: tuple[Any, ...], value: Any, word: str) -> None:
    definitions = copy.deepcopy(EXPORT)
    place: Any = definitions
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(InvalidRequest, match=word):
        ImportPlan(definitions, Topology(), "/", {})


def test_a_hash_that_is_none_leaves_a_user_without_a_password_and_says_so() -> None:
    user = {"name": "old", "password_hash": "AAAA", "hashing_algorithm": "rabbit_password_hashing_md5", "tags": []}
    plan = ImportPlan({"users": [user], "surprise": {}}, Topology(), "/", {})
    assert [step.thing for step in plan.stages[1]] == ["user 'old'"]
    assert "the password of user 'old'" in plan.skipped[0]
    assert "'surprise'" in plan.skipped[1]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"password_hash": "AAAA", "tags": ["administrator"]}, None),
        ({"password_hash": "AAAA", "hashing_algorithm": "rot13", "tags": "monitoring"}, ("stored", ("monitoring",))),
        ({"tags": ""}, ("stored", ())),
        ({}, None),
        ({"password": "new"}, ("hashed", ("administrator",))),
        ({"password_hash": "", "tags": ["administrator"]}, ("", ("administrator",))),
    ],
)
def test_a_user_that_is_there_keeps_what_definitions_do_not_have_of_it(
    given: dict[str, Any], wanted: tuple[str, tuple[str, ...]] | None
) -> None:
    topology = Topology()
    topology.apply(UserPut(User("guest", "stored", ("administrator",))))
    hashes = {"guest": "hashed"} if "password" in given else {}
    plan = ImportPlan({"users": [{"name": "guest", **given}]}, topology, "/", hashes)
    commands = [step.command for stage in plan.stages for step in stage]
    assert commands == ([] if wanted is None else [PutUser("", "guest", *wanted)])
    is_told = [sentence for sentence in plan.skipped if "password of user 'guest'" in sentence]
    assert bool(is_told) == bool(given.get("password_hash"))
    assert all(sentence.endswith("; the user keeps its own") for sentence in is_told)


def test_what_exists_is_not_created_again() -> None:
    topology = Topology()
    for change in [VhostPut(Vhost("/")), QueueAdded(Queue("/", "same", 1, 0)), QueueAdded(Queue("/", "other", 2, 0))]:
        topology.apply(change)
    queues: list[dict[str, Any]] = [{"name": name, "vhost": "/"} for name in ("same", "other", "new")]
    queues[1]["arguments"] = {"x-max-length": 5}
    plan = ImportPlan({"queues": queues}, topology, "/", {})
    assert [step.thing for stage in plan.stages for step in stage] == ["queue 'new' in vhost '/'"]
    assert plan.skipped == ["queue 'other' in vhost '/': it exists with other arguments, and stays as it is"]
