"""A coordinator killed as by a crash: what was answered is there, what is durable survives, nothing is half done."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.coordinator import TellEvents
from shardmq.coordinator.process import CoordinatorOptions, build
from shardmq.coordinator.rules.access import guest, new_vhost
from shardmq.coordinator.storage.schema import DATABASES, PERMISSIONS
from shardmq.coordinator.storage.store import Store
from shardmq.errors import StartupRefused
from shardmq.storage.lmdb_environment import open_environment
from shardmq.topology.changes import ExchangeRemoved, PermissionRemoved, UserPut, VhostPut
from shardmq.topology.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeletePermission,
    DeleteUser,
    DeleteVhost,
    PutLimits,
    PutPermission,
    PutUser,
    PutVhost,
    SetTracing,
)
from shardmq.topology.entities import EVENT_EXCHANGE, Permission, User, Vhost, predeclared
from shardmq.topology.topology import Topology
from tests.warm import quick_hash

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room

HASH = quick_hash("secret")


def content(topology: Topology) -> list[Any]:
    """All there is, in no order."""
    return [sorted(map(str, nouns)) for nouns in topology.snapshot()[1:]]


def perform_all(room: "Room", gateway: "GatewayEnd", commands: list[Command]) -> None:
    requests = [gateway.ask(command) for command in commands]
    room.until(lambda: gateway.answers.keys() >= set(requests))
    refused = [gateway.answers[request] for request in requests if not isinstance(gateway.answers[request], Answer)]
    assert not refused


def test_all_that_is_durable_survives_a_kill_and_another_life_of_the_broker(room: "Room") -> None:
    room.shard(0)
    room.shard(1)
    room.spawn()
    gateway = room.gateway()
    perform_all(
        room,
        gateway,
        [
            PutVhost("shop", "all that is sold", ("live",)),
            PutLimits("shop", "", {"max-queues": 9, "max-connections": 3}),
            PutUser("", "anna", HASH, ("monitoring", "of ours")),
            PutLimits("", "anna", {"max-channels": 7}),
            PutPermission("shop", "anna", "^a", ".*", ""),
            DeclareExchange("shop", "in", "headers", True, {"alternate-exchange": "rest"}, True, False),
            DeclareExchange("shop", "rest", "fanout", True, {}, False, True),
            DeclareExchange("shop", "shares", "x-consistent-hash", True, {"hash-property": "message_id"}),
            DeclareQueue("shop", "work", True, {"x-message-ttl": 5000, "x-dead-letter-exchange": "rest"}),
            DeclareQueue("shop", "while-used", True, {}, True),
            Bind("shop", "in", "work", "", {"x-match": "any", "a": 1, "b": [1, {"c": None}]}),
            Bind("shop", "in", "rest", "", {"a": 2}, True),
            Bind("shop", "shares", "work", "3", {}),
            PutPermission("/", "anna", "", "", ""),
            DeletePermission("/", "guest"),
        ],
    )
    before = content(gateway.topology)
    room.kill()
    room.spawn()
    assert content(room.gateway("gateway-1").topology) == before
    room.kill()
    room.boot_id = "second"
    room.spawn()
    assert content(room.gateway("gateway-2").topology) == before


def test_what_belongs_to_a_life_of_the_broker_survives_a_kill_and_goes_with_that_life(room: "Room") -> None:
    room.shard(0)
    room.shard(1)
    room.spawn()
    gateway = room.gateway()
    gateway.present(1)
    owner = f"{1:016x}.1"
    perform_all(
        room,
        gateway,
        [
            DeclareQueue("/", "kept", True, {}),
            DeclareQueue("/", "mine", True, {}, False, owner),
            DeclareQueue("/", "amq.gen-1", False, {}, True, owner, True),
            DeclareExchange("/", "transient", "fanout", False, {}),
            DeclareExchange("/", "short", "fanout", True, {}, True),
            DeclareExchange("/", "long", "fanout", True, {}, True),
            Bind("/", "short", "mine", "", {}),
            Bind("/", "long", "mine", "", {}),
            Bind("/", "long", "kept", "", {}),
            Bind("/", "transient", "kept", "", {}),
            Bind("/", "long", "transient", "", {}, True),
        ],
    )
    before = content(gateway.topology)
    room.kill()
    room.spawn()
    assert content(room.gateway("gateway-1").topology) == before
    room.kill()
    room.boot_id = "second"
    room.spawn()
    topology = room.gateway("gateway-2").topology
    assert {name for _, name in topology.queues} == {"kept"}
    assert {name for _, name in topology.exchanges} == {"long"} | {each.name for each in predeclared("/")}
    assert [(binding.exchange, binding.destination) for binding in topology.bindings.values()] == [("long", "kept")]


@pytest.mark.parametrize("answered", [0, 1, 40, 150])
def test_what_was_answered_before_a_kill_is_there_after_it(room: "Room", answered: int) -> None:
    shards = [room.shard(0), room.shard(1)]
    room.spawn()
    gateway = room.gateway()
    number = count()
    asked: dict[int, str] = {}

    def ask() -> bool:
        while len(asked) - len(gateway.answers) < 50:
            name = f"q{next(number)}"
            asked[gateway.ask(DeclareQueue("/", name, True, {}))] = name
            asked[gateway.ask(Bind("/", "amq.topic", name, name, {}))] = name
        return len(gateway.answers) >= answered

    room.until(ask)
    room.kill()
    answers = dict(gateway.answers)
    room.hang_up(gateway)
    room.spawn()
    after = room.gateway("gateway-1")
    for request, answer in answers.items():
        assert isinstance(answer, Answer)
        queue = after.topology.queue("/", asked[request])
        if answer.result is not None:
            assert queue.id == answer.result
        else:
            assert after.topology.router.route("/", "amq.topic", queue.name) == (queue,)
    ids = [queue.id for queue in after.topology.queues.values()]
    assert len(ids) == len(set(ids))
    room.until(
        lambda: (
            {**shards[0].queues, **shards[1].queues}.items()
            >= {(queue.name, queue.id) for queue in after.topology.queues.values()}
        )
    )


def test_a_virtual_host_is_deleted_as_a_whole_or_not_at_all(room: "Room") -> None:
    room.shard(0)
    room.shard(1)
    room.spawn()
    gateway = room.gateway()
    commands: list[Command] = [PutVhost("shop"), PutPermission("shop", "guest", "", "", "")]
    commands += [DeclareQueue("shop", f"q{number}", True, {}) for number in range(200)]
    commands += [Bind("shop", "amq.topic", f"q{number}", "k", {}) for number in range(200)]
    perform_all(room, gateway, commands)
    gateway.ask(DeleteVhost("shop"))
    gateway.dialer.flush()
    room.kill()
    room.spawn()
    topology = room.gateway("gateway-1").topology
    found = (len(topology.queues), len(topology.bindings), ("guest", "shop") in topology.permissions)
    assert found == ((200, 200, True) if "shop" in topology.vhosts else (0, 0, False))


def opened(folder: Path, boot_id: str = "first") -> Store:
    return Store.open(folder / "coordinator", boot_id)


def test_a_coordinator_that_cannot_start_closes_its_store(tmp_path: Path) -> None:
    options = CoordinatorOptions(tmp_path, "http://nowhere", (f"ipc://{tmp_path}/shard-0",), "first")
    with pytest.raises(StartupRefused, match="no address of the bus"):
        build(options)
    opened(tmp_path).close()


def test_the_guest_of_a_store_older_than_permissions_gets_them_once(room: "Room") -> None:
    store = opened(room.folder)
    store.write([*new_vhost("/"), VhostPut(Vhost("other")), UserPut(guest()), UserPut(User("anna", HASH))])
    store.close()
    room.start()
    gateway = room.gateway()
    assert list(gateway.topology.permissions.values()) == [Permission("guest", "/", ".*", ".*", ".*")]
    room.perform(gateway, DeletePermission("/", "guest"))
    room.restart(boot_id="second")
    assert not room.gateway("gateway-1").topology.permissions


def test_who_removes_every_user_and_virtual_host_does_not_get_guest_back(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    perform_all(room, gateway, [DeleteUser("", "guest"), DeleteVhost("/")])
    room.restart(boot_id="second")
    topology = room.gateway("gateway-1").topology
    assert not any(topology.snapshot()[1:])


def test_an_old_store_is_told_by_what_was_never_written_in_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert not store.load(1).knows_permissions
    store.write([PermissionRemoved("guest", "/")])
    assert not store.load(1).knows_permissions
    store.close()
    environment = open_environment(tmp_path / "coordinator", b"shardmq-coordinator", DATABASES)
    with environment.env.begin(db=environment.dbs[b"state"]) as transaction:
        assert transaction.get(PERMISSIONS) is None
    environment.close()


def test_a_store_of_a_version_without_the_event_exchange_gets_it(room: "Room") -> None:
    room.start()
    room.stop()
    store = Store.open(room.folder / "coordinator", room.boot_id)
    store.write([ExchangeRemoved("/", EVENT_EXCHANGE)])
    store.close()
    for _ in range(2):
        room.start()
        exchanges = room.gateway().topology.exchanges
        assert exchanges["/", EVENT_EXCHANGE].internal
        assert len(exchanges) == len(predeclared("/"))
        room.stop()


def test_what_is_traced_is_told_to_gateways_that_come_and_forgotten_with_the_coordinator(room: "Room") -> None:
    room.start()
    first = room.gateway("gateway-0")
    request = first.ask(SetTracing("/", 0.5))
    room.until(lambda: request in first.answers)
    assert first.topology.tracing == {"/": 0.5}
    assert room.gateway("gateway-1").topology.tracing == {"/": 0.5}
    room.stop()
    room.start()
    assert room.gateway("gateway-2").topology.tracing == {}


def tells(gateway: "GatewayEnd") -> bool:
    return any(isinstance(message, TellEvents) for message in gateway.heard)


def test_one_gateway_tells_events_and_another_when_that_one_is_gone(room: "Room") -> None:
    room.start()
    first, second = room.gateway("gateway-0"), room.gateway("gateway-1")
    room.until(lambda: tells(first))
    room.perform(second, PutVhost("told"))
    assert not tells(second)
    room.hang_up(first)
    room.until(lambda: tells(second))
