"""What commands on virtual hosts, users, permissions and limits change, and why they are refused."""

import pytest

from shardmq.coordinator.rules.access import guest, new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import InvalidRequest, NotFound, RequestError
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ConnectionClosed,
    ExchangeAdded,
    ExchangeRemoved,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    TracingSet,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
)
from shardmq.topology.commands import (
    CloseConnection,
    Command,
    DeletePermission,
    DeleteUser,
    DeleteVhost,
    PutLimits,
    PutPermission,
    PutUser,
    PutVhost,
    SetTracing,
)
from shardmq.topology.entities import Binding, Exchange, Permission, Queue, User, Vhost, predeclared
from shardmq.topology.passwords import from_rabbitmq, verify_password
from shardmq.topology.topology import Topology
from tests.warm import quick_hash

PLACES = QueuePlacement(1, 2)
HASH = quick_hash("secret")
RABBITS = from_rabbitmq("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    changes: list[Change] = [
        *new_vhost("/"),
        VhostPut(Vhost("shop", "all that is sold", ("live",), {"max-queues": 10})),
        ExchangeAdded(Exchange("shop", "orders", "topic", auto_delete=True)),
        ExchangeAdded(Exchange("shop", "all", "fanout")),
        QueueAdded(Queue("shop", "q", 1, 0)),
        QueueAdded(Queue("/", "q", 2, 0)),
        BindingAdded(Binding("shop", "all", "orders", "", {}, True)),
        BindingAdded(Binding("shop", "orders", "q", "#")),
        UserPut(User("anna", HASH, ("management",), {"max-channels": 5})),
        UserPut(User("otto", "")),
        PermissionPut(Permission("anna", "/", ".*", ".*", ".*")),
        PermissionPut(Permission("anna", "shop", "", "", "^q$")),
        PermissionPut(Permission("otto", "shop", "", "", "^q$")),
    ]
    for change in changes:
        topology.apply(change)
    return topology


@pytest.mark.parametrize(
    "command",
    [
        PutVhost("shop", "all that is sold", ("live",)),
        PutUser("", "anna", None),
        PutUser("", "anna", HASH, ("management",)),
        PutUser("", "otto", ""),
        PutPermission("shop", "otto", "", "", "^q$"),
        DeletePermission("/", "otto"),
        PutLimits("shop", "", {"max-queues": 10, "max-connections": None}),
        PutLimits("", "anna", {"max-channels": 5, "max-connections": -1}),
    ],
)
def test_what_is_already_so_changes_nothing(topology: Topology, command: Command) -> None:
    assert changes_for(topology, command, PLACES) == []


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (
            PutVhost("new", "d", ("t",)),
            [VhostPut(Vhost("new", "d", ("t",))), *map(ExchangeAdded, predeclared("new"))],
        ),
        (PutVhost("shop", "sold", ()), [VhostPut(Vhost("shop", "sold", (), {"max-queues": 10}))]),
        (
            DeleteVhost("shop"),
            [
                BindingRemoved(Binding("shop", "orders", "q", "#")),
                BindingRemoved(Binding("shop", "all", "orders", "", {}, True)),
                QueueRemoved("shop", "q"),
                ExchangeRemoved("shop", "orders"),
                ExchangeRemoved("shop", "all"),
                PermissionRemoved("anna", "shop"),
                PermissionRemoved("otto", "shop"),
                VhostRemoved("shop"),
            ],
        ),
        (PutUser("", "new", HASH, ("administrator",)), [UserPut(User("new", HASH, ("administrator",)))]),
        (PutUser("", "new", None), [UserPut(User("new", ""))]),
        (PutUser("", "new", RABBITS), [UserPut(User("new", RABBITS))]),
        (PutUser("", "anna", None, ()), [UserPut(User("anna", HASH, (), {"max-channels": 5}))]),
        (PutUser("", "anna", ""), [UserPut(User("anna", "", ("management",), {"max-channels": 5}))]),
        (
            DeleteUser("", "anna"),
            [PermissionRemoved("anna", "/"), PermissionRemoved("anna", "shop"), UserRemoved("anna")],
        ),
        (PutPermission("/", "otto", "a|b", ".*", ""), [PermissionPut(Permission("otto", "/", "a|b", ".*", ""))]),
        (DeletePermission("shop", "anna"), [PermissionRemoved("anna", "shop")]),
        (
            PutLimits("shop", "", {"max-connections": 0}),
            [VhostPut(Vhost("shop", "all that is sold", ("live",), {"max-queues": 10, "max-connections": 0}))],
        ),
        (PutLimits("shop", "", {"max-queues": None}), [VhostPut(Vhost("shop", "all that is sold", ("live",)))]),
        (PutLimits("", "anna", {"max-channels": -1}), [UserPut(User("anna", HASH, ("management",)))]),
        (CloseConnection("", "life.1", "enough"), [ConnectionClosed("life.1", "enough")]),
        (SetTracing("shop", 0.5), [TracingSet("shop", 0.5)]),
        (SetTracing("shop", 0), []),
    ],
)
def test_commands_become_changes(topology: Topology, command: Command, changes: list[Change]) -> None:
    found = changes_for(topology, command, PLACES)
    assert found == changes
    for change in found:
        topology.apply(change)
    assert isinstance(command, CloseConnection) or changes_for_again(topology, command) == []


def changes_for_again(topology: Topology, command: Command) -> list[Change]:
    """The same command once more: nothing, or a NotFound where it has removed what it names."""
    try:
        return changes_for(topology, command, PLACES)
    except NotFound:
        return []


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (PutVhost(""), InvalidRequest, "a virtual host needs a name"),
        (PutVhost("x" * 256), InvalidRequest, "over 255 bytes"),
        (PutVhost("a\0b"), InvalidRequest, "control character"),
        (PutVhost("v", "d" * 5000), InvalidRequest, "description of vhost 'v' is over"),
        (PutVhost("v", "", ("",)), InvalidRequest, "a tag needs a name"),
        (PutVhost("v", "", ("t",) * 65), InvalidRequest, "65 tags"),
        (DeleteVhost("nope"), NotFound, "no vhost 'nope'"),
        (PutUser("", "", HASH), InvalidRequest, "a user needs a name"),
        (PutUser("", "u\n", HASH), InvalidRequest, "control character"),
        (PutUser("", "u", "secret"), InvalidRequest, "unknown password hash"),
        (DeleteUser("", "nobody"), NotFound, "no user 'nobody'"),
        (PutPermission("nope", "anna", "", "", ""), NotFound, "no vhost 'nope'"),
        (PutPermission("/", "nobody", "", "", ""), NotFound, "no user 'nobody'"),
        (PutPermission("/", "anna", "(", "", ""), InvalidRequest, "configure expression '(' is no regular expression"),
        (PutPermission("/", "anna", "", "*", ""), InvalidRequest, "write expression '*' is no regular expression"),
        (PutPermission("/", "anna", "", "", "a{2,1}"), InvalidRequest, "read expression 'a{2,1}'"),
        (PutPermission("/", "anna", "", "", "x" * 5000), InvalidRequest, "over 4096 characters"),
        (DeletePermission("nope", "anna"), NotFound, "no vhost 'nope'"),
        (DeletePermission("/", "nobody"), NotFound, "no user 'nobody'"),
        (PutLimits("nope", "", {}), NotFound, "no vhost 'nope'"),
        (PutLimits("", "nobody", {}), NotFound, "no user 'nobody'"),
        (
            PutLimits("/", "", {"max-channels": 1}),
            InvalidRequest,
            "unknown limit 'max-channels' for vhost '/'; known are max-connections, max-queues",
        ),
        (
            PutLimits("", "anna", {"max-queues": 1}),
            InvalidRequest,
            "unknown limit 'max-queues' for user 'anna'; known are max-connections, max-channels",
        ),
    ],
)
def test_refusals_say_why(topology: Topology, command: Command, error: type[RequestError], text: str) -> None:
    before = topology.snapshot()
    with pytest.raises(error) as refusal:
        changes_for(topology, command, PLACES)
    assert text in refusal.value.text
    assert topology.snapshot() == before


def test_the_default_virtual_host_can_be_deleted(topology: Topology) -> None:
    for change in changes_for(topology, DeleteVhost("/"), PLACES):
        topology.apply(change)
    assert list(topology.vhosts) == ["shop"]
    assert [queue.id for queue in topology.queues.values()] == [1]
    assert {vhost for vhost, _ in topology.exchanges} == {"shop"}


def test_the_user_of_a_first_start_is_guest() -> None:
    assert guest().name == "guest"
    assert verify_password("guest", guest().password)
