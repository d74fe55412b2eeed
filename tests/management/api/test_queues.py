"""Queues in pages, with counts and rates, as clients of RabbitMQ ask for them."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused


@pytest.fixture(scope="module", autouse=True)
def filled(managed: Broker) -> Iterator[Broker]:
    """Ten queues; the n-th has n messages."""
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        publisher = channel.publisher()
        for number in range(10):
            channel.queue_declare(f"q-{number}", durable=True)
            for _ in range(number):
                publisher.publish("", f"q-{number}", b"body")
        publisher.flush()
        channel.queue_declare("Other", arguments={"x-queue-type": "classic"})
        yield managed


def listed(admin: Browser, **query: object) -> dict[str, object]:
    found: dict[str, object] = admin.get(f"/queues/%2F?{urlencode(query)}")
    return found


def test_the_broker_picks_the_page(admin: Browser) -> None:
    found = listed(admin, page=1, page_size=3, name="Q-", sort="messages", sort_reverse="true", columns="name,messages")
    assert found.pop("items") == [{"name": f"q-{number}", "messages": number} for number in (9, 8, 7)]
    assert found == {
        "page": 1,
        "page_size": 3,
        "page_count": 4,
        "item_count": 3,
        "filtered_count": 10,
        "total_count": 11,
    }
    assert [row["name"] for row in admin.get("/queues?page=2&page_size=10&sort=name")["items"]] == ["q-9"]
    by_name = listed(admin, page=1, page_size=2, sort="name", name="^q-[3-9]$", use_regex="true")["items"]
    assert [row["name"] for row in by_name] == ["q-3", "q-4"]  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="page_out_of_range"):
        listed(admin, page=9)
    with pytest.raises(Refused, match="bad_request"):
        listed(admin, page=1, name="(", use_regex="true")


def test_a_column_that_the_broker_does_not_sort_by_sorts_all_the_same(admin: Browser) -> None:
    found = listed(admin, page=1, page_size=1, sort="arguments.x-queue-type", sort_reverse="true", columns="name")
    assert found["items"] == [{"name": "Other"}]


def test_counts_are_those_of_rabbitmq(admin: Browser) -> None:
    admin.post("/queues/%2F/q-5/get", {"count": 2, "ackmode": "ack_requeue_false"})
    row = admin.get("/queues/%2F/q-5")
    stats = row["message_stats"]
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (3, 3, 0)
    assert (stats["publish"], stats["get"], stats["deliver_get"], stats["ack"]) == (5, 2, 2, 2)
    assert isinstance(stats["publish_details"]["rate"], float)
    assert row["state"] == "running"
    plain = admin.get("/queues/%2F/q-5?disable_stats=true")
    assert plain["name"] == "q-5"
    assert "messages" not in admin.get("/queues/%2F?disable_stats=true")[0]
    overview = admin.get("/overview")
    assert overview["queue_totals"]["messages"] == 43
    assert overview["object_totals"]["queues"] == 11
    assert overview["message_stats"]["publish"] == 45
    assert admin.get("/vhosts/%2F")["messages"] == 43
