"""What depends on a connection, and what a connection depends on. Real processes."""

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.protocol.native.operations.administration import (
    ConnectionExpel,
    LimitsPut,
    PermissionDelete,
    PermissionPut,
    UserDelete,
    UserPut,
    VhostDelete,
    VhostPut,
)
from shardmq.protocol.native.operations.basic import BasicCancelled, BasicConsume, BasicGet
from shardmq.protocol.native.operations.connection import ChannelOpen, ConnectionClose
from shardmq.protocol.native.operations.topology import (
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePeek,
    QueuePurge,
    QueueUnbind,
    TopologyList,
)
from tests.gateway.rawclient import Denied, RawClient

PATIENCE_SECONDS = 60.0


@pytest.fixture
def admin(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker).open() as admin:
        admin.ask(VhostPut, "moon")
        for user in ("neil", "guest"):
            if user == "neil":
                admin.ask(UserPut, user, "secret")
            admin.ask(PermissionPut, user, "moon", ".*", ".*", ".*")
        yield admin


def until(what: Callable[[], Any]) -> Any:
    """What becomes true, when it has."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def queues(client: RawClient) -> set[str]:
    return {row["name"] for row in client.ask(TopologyList, "queues")}


def connect_when_let_in(broker: Broker, *who: str) -> RawClient:
    """A client, as soon as the limit allows for it: the coordinator hears of those who went at the next tick."""

    def connect() -> RawClient | None:
        try:
            return RawClient(broker).open(*who)
        except Denied:
            return None

    return until(connect)


OTHERS: list[tuple[Any, tuple[Any, ...]]] = [
    (QueueDeclare, ("mine",)),
    (QueueDeclare, ("mine", False, {}, True)),
    (QueueDeclare, ("mine", False, {}, False, False, True)),
    (BasicConsume, ("mine",)),
    (BasicGet, ("mine",)),
    (QueuePeek, ("mine", 0, 1)),
    (QueuePurge, ("mine",)),
    (QueueDelete, ("mine",)),
    (QueueBind, ("mine", "amq.fanout", "")),
    (QueueUnbind, ("mine", "amq.fanout", "")),
]


@pytest.mark.parametrize(("kind", "fields"), OTHERS)
def test_an_exclusive_queue_is_locked_for_others(
    broker: Broker, admin: RawClient, kind: Any, fields: tuple[Any, ...]
) -> None:
    with RawClient(broker).open() as owner:
        owner.ask(QueueDeclare, "mine", exclusive=True)
        owner.ask(QueueDeclare, "mine", exclusive=True)
        with pytest.raises(Denied, match="locked") as denied:
            admin.ask(kind, *fields)
        assert denied.value.code == ReplyCode.RESOURCE_LOCKED
        owner.ask(BasicConsume, "mine")
    until(lambda: "mine" not in queues(admin))


def test_exclusive_queues_go_with_their_connection_also_when_nobody_waits_for_the_declaration(
    broker: Broker, admin: RawClient
) -> None:
    for number in range(10):
        with RawClient(broker).open() as owner:
            owner.send(QueueDeclare(99, 1, f"brief-{number}", exclusive=True))
    until(lambda: not [name for name in queues(admin) if name.startswith("brief")])
    with RawClient(broker).open() as owner:
        owner.ask(QueueDeclare, "again", exclusive=True)
        owner.ask(QueueDelete, "again")
        owner.ask(QueueDeclare, "again")
    admin.ask(QueueDeclare, "again")  # no longer anybody's


def test_exclusive_queues_of_a_gateway_that_is_killed_go(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker).open() as owner:
        owner.ask(QueueDeclare, "orphan", exclusive=True)
        broker.kill_and_wait("gateway-0")
    with RawClient(broker).open() as other:
        until(lambda: "orphan" not in queues(other))


def test_the_connections_of_a_deleted_user_are_closed(broker: Broker, admin: RawClient) -> None:
    clients = [RawClient(broker).open("neil", "secret", "moon") for _ in range(3)]
    admin.ask(UserDelete, "neil")
    for client in clients:
        assert "user 'neil' was deleted" in client.expect_close(ReplyCode.CONNECTION_FORCED)
        client.socket.close()


def test_the_connections_of_a_deleted_virtual_host_are_closed(broker: Broker, admin: RawClient) -> None:
    with RawClient(broker).open("neil", "secret", "moon") as client:
        client.ask(QueueDeclare, "crater")
        client.ask(BasicConsume, "crater")
        admin.ask(VhostDelete, "moon")
        said = client.receive()
        while isinstance(said, BasicCancelled):
            said = client.receive()
        assert isinstance(said, ConnectionClose)
        assert said.code == ReplyCode.CONNECTION_FORCED
        assert "virtual host 'moon' was deleted" in said.text


def test_who_is_expelled_is_told_why(broker: Broker, admin: RawClient) -> None:
    with RawClient(broker).open("neil", "secret", "moon") as client:
        (name,) = [row["name"] for row in admin.ask(TopologyList, "connections") if row["user"] == "neil"]
        admin.ask(ConnectionExpel, name, "time to go home")
        assert client.expect_close(ReplyCode.CONNECTION_FORCED) == "time to go home"


def test_a_connection_outlives_its_permission_and_may_do_nothing(broker: Broker, admin: RawClient) -> None:
    with RawClient(broker).open("neil", "secret", "moon") as client:
        client.ask(QueueDeclare, "flag", exclusive=True)
        admin.ask(PermissionDelete, "neil", "moon")
        with pytest.raises(Denied, match="configure access"):
            client.ask(QueueDeclare, "flag", exclusive=True)


@pytest.mark.parametrize(("noun", "name"), [("vhost", "moon"), ("user", "neil")])
def test_no_more_connections_than_the_limit(broker: Broker, admin: RawClient, noun: str, name: str) -> None:
    admin.ask(LimitsPut, noun, name, {"max-connections": 2})
    clients = [connect_when_let_in(broker, "neil", "secret", "moon") for _ in range(2)]
    with pytest.raises(Denied, match="limit") as denied:
        RawClient(broker).open("neil", "secret", "moon")
    assert denied.value.code == ReplyCode.NOT_ALLOWED
    clients.pop().socket.close()
    clients.append(connect_when_let_in(broker, "neil", "secret", "moon"))
    admin.ask(LimitsPut, noun, name, {"max-connections": None})
    clients.append(RawClient(broker).open("neil", "secret", "moon"))
    for client in clients:
        client.socket.close()


def test_no_more_channels_than_the_limit(broker: Broker, admin: RawClient) -> None:
    admin.ask(LimitsPut, "user", "neil", {"max-channels": 2})
    with RawClient(broker).open("neil", "secret", "moon") as client:
        client.ask(ChannelOpen, channel=2)
        with pytest.raises(Denied, match="limit of 2") as denied:
            client.ask(ChannelOpen, channel=3)
        assert denied.value.code == ReplyCode.NOT_ALLOWED
        client.ask(QueueDeclare, "still-open", exclusive=True, channel=2)
    admin.ask(LimitsPut, "user", "neil", {"max-channels": None})


def test_no_more_queues_than_the_limit(broker: Broker, admin: RawClient) -> None:
    admin.ask(LimitsPut, "vhost", "moon", {"max-queues": 1})
    with RawClient(broker).open("neil", "secret", "moon") as client:
        client.ask(QueueDeclare, "one", exclusive=True)
        with pytest.raises(Denied, match="limit"):
            client.ask(QueueDeclare, "two", exclusive=True)
    admin.ask(LimitsPut, "vhost", "moon", {"max-queues": None})


def test_a_limit_counts_over_all_gateways(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, gateways=2)
    with RawClient(broker).open() as admin:
        admin.ask(LimitsPut, "vhost", "/", {"max-connections": 6})
        clients = [RawClient(broker).open() for _ in range(5)]
        assert len({row["gateway"] for row in admin.ask(TopologyList, "connections")}) in (1, 2)
        for _ in range(6):
            with pytest.raises(Denied, match="limit"):
                RawClient(broker).open()
        for client in clients:
            client.socket.close()


def test_clients_of_a_deleted_user_are_parted_from_though_their_gateway_slept(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "neil", "secret")
        admin.ask(PermissionPut, "neil", "/", "", "", "")
        client = RawClient(broker).open("neil", "secret")
        broker.kill("coordinator", signal.SIGKILL)
        admin.ask(UserDelete, "neil")
        assert "neil" in client.expect_close(ReplyCode.CONNECTION_FORCED)
        client.socket.close()
