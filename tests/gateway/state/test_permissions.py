"""What permissions allow: RabbitMQ's table, over real processes."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, ReplyCode
from shardmq.gateway.state.permissions import Permissions
from shardmq.message.record import pack
from shardmq.protocol.native.operations.administration import PermissionDelete, PermissionPut, UserPut
from shardmq.protocol.native.operations.basic import (
    BasicConfirm,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicRefused,
)
from shardmq.protocol.native.operations.reads import QueuePlaces, QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePeek,
    QueuePurge,
    QueueUnbind,
)
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from shardmq.topology.entities import Permission
from shardmq.topology.topology import Topology
from tests.gateway.rawclient import Denied, RawClient


def rights(configure: str, write: str, read: str) -> Permissions:
    topology = Topology()
    topology.permissions["ann", "/"] = Permission("ann", "/", configure, write, read)
    return Permissions(topology, "ann", "/")


def test_an_expression_is_found_anywhere_and_an_empty_one_nowhere() -> None:
    some = rights("^own-", "log", "")
    some.check_configure("own-1")
    some.check_write("the-logs")
    with pytest.raises(AccessRefused, match="configure access to queue 'my-own-1' in vhost '/' refused for user 'ann'"):
        some.check_configure("my-own-1")
    with pytest.raises(AccessRefused, match="read access to exchange 'x'"):
        some.check_read("x", "exchange")


def test_the_default_exchange_is_called_amq_default() -> None:
    rights("", "^amq\\.default$", "").check_write("")
    with pytest.raises(AccessRefused, match=r"'amq\.default'"):
        rights("", "^$", "").check_write("")


def test_what_was_allowed_is_forgotten_when_told() -> None:
    topology = Topology()
    topology.permissions["ann", "/"] = Permission("ann", "/", "", ".*", "")
    some = Permissions(topology, "ann", "/")
    some.check_write("x")
    del topology.permissions["ann", "/"]
    some.forget()
    with pytest.raises(AccessRefused):
        some.check_write("x")


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[RawClient]:
    """An administrator; user `ann` is there, and an exchange and a queue `there`, `dlx` and `alt`."""
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "ann", "secret")
        for name in ("there", "other", "dlx", "alt"):
            admin.ask(ExchangeDeclare, name, "fanout", True)
        admin.ask(QueueDeclare, "there", True)
        yield admin


@pytest.fixture
def ann(broker: Broker, admin: RawClient) -> Iterator[RawClient]:
    admin.ask(PermissionPut, "ann", "/", "", "", "")
    with RawClient(broker).open("ann", "secret") as ann:
        yield ann


NEEDS: list[tuple[Any, tuple[Any, ...], dict[str, str]]] = [
    (ExchangeDeclare, ("there", "fanout", True), {"configure": "^there$"}),
    (
        ExchangeDeclare,
        ("new-x", "fanout", False, {"alternate-exchange": "alt"}),
        {"configure": "^new-x$", "write": "^alt$", "read": "^new-x$"},
    ),
    (QueueDeclare, ("there", True), {"configure": "^there$"}),
    (
        QueueDeclare,
        ("new-q", False, {"x-dead-letter-exchange": "dlx"}),
        {"configure": "^new-q$", "write": "^dlx$", "read": "^new-q$"},
    ),
    (QueueBind, ("there", "other", ""), {"write": "^there$", "read": "^other$"}),
    (QueueUnbind, ("there", "other", ""), {"write": "^there$", "read": "^other$"}),
    (ExchangeBind, ("there", "other", ""), {"write": "^there$", "read": "^other$"}),
    (ExchangeUnbind, ("there", "other", ""), {"write": "^there$", "read": "^other$"}),
    (BasicConsume, ("there",), {"read": "^there$"}),
    (BasicGet, ("there",), {"read": "^there$"}),
    (QueuePeek, ("there", 0, 1), {"read": "^there$"}),
    (QueuePurge, ("there",), {"read": "^there$"}),
    (QueuePlaces, ("there",), {"read": "^there$"}),
    (QueueSlices, ("there", 1), {"read": "^there$"}),
    (QueueRead, ("there", 0, 1, 1), {"read": "^there$"}),
    (QueueReserve, ("there", "aside"), {"read": "^there$"}),
    (ReservationEnd, ("there", "aside", False), {"read": "^there$"}),
    (QueueDelete, ("new-q",), {"configure": "^new-q$"}),
    (ExchangeDelete, ("new-x",), {"configure": "^new-x$"}),
]


@pytest.mark.parametrize(("kind", "fields", "needs"), NEEDS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_operation_needs_its_permissions_and_no_others(
    admin: RawClient, ann: RawClient, kind: Any, fields: tuple[Any, ...], needs: dict[str, str]
) -> None:
    if kind is QueueDelete:
        admin.ask(QueueDeclare, *fields)
    if kind is ExchangeDelete:
        admin.ask(ExchangeDeclare, *fields, "direct")
    for missing in needs:
        given = {"configure": "", "write": "", "read": "", **needs, missing: ""}
        admin.ask(PermissionPut, "ann", "/", **given)
        with pytest.raises(Denied, match=f"{missing} access to .* refused for user 'ann'") as denied:
            ann.ask(kind, *fields)
        assert denied.value.code == ReplyCode.ACCESS_REFUSED
    admin.ask(PermissionPut, "ann", "/", **{"configure": "", "write": "", "read": "", **needs})
    ann.ask(kind, *fields)
    if kind in (ExchangeDeclare, QueueDeclare) and fields[0].startswith("new-"):
        admin.ask(QueueDelete if kind is QueueDeclare else ExchangeDelete, fields[0])


@pytest.mark.parametrize("kind", [ExchangeDeclare, QueueDeclare])
def test_asking_passively_needs_none(ann: RawClient, kind: Any) -> None:
    ann.ask(kind, "there", *(["fanout"] if kind is ExchangeDeclare else []), passive=True)


def test_publishing_needs_write_on_the_exchange_and_a_permission_taken_away_counts_at_once(
    admin: RawClient, ann: RawClient
) -> None:
    def publish(request: int) -> Any:
        ann.send(BasicPublish(request, 1, "other", "k", 0, 1, pack(None, b"x")))
        return ann.receive()

    refused = publish(1000)
    assert isinstance(refused, BasicRefused)
    assert refused.code == ReplyCode.ACCESS_REFUSED
    admin.ask(PermissionPut, "ann", "/", "", "^other$", "")
    assert publish(1001) == BasicConfirm(1, [(1001, 1001)])
    admin.ask(PermissionDelete, "ann", "/")
    assert isinstance(publish(1002), BasicRefused)


def test_a_transaction_is_its_users_and_the_administrators(broker: Broker, admin: RawClient, ann: RawClient) -> None:
    admin.ask(UserPut, "bob", "secret")
    admin.ask(PermissionPut, "bob", "/", ".*", ".*", ".*")
    number = ann.ask(TransactionBegin, "anns")["number"]
    foreign: list[tuple[Any, tuple[Any, ...]]] = [
        (TransactionBegin, ("anns",)),
        (TransactionSeal, (number, 5)),
        (TransactionCommit, ("anns", number, [])),
        (TransactionAbort, ("anns",)),
    ]
    with RawClient(broker).open("bob", "secret") as bob:
        for kind, fields in foreign:
            with pytest.raises(Denied) as denied:
                bob.ask(kind, *fields)
            assert denied.value.code == ReplyCode.ACCESS_REFUSED, kind
        bob.send(BasicPublish(1000, 1, "other", "k", 0, 1, pack(None, b"x"), 0, 5, 0, number))
        refused = bob.receive()
        assert isinstance(refused, BasicRefused)
        assert refused.code == ReplyCode.ACCESS_REFUSED
    assert admin.ask(TransactionSeal, number, 5) == {"messages": 0, "bytes": 0}
    admin.ask(TransactionAbort, "anns")
    with pytest.raises(Denied) as denied:
        ann.ask(TransactionSeal, number, 5)
    assert denied.value.code == ReplyCode.PRECONDITION_FAILED


def test_publishing_in_a_transaction_needs_write_on_the_exchange(admin: RawClient, ann: RawClient) -> None:
    number = ann.ask(TransactionBegin, "no-write")["number"]
    publish = BasicPublish(1000, 1, "other", "k", 0, 1, pack(None, b"x"), 0, 5, 0, number)
    ann.send(publish)
    refused = ann.receive()
    assert isinstance(refused, BasicRefused)
    assert refused.code == ReplyCode.ACCESS_REFUSED
    admin.ask(PermissionPut, "ann", "/", "", "^other$", "")
    ann.send(publish)
    assert isinstance(ann.receive(), BasicConfirm)
    admin.ask(TransactionAbort, "no-write")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ExchangeDeclare, ("", "direct")),
        (ExchangeDelete, ("",)),
        (QueueBind, ("there", "", "k")),
        (QueueUnbind, ("there", "", "k")),
        (ExchangeBind, ("", "other", "k")),
        (ExchangeBind, ("other", "", "k")),
    ],
)
def test_the_default_exchange_is_nobodys(admin: RawClient, kind: Any, fields: tuple[Any, ...]) -> None:
    with pytest.raises(Denied, match="default exchange") as denied:
        admin.ask(kind, *fields)
    assert denied.value.code == ReplyCode.ACCESS_REFUSED


@pytest.mark.parametrize("expression", ["(a|aa)*$", "^(a|aa)+b$"])
def test_an_expression_that_takes_too_long_is_found_nowhere(broker: Broker, expression: str) -> None:
    evil = "a" * 60 + "!"
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "eve", "eve")
        admin.ask(PermissionPut, "eve", "/", expression, ".*", ".*")
        with RawClient(broker).open("eve", "eve") as eve:
            for _ in range(20):
                with pytest.raises(Denied, match="takes too long to match; write a simpler one") as denied:
                    eve.ask(QueueDeclare, evil)
                assert denied.value.code == ReplyCode.ACCESS_REFUSED
            admin.ask(PermissionPut, "eve", "/", "^a+!$", ".*", ".*")
            eve.ask(QueueDeclare, evil)
            eve.ask(QueueDelete, evil)


def test_an_expression_that_nests_too_deep_is_refused_or_found_nowhere(broker: Broker) -> None:
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "eve", "eve")
        for depth in range(40, 400, 40):
            admin.ask(PermissionPut, "eve", "/", ".*", ".*", ".*")
            with contextlib.suppress(Denied):
                admin.ask(PermissionPut, "eve", "/", "(?:" * depth + "a" + ")" * depth, ".*", ".*")
            with RawClient(broker).open("eve", "eve") as eve, contextlib.suppress(Denied):
                eve.ask(QueueDeclare, "a")
        admin.ask(PermissionDelete, "eve", "/")
