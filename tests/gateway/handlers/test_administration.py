"""Administration, over real processes."""

from collections.abc import Iterator
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.protocol.native.operations.administration import (
    ConnectionExpel,
    DefinitionsExport,
    DefinitionsImport,
    LimitsPut,
    PermissionDelete,
    PermissionPut,
    UserDelete,
    UserPut,
    VhostDelete,
    VhostPut,
)
from shardmq.protocol.native.operations.connection import ConnectionOpen
from shardmq.protocol.native.operations.topology import QueueDeclare, TopologyList
from tests.gateway.rawclient import Denied, RawClient


@pytest.fixture
def admin(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker).open() as admin:
        yield admin


REQUESTS: list[tuple[Any, tuple[Any, ...]]] = [
    (VhostPut, ("x",)),
    (VhostDelete, ("/",)),
    (UserPut, ("x", "y")),
    (UserDelete, ("guest",)),
    (PermissionPut, ("mallory", "/", ".*", ".*", ".*")),
    (PermissionDelete, ("guest", "/")),
    (LimitsPut, ("vhost", "/", {"max-connections": 0})),
    (ConnectionExpel, ("x",)),
    (DefinitionsExport, ()),
    (DefinitionsImport, ({},)),
]


@pytest.mark.parametrize(("kind", "fields"), REQUESTS, ids=lambda value: getattr(value, "__name__", ""))
def test_only_administrators_administrate(broker: Broker, admin: RawClient, kind: Any, fields: tuple[Any, ...]) -> None:
    admin.ask(UserPut, "mallory", "m", tags=["management", "monitoring"])
    admin.ask(PermissionPut, "mallory", "/", "", "", "")
    with RawClient(broker).open("mallory", "m") as mallory:
        with pytest.raises(Denied, match="administrator") as denied:
            mallory.ask(kind, *fields)
        assert denied.value.code == ReplyCode.ACCESS_REFUSED
        mallory.ask(TopologyList, "vhosts")  # the connection lives on


def test_a_virtual_host_is_a_world_of_its_own_and_needs_a_permission(broker: Broker, admin: RawClient) -> None:
    admin.ask(VhostPut, "moon", "far away", ["cold"])
    row = next(row for row in admin.ask(TopologyList, "vhosts") if row["name"] == "moon")
    assert row == {
        "name": "moon",
        "description": "far away",
        "tags": ["cold"],
        "limits": {},
        "tracing": False,
        "trace_sample": 0.0,
    }
    with pytest.raises(Denied, match="access to vhost 'moon' refused for user 'guest'") as denied:
        RawClient(broker).open(vhost="moon")
    assert denied.value.code == ReplyCode.NOT_ALLOWED
    admin.ask(PermissionPut, "guest", "moon", ".*", ".*", ".*")
    admin.ask(QueueDeclare, "on-earth")
    with RawClient(broker).open(vhost="moon") as there:
        there.ask(QueueDeclare, "crater")
        assert [row["name"] for row in there.ask(TopologyList, "queues")] == ["crater"]
    admin.ask(VhostDelete, "moon")
    with pytest.raises(Denied) as denied:
        RawClient(broker).open(vhost="moon")
    assert denied.value.code == ReplyCode.NOT_ALLOWED


def test_a_changed_password_counts_for_new_connections(broker: Broker, admin: RawClient) -> None:
    admin.ask(UserPut, "carol", "first")
    admin.ask(PermissionPut, "carol", "/", ".*", ".*", ".*")
    with RawClient(broker).open("carol", "first") as before:
        admin.ask(UserPut, "carol", "second")
        before.ask(QueueDeclare, "carols", exclusive=True)
        with pytest.raises(Denied) as denied:
            RawClient(broker).open("carol", "first")
        assert denied.value.code == ReplyCode.ACCESS_REFUSED
        RawClient(broker).open("carol", "second").socket.close()


def test_a_user_without_a_password_gets_in_by_none(broker: Broker, admin: RawClient) -> None:
    admin.ask(UserPut, "ghost", password_hash="")
    admin.ask(PermissionPut, "ghost", "/", ".*", ".*", ".*")
    with pytest.raises(Denied):
        RawClient(broker).open("ghost", "")


@pytest.mark.parametrize(
    ("algorithm", "password_hash", "password"),
    [
        ("md5", "MnZ4D3S2w13rkh06DscF3F83EQM=", "secret-of-old"),
        ("sha256", "hyPOgu4eJL84SXOmnOvmrHmhSA3MyEyYdlZVbst8ES3/F9B/", "secret-of-bob"),
        (
            "sha512",
            "bzO7gfut0W7+zpC7J6hzLnaXVzvwqIOotsSBpcdBlHHICwW9VjILcqnUxzUsEWEU0qQ33Zsg9xAaEtSu1EvW8dU6f8E=",
            "secret-of-eve",
        ),
    ],
)
def test_a_hash_of_rabbitmqs_lets_its_password_in(
    broker: Broker, admin: RawClient, algorithm: str, password_hash: str, password: str
) -> None:
    admin.ask(UserPut, algorithm, password_hash=password_hash)
    admin.ask(PermissionPut, algorithm, "/", ".*", ".*", ".*")
    RawClient(broker).open(algorithm, password).socket.close()
    with pytest.raises(Denied):
        RawClient(broker).open(algorithm, password + "!")
    row = next(row for row in admin.ask(TopologyList, "users") if row["name"] == algorithm)
    assert row["password_hash"] == password_hash
    assert row["hashing_algorithm"] == f"rabbit_password_hashing_{algorithm}"


BAD: list[tuple[Any, tuple[Any, ...], dict[str, Any], int, str]] = [
    (UserPut, ("u", "p"), {"password_hash": "x"}, 502, "a hash of one"),
    (UserPut, ("u", ""), {}, 502, "empty password"),
    (UserPut, ("u",), {"password_hash": "no base64!"}, 502, "hash"),
    (UserPut, ("",), {"password": "p"}, 502, "name"),
    (UserDelete, ("nobody",), {}, 404, "nobody"),
    (VhostDelete, ("nowhere",), {}, 404, "nowhere"),
    (VhostPut, ("",), {}, 502, "name"),
    (PermissionPut, ("guest", "/", "(", "", ""), {}, 502, "regular expression"),
    (PermissionPut, ("guest", "nowhere", "", "", ""), {}, 404, "nowhere"),
    (PermissionPut, ("nobody", "/", "", "", ""), {}, 404, "nobody"),
    (LimitsPut, ("queue", "q", {}), {}, 502, "vhost or a user"),
    (LimitsPut, ("user", "guest", {"max-queues": 1}), {}, 502, "max-channels"),
    (LimitsPut, ("user", "nobody", {"max-channels": 1}), {}, 404, "nobody"),
    (ConnectionExpel, ("0.0",), {}, 404, "no connection"),
]


@pytest.mark.parametrize(("kind", "fields", "named", "code", "word"), BAD, ids=lambda value: str(value)[-40:])
def test_what_makes_no_sense_is_refused_with_a_sentence(
    admin: RawClient, kind: Any, fields: tuple[Any, ...], named: dict[str, Any], code: int, word: str
) -> None:
    with pytest.raises(Denied, match=word) as denied:
        admin.ask(kind, *fields, **named)
    assert denied.value.code == code


def test_refused_logins_are_logged_without_the_password_and_not_without_end(broker: Broker) -> None:
    clients = [RawClient(broker) for _ in range(30)]
    for client in clients:
        client.send(ConnectionOpen(1, 1, "eve\nil", "sesame-sesame", "/", 0))
    for client in clients:
        client.expect_close(ReplyCode.ACCESS_REFUSED)
        client.socket.close()
    logged = [line for line in broker.log.read_text().splitlines() if "login of user 'eve\\nil'" in line]
    assert 1 <= len(logged) <= 30
    assert "127.0.0.1" in logged[0]
    assert "\nil" not in broker.log.read_text()
    assert "sesame" not in broker.log.read_text()
