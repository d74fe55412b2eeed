"""Policies, operator policies and topic permissions over the HTTP API, over real processes."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused


@pytest.fixture(scope="module")
def channel(managed: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        for name in ("orders.eu", "orders.us", "mail"):
            channel.queue_declare(name, durable=True)
        yield channel


@pytest.mark.usefixtures("channel")
@pytest.mark.parametrize("place", ["policies", "operator-policies"])
def test_a_policy_is_set_found_applied_and_deleted(admin: Browser, place: str) -> None:
    body = {"pattern": "^orders", "definition": {"max-length": 5}, "priority": "3", "apply-to": "queues"}
    path = f"/{place}/%2F/short"
    assert [admin.put(path, body), admin.put(path, body)] == [201, 204]
    wanted = {**body, "priority": 3, "vhost": "/", "name": "short"}
    assert admin.get(path) == wanted
    assert admin.get(f"/{place}") == admin.get(f"/{place}/%2F") == [wanted]
    column = "policy" if place == "policies" else "operator_policy"
    assert admin.get("/queues/%2F/orders.eu")[column] == "short"
    assert admin.get("/queues/%2F/mail")[column] in (None, "")
    assert admin.delete(path) == 204
    with pytest.raises(Refused) as error:
        admin.get(path)
    assert error.value.status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"pattern": "^a"},
        {"definition": {"max-length": 1}},
        {"pattern": "(", "definition": {"max-length": 1}},
        {"pattern": "a", "definition": {"max-length": -1}},
        {"pattern": "a", "definition": {"nothing": 1}},
        {"pattern": "a", "definition": {"max-length": 1}, "apply-to": "cats"},
        {"pattern": "a", "definition": {"max-length": 1}, "priority": "high"},
        {"pattern": "a", "definition": []},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(admin: Browser, body: dict[str, object]) -> None:
    with pytest.raises(Refused) as error:
        admin.put("/policies/%2F/bad", body)
    assert (error.value.status, error.value.error) == (400, "bad_request")
    assert error.value.reason


@pytest.mark.usefixtures("channel")
def test_what_a_policy_would_change_is_told_before(admin: Browser) -> None:
    body = {"pattern": "^orders", "definition": {"max-length": 5}, "apply-to": "queues"}
    rows = admin.post("/shardmq/policies/%2F/short/preview", body)
    assert {row["name"]: row["changes"] for row in rows} == {
        name: {"x-max-length": [None, 5]} for name in ("orders.eu", "orders.us")
    }
    assert admin.get("/policies") == []


def test_policymakers_set_policies_and_no_operator_policies(managed: Broker, channel: shardmq.Channel) -> None:
    del channel
    with shardmq.connect(managed.url) as connection:
        connection.user_put("maker", "makes", tags=["policymaker"])
        connection.user_put("watcher", "watches", tags=["monitoring"])
        for user in ("maker", "watcher"):
            connection.permission_put(user, "/", ".*", ".*", ".*")
    body = {"pattern": "^mail", "definition": {"max-length": 5}}
    with Browser(managed.management_url, "maker", "makes") as maker:
        assert maker.put("/policies/%2F/mine", body) == 201
        assert maker.delete("/policies/%2F/mine") == 204
        with pytest.raises(Refused) as error:
            maker.put("/operator-policies/%2F/mine", body)
        assert error.value.status == 401
    with Browser(managed.management_url, "watcher", "watches") as watcher, pytest.raises(Refused) as error:
        watcher.put("/policies/%2F/mine", body)
    assert error.value.status == 401


def test_topic_permissions_are_set_found_and_deleted(managed: Broker, admin: Browser) -> None:
    with shardmq.connect(managed.url) as connection:
        connection.user_put("writer", "writes")
    path = "/topic-permissions/%2F/writer"
    body = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert [admin.put(path, body), admin.put(path, body)] == [201, 204]
    wanted = [{"user": "writer", "vhost": "/", **body}]
    assert admin.get(path) == admin.get("/topic-permissions") == admin.get("/users/writer/topic-permissions") == wanted
    assert admin.get("/vhosts/%2F/topic-permissions") == wanted
    assert admin.delete(path) == 204
    assert admin.get("/topic-permissions") == []
