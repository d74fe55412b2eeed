"""Lists of exchanges and bindings: pages that are cut before there are rows. Real processes."""

from collections.abc import Iterator
from typing import Any

import pytest

import shardmq
from shardmq import ListQuery
from shardmq.cmd.run.broker import Broker

Row = dict[str, Any]

COLUMNS = ("", "name", "vhost", "type", "durable", "arguments", "policy", "counts.publish_in")


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[shardmq.Connection]:
    """A connection to a broker with exchanges in two virtual hosts: some are published to, and one has a policy."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number, kind in enumerate(("topic", "fanout", "direct", "headers", "topic", "fanout", "direct")):
            channel.exchange_declare(f"listed-{number}", kind, durable=number % 2 == 0)
            channel.basic_publish(f"listed-{number % 3}", "key", b"")
        connection.vhost_put("listed-host")
        definition = {"alternate-exchange": "amq.fanout"}
        connection.policy_put(
            "/", "listed", {"pattern": "^listed-4", "apply-to": "exchanges", "definition": definition}
        )
        yield connection
        connection.policy_delete("/", "listed")
        connection.vhost_delete("listed-host")


def value_at(row: Row, column: str) -> Any:
    """What a row is sorted by: texts come behind numbers, and tables and what is not there before both."""
    for name in (column or "name").split("."):
        row = row[name]
    return (0, 0) if row is None or isinstance(row, dict) else (1 + isinstance(row, str), row)


def pages(admin: shardmq.Connection, noun: str, query: dict[str, Any]) -> list[Row]:
    rows, number, count = list[Row](), 1, 1
    while number <= count:
        table = admin.stats_list(noun, ListQuery(page=number, page_size=4, **query))
        rows += table["items"]
        number, count = number + 1, table["page_count"]
    assert table["filtered_count"] == len(rows)
    return rows


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("column", COLUMNS)
def test_pages_together_are_the_list_in_order(admin: shardmq.Connection, column: str, reverse: bool) -> None:
    listed = admin.stats_list("exchanges")["items"]
    assert [(row["vhost"], row["name"]) for row in listed] == sorted((row["vhost"], row["name"]) for row in listed)
    wanted = sorted(listed, key=lambda row: value_at(row, column), reverse=reverse)
    if column in ("", "name"):
        wanted = listed[::-1] if reverse else listed
    assert pages(admin, "exchanges", {"sort": column, "reverse": reverse}) == wanted


def test_columns_are_the_same_however_they_are_found(admin: shardmq.Connection) -> None:
    whole = {row["name"]: row for row in admin.stats_list("exchanges", ListQuery("/", name="listed"))["items"]}
    assert whole["listed-0"]["counts"]["publish_in"] == 3
    for columns in (["vhost", "name", "type", "counts"], ["name"], ["vhost", "name", "policy"], ["name", "vhost"]):
        rows = pages(admin, "exchanges", {"vhost": "/", "name": "listed", "columns": columns})
        assert rows == [{column: row[column] for column in columns} for row in whole.values()]
    (row,) = pages(admin, "exchanges", {"name": "listed-0", "columns": ["vhost", "name", "rates.publish_in"]})
    assert list(row["rates"]) == ["publish_in"]


def test_what_is_declared_or_deleted_between_two_pages_is_seen(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    for noun, named in (("exchanges", "listed-new"), ("bindings", "listed-new amq.topic")):
        query = {"name": named}
        assert pages(admin, noun, query) == []
    channel.exchange_declare("listed-new", "topic")
    channel.exchange_bind("amq.topic", "listed-new", "key")
    assert [row["type"] for row in pages(admin, "exchanges", {"name": "listed-new"})] == ["topic"]
    bound = {"name": "listed-new amq.topic", "sort": "routing_key"}
    assert [row["destination_type"] for row in pages(admin, "bindings", bound)] == ["exchange"]
    assert admin.stats_get("exchanges", "/", "listed-new")["counts"] == {"publish_in": 0, "publish_out": 0}
    channel.exchange_delete("listed-new")
    assert pages(admin, "exchanges", {"name": "listed-new"}) == pages(admin, "bindings", bound) == []
    with pytest.raises(shardmq.errors.NotFound, match="listed-new"):
        admin.stats_get("exchanges", "/", "listed-new")
    with pytest.raises(shardmq.errors.InvalidRequest, match="exchanges have no column 'size' to sort by"):
        admin.stats_list("exchanges", ListQuery(sort="size"))
