"""Requests of agents and operators that cannot be run here, as their sources send them, and the fields they need."""

from typing import Any
from urllib.parse import unquote

import pytest

from tests.management.browser import Browser

QUEUE = ("messages", "messages_ready", "messages_unacknowledged", "name", "vhost", "consumers")


def fields(table: Any, *names: str) -> None:
    assert [name for name in names if name not in table] == []


@pytest.fixture
def queue(admin: Browser) -> str:
    admin.put("/queues/%2F/scaled")
    admin.post("/exchanges/%2F/amq.default/publish", {"routing_key": "scaled", "payload": "x", "properties": {}})
    return "scaled"


def test_keda_scales_by_one_queue_or_by_those_an_expression_finds(admin: Browser, queue: str) -> None:
    row = admin.get(f"/queues/%2F/{queue}")
    fields(row, *QUEUE)
    assert isinstance(row["message_stats"]["publish_details"]["rate"], float)
    assert isinstance(row["message_stats"]["deliver_get_details"]["rate"], float)
    query = f"page=1&use_regex=true&pagination=false&name=%5E{queue}%24&page_size=100"
    found = admin.get(f"/queues/%2F?{query}")
    assert (found["page_count"], [item["name"] for item in found["items"]]) == (1, [queue])


def test_telegraf_reads_the_overview_nodes_queues_and_exchanges(admin: Browser, queue: str) -> None:
    overview = admin.get("/overview")
    fields(overview, "message_stats", "object_totals", "queue_totals", "listeners", "cluster_name")
    fields(overview["message_stats"], "ack", "deliver", "publish", "return_unroutable", "disk_reads")
    (node,) = admin.get("/nodes")
    fields(node, "name", "mem_used", "mem_limit", "disk_free", "fd_used", "fd_total", "running", "uptime", "proc_used")
    assert queue in [row["name"] for row in admin.get("/queues")]
    fields(admin.get("/exchanges")[0], "name", "type", "durable", "auto_delete", "vhost")
    assert admin.get("/federation-links") == []


def test_datadog_reads_each_kind_of_thing_and_the_aliveness(admin: Browser, queue: str) -> None:
    for noun in ("nodes", "queues", "exchanges", "connections", "vhosts", "overview"):
        admin.get(f"/{noun}")
    assert admin.get("/aliveness-test/%2F")["status"] == "ok"
    assert queue in [row["name"] for row in admin.get("/queues?page=1&page_size=500")["items"]]


def test_terraform_makes_reads_and_deletes_what_it_knows(admin: Browser) -> None:
    assert admin.put("/vhosts/tf", {"description": "", "tags": [], "default_queue_type": "classic"}) == 201
    body = {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
    assert admin.put("/queues/tf/q", body) == 201
    fields(admin.get("/queues/tf/q"), "name", "vhost", "durable", "auto_delete", "arguments", "type")
    admin.post("/bindings/tf/e/amq.topic/q/q", {"routing_key": "a.#", "arguments": {}, "properties_key": ""})
    key = unquote(admin.headers["location"].split("/")[-1])
    assert admin.get("/bindings/tf/e/amq.topic/q/q")[0]["properties_key"] == key == "a.%23"
    assert admin.delete("/bindings/tf/e/amq.topic/q/q/a.%2523") == 204
    assert admin.delete("/vhosts/tf") == 204
