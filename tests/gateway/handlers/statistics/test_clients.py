"""Connections, channels and consumers in pages, of all gateways. Real processes."""

import contextlib
from collections.abc import Callable

import shardmq
from shardmq import ListQuery
from shardmq.cmd.run.broker import Broker

CONNECTIONS = 24
"""The kernel deals them out between two gateways at random; that one gets none happens once in 16 million times."""


def test_pages_are_of_the_clients_of_all_gateways(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, gateways=2)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(shardmq.connect(broker.url)) for _ in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            channel = client.channel()
            channel.queue_declare(f"queue-{number}")
            for _ in range(number):
                channel.basic_publish("", f"queue-{number}", b"x" * 100)
        consumed = clients[0].channel().consume("queue-5")
        next(consumed)
        asked = clients[0]

        pages = [asked.stats_list("connections", ListQuery(page=number, page_size=10)) for number in (1, 2, 3)]
        rows = [row for page in pages for row in page["items"]]
        assert [page["item_count"] for page in pages] == [10, 10, 4]
        assert {page["total_count"] for page in pages} == {CONNECTIONS}
        assert len({row["name"] for row in rows}) == CONNECTIONS
        assert {row["gateway"] for row in rows} == {"gateway-0", "gateway-1"}

        query = ListQuery(sort="counts.publish", reverse=True, page=1, page_size=5, columns=["counts.publish"])
        busiest = asked.stats_list("channels", query)["items"]
        assert [row["counts"]["publish"] for row in busiest] == [23, 22, 21, 20, 19]

        largest = asked.stats_list("connections", ListQuery(sort="counts.bytes_in", reverse=True, page=1, page_size=1))
        found = asked.stats_get("connections", "", largest["items"][0]["name"])
        assert found["peer_port"] == largest["items"][0]["peer_port"]
        port = found["peer_port"]
        assert asked.stats_list("connections", ListQuery(name=f"127.0.0.1:{port} "))["filtered_count"] == 1

        (consumer,) = asked.stats_list("consumers")["items"]
        assert consumer["queue"] == "queue-5"
        assert asked.stats_overview()["object_totals"]["connections"] == CONNECTIONS
        with shardmq.connect(broker.url, administrative=True) as administration:  # in no virtual host: not in pages
            page = administration.stats_list("connections", ListQuery(page=1, page_size=100))
            assert page["total_count"] == page["filtered_count"] == page["item_count"] == CONNECTIONS
        consumed.close()


def test_who_does_not_see_all_finds_no_addresses_of_others(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, gateways=2)
    with shardmq.connect(broker.url) as administration:
        for user, tags in (("clerk", ["management"]), ("watcher", ["monitoring"])):
            administration.user_put(user, "secret", tags=tags)
            administration.permission_put(user, "/", ".*", ".*", ".*")
    with contextlib.ExitStack() as stack:

        def connected(user: str) -> shardmq.Connection:
            url = broker.url.replace("guest:guest", f"{user}:secret")
            return stack.enter_context(shardmq.connect(url if user != "guest" else broker.url))

        clerk, watcher = connected("clerk"), connected("watcher")
        for client in (clerk, *[connected("guest") for _ in range(CONNECTIONS)]):
            channel = client.channel()
            channel.queue_declare("watched")
            channel.basic_consume("watched", print)
        ports = {row["name"]: row["peer_port"] for row in watcher.stats_list("consumers")["items"]}
        rows = clerk.stats_list("consumers")["items"]
        assert {row["name"] for row in rows} == ports.keys()
        shown = {row["name"]: row["peer_port"] for row in rows if "peer_port" in row or "peer_host" in row}
        (own,) = [row["name"] for row in rows if row["user"] == "clerk"]
        assert shown == {own: ports[own]}
        for port, count in ((ports[own], 1), (next(port for name, port in ports.items() if name != own), 0)):
            query = ListQuery(name=f"^127[.]0[.]0[.]1:{port} ", use_regex=True)
            assert clerk.stats_list("consumers", query)["filtered_count"] == count
            assert watcher.stats_list("consumers", query)["filtered_count"] == 1
