"""Lists of what there is and of who is connected, at any gateway. Real processes."""

import contextlib
import signal
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.message.record import pack_many
from shardmq.protocol.native.operations.administration import PermissionDelete, PermissionPut, UserPut, VhostPut
from shardmq.protocol.native.operations.basic import BasicConsume, BasicGet, BasicPublish
from shardmq.protocol.native.operations.connection import ChannelOpen, StatusGet
from shardmq.protocol.native.operations.topics import TopicDeclare
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    TopologyList,
)
from shardmq.protocol.native.operations.transaction import TransactionAbort, TransactionBegin
from tests.gateway.rawclient import Denied, RawClient

CONNECTIONS = 40
"""The kernel deals them out between two gateways at random; that one gets none happens once in 500 billion times."""


@pytest.fixture
def pair(start_broker: Callable[..., Broker]) -> Broker:
    return start_broker(shards=2, gateways=2)


def add_user(admin: RawClient, name: str, *tags: str, vhost: str = "/") -> None:
    admin.ask(UserPut, name, "secret", tags=list(tags))
    admin.ask(PermissionPut, name, vhost, ".*", ".*", ".*")


def test_every_gateway_lists_the_connections_of_all(pair: Broker) -> None:
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(pair).open(client={"connection_name": f"c{number}"}))
            for number in range(CONNECTIONS)
        ]
        clients[0].ask(QueueDeclare, "watched")
        clients[0].ask(BasicConsume, "watched", "tag", prefetch=7, arguments={"x-priority": 5})
        lists = [client.ask(TopologyList, "connections") for client in clients]
        assert all(rows == lists[0] for rows in lists)
        rows = lists[0]
        names = {f"c{number}" for number in range(CONNECTIONS)}
        assert {row["client_properties"]["connection_name"] for row in rows} == names
        assert {row["gateway"] for row in rows} == {"gateway-0", "gateway-1"}
        ports = {client.socket.getsockname()[1] for client in clients}
        assert {row["peer_port"] for row in rows} == ports
        assert {
            (row["user"], row["vhost"], row["peer_host"], row["tls"], row["state"], row["channels"]) for row in rows
        } == {("guest", "/", "127.0.0.1", False, "running", 1)}
        (consumer,) = clients[-1].ask(TopologyList, "consumers")
        own = next(row["name"] for row in rows if row["peer_port"] == clients[0].socket.getsockname()[1])
        assert consumer == {
            "tag": "tag",
            "queue": "watched",
            "channel": 1,
            "connection": own,
            "user": "guest",
            "vhost": "/",
            "prefetch": 7,
            "auto_ack": False,
            "exclusive": False,
            "priority": 5,
            "gateway": next(row["gateway"] for row in rows if row["name"] == own),
            "consumer": 1,
        }


def test_a_silent_gateway_is_left_out_of_the_lists(pair: Broker) -> None:
    with RawClient(pair).open() as client:
        (row,) = client.ask(TopologyList, "connections")
        far = ({"gateway-0", "gateway-1"} - {row["gateway"]}).pop()
        pair.kill(far, signal.SIGSTOP)
        try:
            assert client.ask(TopologyList, "connections") == [row]
        finally:
            pair.kill(far, signal.SIGCONT)


def test_channels_are_listed_with_what_they_hold(broker: Broker) -> None:
    with RawClient(broker).open() as client:
        client.ask(ChannelOpen, channel=9)
        client.ask(QueueDeclare, "held", exclusive=True)
        client.send(BasicPublish(100, 1, "", "held", 0, 3, pack_many([b"a", b"b", b"c"])))
        client.receive()
        for _ in range(2):
            client.ask(BasicGet, "held", channel=9)
        rows = {row["number"]: row for row in client.ask(TopologyList, "channels")}
        assert rows.keys() == {1, 9}
        assert (rows[9]["unacked"], rows[9]["consumers"], rows[9]["unconfirmed"], rows[9]["prefetch"]) == (2, 0, 0, 0)
        queue = next(row for row in client.ask(TopologyList, "queues") if row["name"] == "held")
        assert (queue["messages"], queue["ready"], queue["unacked"], queue["consumers"]) == (3, 1, 2, 0)
        assert (queue["exclusive"], queue["durable"], queue["auto_delete"]) == (True, False, False)
        assert queue["owner"] == rows[1]["connection"]


def test_bindings_between_exchanges_are_told_from_those_of_queues(broker: Broker) -> None:
    with RawClient(broker).open() as client:
        client.ask(ExchangeDeclare, "down", "fanout", auto_delete=True, internal=True)
        client.ask(QueueDeclare, "bound", exclusive=True)
        client.ask(ExchangeBind, "down", "amq.topic", "a.*")
        client.ask(QueueBind, "bound", "down", "")
        rows = {(row["source"], row["destination_type"]): row for row in client.ask(TopologyList, "bindings")}
        assert rows["amq.topic", "exchange"] == {
            "source": "amq.topic",
            "vhost": "/",
            "destination": "down",
            "destination_type": "exchange",
            "routing_key": "a.*",
            "arguments": {},
        }
        assert rows["down", "queue"]["destination"] == "bound"
        exchange = next(row for row in client.ask(TopologyList, "exchanges") if row["name"] == "down")
        assert (exchange["type"], exchange["internal"], exchange["auto_delete"]) == ("fanout", True, True)


def test_readable_topics_are_topics_and_streams_that_the_user_may_read(broker: Broker) -> None:
    with RawClient(broker).open() as admin:
        admin.ask(VhostPut, "topics")
        admin.ask(UserPut, "analyst", "secret")
        admin.ask(PermissionPut, "guest", "topics", ".*", ".*", ".*")
        admin.ask(PermissionPut, "analyst", "topics", "", "", r"^app-a\..*")
    with RawClient(broker).open(vhost="topics") as client:
        for topic in ("app-a.orders", "app-b.orders"):
            client.ask(TopicDeclare, topic, 3)
        for team in ("app-a", "app-b"):
            client.ask(QueueDeclare, f"{team}.clicks", durable=True, arguments={"x-queue-type": "stream"})
            client.ask(QueueDeclare, f"{team}.jobs", durable=True)
        rows = client.ask(TopologyList, "readable-topics")
        assert [row["name"] for row in rows] == ["app-a.clicks", "app-a.orders", "app-b.clicks", "app-b.orders"]
    with RawClient(broker).open("analyst", "secret", "topics") as client:
        assert client.ask(TopologyList, "readable-topics") == [
            {"name": "app-a.clicks", "vhost": "topics", "partitions": 1},
            {"name": "app-a.orders", "vhost": "topics", "partitions": 3},
        ]


def test_what_does_not_concern_them_is_not_shown_to_those_without_tags(broker: Broker) -> None:
    with RawClient(broker).open() as admin:
        admin.ask(VhostPut, "moon")
        admin.ask(QueueDeclare, "earthly", exclusive=True)
        for name, tags in (("plain", []), ("manager", ["management"]), ("monitor", ["monitoring"])):
            add_user(admin, name, *tags, vhost="moon")
        seen: dict[str, dict[str, Any]] = {}
        for name in ("plain", "manager", "monitor"):
            with RawClient(broker).open(name, "secret", "moon") as client:
                seen[name] = {
                    noun: client.ask(TopologyList, noun) for noun in ("vhosts", "users", "permissions", "connections")
                }
                seen[name]["queues"] = client.ask(StatusGet)["queues"]
        for name in ("plain", "manager"):
            assert [row["name"] for row in seen[name]["vhosts"]] == ["moon"]
            assert [row["name"] for row in seen[name]["users"]] == [name]
            assert [row["user"] for row in seen[name]["permissions"]] == [name]
            assert {row["user"] for row in seen[name]["connections"]} == {name}
            assert seen[name]["queues"] == []
        assert {"/", "moon"} <= {row["name"] for row in seen["monitor"]["vhosts"]}
        assert {"guest", "monitor"} <= {row["user"] for row in seen["monitor"]["connections"]}
        assert "earthly" in {row["name"] for row in seen["monitor"]["queues"]}
        assert not any("password_hash" in row for row in seen["monitor"]["users"])
        assert all(row["password_hash"] for row in admin.ask(TopologyList, "users"))


def test_who_does_not_monitor_sees_no_process_and_no_queue_of_other_virtual_hosts_in_the_status(pair: Broker) -> None:
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(RawClient(pair).open())
        for name in ("here", "there", "elsewhere"):
            admin.ask(VhostPut, name)
            admin.ask(PermissionPut, "guest", name, ".*", ".*", ".*")
            stack.enter_context(RawClient(pair).open(vhost=name)).ask(QueueDeclare, f"q-{name}", True)
        add_user(admin, "plain", vhost="here")
        admin.ask(PermissionPut, "plain", "there", "", "", "")
        add_user(admin, "monitor", "monitoring", vhost="here")
        # over both gateways, one after the other
        plain = [stack.enter_context(RawClient(pair).open("plain", "secret", "here")) for _ in range(6)]
        plain[0].ask(BasicConsume, "q-here", "tag")
        plain[1].ask(ChannelOpen, channel=2)
        for client in plain:
            state = client.ask(StatusGet)
            assert state.keys() == {"processes", "queues", "own"}
            assert state["processes"] == []
            assert {row["vhost"]: row["name"] for row in state["queues"]} == {"here": "q-here", "there": "q-there"}
            assert state["own"] == {"connections": 6, "channels": 7, "consumers": 1}
        admin.ask(PermissionDelete, "plain", "there")
        assert [row["name"] for row in plain[0].ask(StatusGet)["queues"]] == ["q-here"]
        for seeing in (admin, stack.enter_context(RawClient(pair).open("monitor", "secret", "here"))):
            state = seeing.ask(StatusGet)
            assert {row["process"]: row["pid"] for row in state["processes"]} == pair.pids
            assert {row["name"] for row in state["queues"]} == {"q-here", "q-there", "q-elsewhere"}


def test_lists_of_connections_channels_consumers_and_transactions_are_the_users_own(broker: Broker) -> None:
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(RawClient(broker).open())
        users = {}
        for name, tags in (("one", []), ("two", []), ("manager", ["management"]), ("seer", ["monitoring"])):
            add_user(admin, name, *tags)
            users[name] = stack.enter_context(RawClient(broker).open(name, "secret"))
        for name in ("one", "two"):
            users[name].ask(QueueDeclare, f"of-{name}", exclusive=True)
            users[name].ask(BasicConsume, f"of-{name}", name)
            users[name].ask(TransactionBegin, f"by-{name}")
        nouns = ("connections", "channels", "consumers", "transactions")
        seen = {
            name: {noun: {row["user"] for row in client.ask(TopologyList, noun)} for noun in nouns}
            for name, client in users.items()
        }
        assert seen["one"] == {noun: {"one"} for noun in nouns}
        assert seen["two"] == {noun: {"two"} for noun in nouns}
        assert seen["manager"] == {
            "connections": {"manager"},
            "channels": {"manager"},
            "consumers": {"one", "two"},
            "transactions": set(),
        }
        assert all({"one", "two"} <= names for names in seen["seer"].values())
        for name in ("one", "two"):
            admin.ask(TransactionAbort, f"by-{name}")


def test_whose_permission_was_taken_away_lists_nothing_of_the_virtual_host(broker: Broker) -> None:
    with RawClient(broker).open() as admin:
        add_user(admin, "leaver")
        with RawClient(broker).open("leaver", "secret") as leaver:
            for noun in ("queues", "exchanges", "bindings", "transactions"):
                leaver.ask(TopologyList, noun)
            admin.ask(PermissionDelete, "leaver", "/")
            for noun in ("queues", "exchanges", "bindings", "transactions"):
                with pytest.raises(Denied, match="access to vhost '/' refused") as denied:
                    leaver.ask(TopologyList, noun)
                assert denied.value.code == ReplyCode.ACCESS_REFUSED
            assert leaver.ask(StatusGet)["queues"] == []


def test_client_properties_beyond_measure_are_not_kept(broker: Broker) -> None:
    with RawClient(broker).open(client={"name": "x" * 12_000}) as client:
        (row,) = [row for row in client.ask(TopologyList, "connections") if row["user"] == "guest"]
        assert row["client_properties"] == {}


def test_a_list_of_nothing_that_exists_names_those_there_are(broker: Broker) -> None:
    with RawClient(broker).open() as client:
        with pytest.raises(Denied, match="bindings, channels, connections, consumers") as denied:
            client.ask(TopologyList, "planets")
        assert denied.value.code == ReplyCode.SYNTAX_ERROR
