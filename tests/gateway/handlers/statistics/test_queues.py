"""Queues in pages, with what their shards count of them. Real processes."""

from typing import Any

import pytest

import shardmq
from shardmq import ListQuery, errors
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Any:
    with shardmq.connect(broker.url) as connection:
        yield connection


def counts(admin: shardmq.Connection, queue: str) -> dict[str, int]:
    """What is counted of a queue, but for zeros."""
    found: dict[str, int] = admin.stats_get("queues", "/", queue)["counts"]
    return {name: count for name, count in found.items() if count}


def test_counters_are_what_clients_did(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    channel.queue_declare("counted")
    for number in range(10):
        channel.basic_publish("", "counted", b"%d" % number)
    first, second, third = [message for message in (channel.basic_get("counted") for _ in range(3)) if message]
    first.ack()
    second.nack(requeue=True)
    third.reject()
    assert (message := channel.basic_get("counted", auto_ack=True)) is not None
    assert message.redelivered
    assert counts(admin, "counted") == {"publish": 10, "get": 3, "get_no_ack": 1, "ack": 1, "redeliver": 1, "reject": 1}
    consumed = channel.consume("counted", prefetch=4)
    for _ in range(2):
        next(consumed).ack()
    consumed.close()
    assert counts(admin, "counted")["ack"] == 3
    before = counts(admin, "counted")["deliver"]
    channel.queue_purge("counted")
    assert channel.basic_get("counted") is None
    assert counts(admin, "counted") == {
        "publish": 10,
        "deliver": before,
        "get": 3,
        "get_no_ack": 1,
        "get_empty": 1,
        "ack": 3,
        "redeliver": 1,
        "reject": 1,
    }
    channel.close()


def test_what_is_not_acknowledged_counts_apart(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    channel.queue_declare("unasked")
    for _ in range(5):
        channel.basic_publish("", "unasked", b"x")
    consumed = channel.consume("unasked", auto_ack=True)
    for _ in range(5):
        next(consumed)
    assert counts(admin, "unasked") == {"publish": 5, "deliver_no_ack": 5}
    channel.close()


def test_counters_of_deleted_queues_stay_in_the_sums_of_their_virtual_host(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    before = admin.stats_overview("/")["vhosts"]["/"]["flow"]["counts"]["publish"]
    channel.queue_declare("passing")
    for _ in range(3):
        channel.basic_publish("", "passing", b"x")
    channel.queue_delete("passing")
    assert admin.stats_overview("/")["vhosts"]["/"]["flow"]["counts"]["publish"] == before + 3
    channel.close()


def test_pages_are_cut_filtered_and_sorted_by_any_column(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    for number in range(25):
        channel.queue_declare(f"page-{number:02}")
        for _ in range(number % 5):
            channel.basic_publish("", f"page-{number:02}", b"x" * number)

    def names(**wanted: Any) -> list[str]:
        query = ListQuery(name="PAGE-", page_size=6, **wanted)
        return [row["name"] for row in admin.stats_list("queues", query)["items"]]

    everything = [f"page-{number:02}" for number in range(25)]
    assert names() == everything
    assert names(page=5) == ["page-24"]
    assert names(page=1, reverse=True) == everything[:-7:-1]
    fullest = sorted(everything, key=lambda name: (-(int(name[-2:]) % 5), name))
    for column in ("ready", "messages", "counts.publish"):
        assert names(page=1, sort=column, reverse=True) == fullest[:6]
        assert names(page=2, sort=column, reverse=True) == fullest[6:12]
    assert names(sort="bytes", page=1, reverse=True)[0] == "page-24"
    assert sorted(names(sort="rates.publish")) == sorted(names(sort="rates.deliver_get")) == everything
    assert channel.basic_get("page-11", auto_ack=True) is not None
    assert names(page=1, sort="counts.deliver_get", reverse=True)[0] == "page-11"
    page = admin.stats_list("queues", ListQuery(name="^page-1[0-3]$", use_regex=True, page=1, columns=["name"]))
    assert page == {
        "items": [{"name": f"page-1{number}"} for number in range(4)],
        "page": 1,
        "page_size": 100,
        "page_count": 1,
        "item_count": 4,
        "filtered_count": 4,
        "total_count": admin.stats_list("queues", ListQuery(with_statistics=False))["total_count"],
    }
    channel.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (ListQuery(sort="nonsense"), "queues have no column 'nonsense' to sort by"),
        (ListQuery(name="(", use_regex=True), r"the name filter '\(' is no regular expression"),
        (ListQuery(page=99), "page 99 out of range: there are 1 pages of 100 queues"),
        (ListQuery(page_size=501), "page_size is 1 to 500, not 501"),
    ],
)
def test_what_makes_no_sense_is_refused(admin: shardmq.Connection, query: ListQuery, said: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=said):
        admin.stats_list("queues", query)


def test_an_expression_that_takes_too_long_is_refused(admin: shardmq.Connection) -> None:
    channel = admin.channel()
    channel.queue_declare("a" * 60)
    with pytest.raises(errors.InvalidRequest, match="takes too long; simplify"):
        admin.stats_list("queues", ListQuery(name="(a|a)+(a|a)+$b", use_regex=True))
    channel.queue_delete("a" * 60)
    channel.close()


def test_users_see_what_their_tags_let_them(broker: Broker, admin: shardmq.Connection) -> None:
    admin.vhost_put("hidden")
    admin.channel().queue_declare("seen")
    for user, tags in (("plain", []), ("manager", ["management"]), ("monitor", ["monitoring"])):
        admin.user_put(user, "secret", tags=tags)
        admin.permission_put(user, "/", ".*", ".*", ".*")
    url = f"shardmq://{{}}:secret@127.0.0.1:{broker.port}/"
    with shardmq.connect(url.format("plain")) as plain:
        for ask in (
            lambda: plain.stats_list("queues"),
            plain.stats_overview,
            lambda: plain.stats_get("users", "", "x"),
        ):
            with pytest.raises(errors.AccessRefused, match="no tag that lets it manage"):
                ask()
    with shardmq.connect(url.format("manager")) as manager:
        assert "seen" in {row["name"] for row in manager.stats_list("queues")["items"]}
        assert [row["name"] for row in manager.stats_list("vhosts")["items"]] == ["/"]
        assert {row["user"] for row in manager.stats_list("connections")["items"]} == {"manager"}
        assert "processes" not in manager.stats_overview()
        with pytest.raises(errors.AccessRefused, match="monitoring"):
            manager.findings_tell([(True, {"rule": "odd"})])
        with pytest.raises(errors.AccessRefused, match="hidden"):
            manager.stats_list("queues", ListQuery("hidden"))
    with shardmq.connect(url.format("monitor")) as monitor:
        assert not monitor.findings_tell(())  # nobody listens
        assert {row["name"] for row in monitor.stats_list("vhosts")["items"]} >= {"/", "hidden"}
        assert {row["user"] for row in monitor.stats_list("connections")["items"]} == {"guest", "monitor"}
        assert {row["role"] for row in monitor.stats_overview()["processes"]} == {"coordinator", "gateway", "shard"}


def test_rates_follow(admin: shardmq.Connection) -> None:
    """Waits for a look of the shard, which takes one every 5 s."""
    channel = admin.channel()
    channel.queue_declare("flowing")
    with channel.publisher() as publisher:
        while not (rate := admin.stats_get("queues", "/", "flowing")["rates"]["publish"]):
            publisher.publish("", "flowing", b"x")
            publisher.flush()
    published = counts(admin, "flowing")["publish"]
    assert 0 < rate <= published
    first = admin.stats_list("queues", ListQuery(sort="rates.publish", reverse=True, page=1, page_size=1))
    assert first["items"][0]["name"] == "flowing"
    channel.close()
