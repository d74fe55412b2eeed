"""What commands on exchanges, queues and bindings change, and why they are refused."""

import re

import pytest

from shardmq.coordinator.rules import changes
from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import (
    AccessRefused,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    ReplyCode,
    RequestError,
    ResourceLocked,
)
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    Change,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    VhostPut,
)
from shardmq.topology.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Unbind,
)
from shardmq.topology.entities import Binding, Exchange, Queue, Vhost
from shardmq.topology.topology import Topology

PLACES = QueuePlacement(11, 4)


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    changes: list[Change] = [
        *new_vhost("/"),
        ExchangeAdded(Exchange("/", "flights", "topic")),
        QueueAdded(Queue("/", "delays", 1, 0)),
        BindingAdded(Binding("/", "flights", "delays", "UA.#")),
        ExchangeAdded(Exchange("/", "inner", "headers", False, {"alternate-exchange": "flights"}, True, True)),
        BindingAdded(Binding("/", "flights", "inner", "#", {}, True)),
        ExchangeAdded(Exchange("/", "shares", "x-consistent-hash", arguments={"hash-header": "user"})),
        QueueAdded(Queue("/", "mine", 2, 0, False, {"x-message-ttl": 5}, True, "life.7")),
        QueueAdded(Queue("/", "old", 3, 0, True, {"x-queue-type": "classic"})),
    ]
    for change in changes:
        topology.apply(change)
    return topology


@pytest.mark.parametrize(
    "command",
    [
        DeclareExchange("/", "flights", "topic", True, {}),
        DeclareExchange("/", "amq.direct", "direct", True, {}),
        DeclareQueue("/", "delays", True, {}),
        Bind("/", "flights", "delays", "UA.#", {}),
        Unbind("/", "flights", "delays", "no such", {}),
        DeclareExchange("/", "inner", "headers", False, {"alternate-exchange": "flights"}, True, True),
        DeclareQueue("/", "mine", False, {"x-message-ttl": 5}, True, "life.7"),
        DeclareQueue("/", "old", True, {}),
        DeclareQueue("/", "delays", True, {"x-queue-type": "classic"}),
        Bind("/", "flights", "inner", "#", {}, True),
        Unbind("/", "inner", "flights", "#", {}, True),
    ],
)
def test_what_is_already_so_changes_nothing(topology: Topology, command: Command) -> None:
    assert changes_for(topology, command, PLACES) == []


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (DeclareExchange("/", "e", "fanout", False, {}), [ExchangeAdded(Exchange("/", "e", "fanout", False))]),
        (DeclareQueue("/", "q", False, {}), [QueueAdded(Queue("/", "q", 11, PLACES.of("/", "q"), False))]),
        (
            Bind("/", "amq.topic", "delays", "a", {"x": 1}),
            [BindingAdded(Binding("/", "amq.topic", "delays", "a", {"x": 1}))],
        ),
        (Unbind("/", "flights", "delays", "UA.#", {}), [BindingRemoved(Binding("/", "flights", "delays", "UA.#"))]),
        (
            DeclareExchange("/", "e", "fanout", False, {"alternate-exchange": "later"}, True, True),
            [ExchangeAdded(Exchange("/", "e", "fanout", False, {"alternate-exchange": "later"}, True, True))],
        ),
        (
            DeclareExchange("/", "e", "x-consistent-hash", True, {"hash-property": "message_id"}),
            [ExchangeAdded(Exchange("/", "e", "x-consistent-hash", True, {"hash-property": "message_id"}))],
        ),
        (
            DeclareQueue("/", "amq.gen-x", False, {}, True, "life.1", True),
            [QueueAdded(Queue("/", "amq.gen-x", 11, PLACES.of("/", "amq.gen-x"), False, {}, True, "life.1"))],
        ),
        (Bind("/", "inner", "flights", "k", {}, True), [BindingAdded(Binding("/", "inner", "flights", "k", {}, True))]),
        (Bind("/", "inner", "inner", "k", {}, True), [BindingAdded(Binding("/", "inner", "inner", "k", {}, True))]),
        (Bind("/", "shares", "delays", "10", {}), [BindingAdded(Binding("/", "shares", "delays", "10"))]),
        (
            DeleteExchange("/", "flights"),
            [
                BindingRemoved(Binding("/", "flights", "delays", "UA.#")),
                BindingRemoved(Binding("/", "flights", "inner", "#", {}, True)),
                ExchangeRemoved("/", "flights"),
            ],
        ),
        (
            DeleteExchange("/", "inner"),
            [BindingRemoved(Binding("/", "flights", "inner", "#", {}, True)), ExchangeRemoved("/", "inner")],
        ),
        (
            DeleteExchange("/", "inner", if_unused=True),
            [BindingRemoved(Binding("/", "flights", "inner", "#", {}, True)), ExchangeRemoved("/", "inner")],
        ),
        (DeleteQueue("/", "mine", queue=2), [QueueRemoved("/", "mine")]),
        (
            DeleteQueue("/", "delays"),
            [BindingRemoved(Binding("/", "flights", "delays", "UA.#")), QueueRemoved("/", "delays")],
        ),
    ],
)
def test_commands_become_changes(topology: Topology, command: Command, changes: list[Change]) -> None:
    assert changes_for(topology, command, PLACES) == changes


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (
            DeclareQueue("/", "delays", False, {}),
            PreconditionFailed,
            "inequivalent arg 'durable' for queue 'delays' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            DeclareExchange("/", "flights", "direct", True, {}),
            PreconditionFailed,
            "inequivalent arg 'type' for exchange 'flights' in vhost '/': received 'direct' but current is 'topic'",
        ),
        (DeclareExchange("/", "amq.direct", "direct", False, {}), PreconditionFailed, "inequivalent arg 'durable'"),
        (DeclareExchange("/", "amq.mine", "direct", True, {}), AccessRefused, "reserved prefix 'amq.*'"),
        (DeclareQueue("/", "amq.mine", True, {}), AccessRefused, "reserved prefix 'amq.*'"),
        (DeclareQueue("/", "", True, {}), InvalidRequest, "needs a name"),
        (DeclareQueue("/", "x" * 256, True, {}), InvalidRequest, "over 255 bytes"),
        (
            DeclareExchange("/", "inner", "headers", False, {"alternate-exchange": "flights"}, False, True),
            PreconditionFailed,
            "inequivalent arg 'auto_delete' for exchange 'inner' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            DeclareExchange("/", "inner", "headers", False, {"alternate-exchange": "flights"}, True, False),
            PreconditionFailed,
            "inequivalent arg 'internal' for exchange 'inner' in vhost '/'",
        ),
        (
            DeclareExchange("/", "inner", "headers", False, {}, True, True),
            PreconditionFailed,
            "inequivalent arg 'alternate-exchange' for exchange 'inner' in vhost '/': received none but current is "
            "the value 'flights' of type 'longstr'",
        ),
        (
            DeclareExchange("/", "e", "direct", True, {"alternate-exchange": 1}),
            PreconditionFailed,
            "invalid arg 'alternate-exchange' for exchange 'e' in vhost '/': 1; expected is a string",
        ),
        (
            DeclareExchange("/", "e", "direct", True, {"hash-header": "h"}),
            PreconditionFailed,
            "invalid arg 'hash-header' for exchange 'e' in vhost '/': known are alternate-exchange",
        ),
        (
            DeclareExchange("/", "e", "x-consistent-hash", True, {"hash-header": "h", "hash-property": "timestamp"}),
            PreconditionFailed,
            "mutually exclusive",
        ),
        (
            DeclareExchange("/", "e", "x-consistent-hash", True, {"hash-property": "app_id"}),
            PreconditionFailed,
            "expected is one of message_id, correlation_id, timestamp",
        ),
        (DeleteExchange("/", "flights", if_unused=True), PreconditionFailed, "exchange 'flights' in vhost '/' in use"),
        (
            DeclareQueue("/", "mine", False, {"x-message-ttl": 5}, True, "life.8"),
            ResourceLocked,
            "cannot obtain exclusive access to locked queue 'mine' in vhost '/'",
        ),
        (DeclareQueue("/", "mine", False, {"x-message-ttl": 5}, True), ResourceLocked, "locked queue 'mine'"),
        (DeclareQueue("/", "delays", True, {}, owner="life.7"), ResourceLocked, "locked queue 'delays'"),
        (
            DeclareQueue("/", "mine", False, {"x-message-ttl": 6}, True, "life.7"),
            PreconditionFailed,
            "inequivalent arg 'x-message-ttl' for queue 'mine' in vhost '/': received '6' but current is '5'",
        ),
        (
            DeclareQueue("/", "mine", False, {"x-message-ttl": 5}, False, "life.7"),
            PreconditionFailed,
            "inequivalent arg 'auto_delete'",
        ),
        (
            DeclareQueue("/", "delays", True, {"x-queue-type": "quorum"}),
            PreconditionFailed,
            "inequivalent arg 'x-queue-type' for queue 'delays' in vhost '/': received 'quorum' but current is "
            "'classic'",
        ),
        (DeclareQueue("/", "amq.gen-x", True, {}), AccessRefused, "reserved prefix 'amq.*'"),
        (DeclareQueue("/", "amq.mine", True, {}, server_named=True), AccessRefused, "reserved prefix 'amq.*'"),
        (DeleteQueue("/", "mine", queue=1), NotFound, "no queue 'mine' in vhost '/'"),
        (Bind("/", "flights", "", "k", {}, True), AccessRefused, "nothing can be bound to it"),
        (Bind("/", "flights", "nope", "k", {}, True), NotFound, "no exchange 'nope' in vhost '/'"),
        (
            Bind("/", "amq.headers", "delays", "", {"x-match": "some"}),
            PreconditionFailed,
            "invalid x-match field value 'some'; expected one of all, any, all-with-x, any-with-x",
        ),
        (Bind("/", "shares", "delays", "many", {}), PreconditionFailed, "binding key 'many' is no weight"),
        (DeclareExchange("/", "", "direct", True, {}), AccessRefused, "default exchange"),
        (
            DeclareExchange("/", "e", "headerz", True, {}),
            InvalidRequest,
            "unknown exchange type 'headerz' for exchange 'e' in vhost '/'; known are direct, fanout, topic",
        ),
        (
            DeclareQueue("/", "q", True, {"x-max-lenght": 3}),
            PreconditionFailed,
            "invalid arg 'x-max-lenght' for queue 'q' in vhost '/': known are x-consumer-timeout, ",
        ),
        (
            DeclareQueue("/", "q", True, {"x-max-length": True}),
            PreconditionFailed,
            "invalid arg 'x-max-length' for queue 'q' in vhost '/': True; expected is a whole number from 0",
        ),
        (DeleteExchange("/", "amq.topic"), AccessRefused, "belongs to the broker"),
        (DeleteExchange("/", ""), AccessRefused, "default exchange"),
        (DeleteExchange("/", "nope"), NotFound, "no exchange 'nope' in vhost '/'"),
        (DeleteQueue("/", "nope"), NotFound, "no queue 'nope' in vhost '/'"),
        (Bind("/", "", "delays", "k", {}), AccessRefused, "default exchange"),
        (Unbind("/", "", "delays", "k", {}), AccessRefused, "default exchange"),
        (Bind("/", "nope", "delays", "k", {}), NotFound, "no exchange 'nope'"),
        (Bind("/", "flights", "nope", "k", {}), NotFound, "no queue 'nope' in vhost '/'; declare it first"),
        (Bind("/", "flights", "delays", "k" * 256, {}), InvalidRequest, "over 255 bytes"),
        (Unbind("/", "flights", "nope", "k", {}), NotFound, "no queue 'nope'"),
        (DeclareQueue("other", "q", True, {}), NotFound, "no vhost 'other'"),
    ],
)
def test_refusals_say_why(topology: Topology, command: Command, error: type[RequestError], text: str) -> None:
    with pytest.raises(error) as refusal:
        changes_for(topology, command, PLACES)
    assert text in refusal.value.text


def test_a_queues_shard_depends_on_its_name_and_virtual_host_only() -> None:
    spread = [QueuePlacement(1, 4).of("/", f"q{number}") for number in range(1000)]
    assert spread == [QueuePlacement(99, 4).of("/", f"q{number}") for number in range(1000)]
    assert all(200 < spread.count(shard) < 300 for shard in range(4))
    assert [QueuePlacement(1, 4).of("other", f"q{number}") for number in range(1000)] != spread


def test_an_unknown_exchange_type_has_rabbitmqs_code(topology: Topology) -> None:
    with pytest.raises(RequestError) as refusal:
        changes_for(topology, DeclareExchange("/", "e", "magic", True, {}), PLACES)
    assert refusal.value.code == ReplyCode.COMMAND_INVALID


def test_a_queue_limit_counts_what_is_there_and_what_is_coming(topology: Topology) -> None:
    topology.apply(VhostPut(Vhost("/", limits={"max-queues": 5})))
    command = DeclareQueue("/", "q", True, {})
    assert changes_for(topology, command, QueuePlacement(11, 4, {"/": 1, "other": 9}))
    text = "cannot declare queue 'q': queue limit in vhost '/' (5) is reached"
    with pytest.raises(PreconditionFailed, match=re.escape(text)):
        changes_for(topology, command, QueuePlacement(11, 4, {"/": 2}))
    assert changes_for(topology, DeclareQueue("/", "delays", True, {}), QueuePlacement(11, 4, {"/": 9})) == []


def test_an_exchange_goes_with_its_last_binding_and_takes_those_before_it_along() -> None:
    topology = Topology()
    chain = [Exchange("/", f"e{number}", "fanout", auto_delete=number != 1) for number in range(4)]
    changes: list[Change] = [*new_vhost("/"), *map(ExchangeAdded, chain), QueueAdded(Queue("/", "q", 1, 0))]
    links = [Binding("/", f"e{number}", f"e{number + 1}", "", {}, True) for number in range(3)]
    end = Binding("/", "e3", "q", "")
    for change in [*changes, *map(BindingAdded, [*links, end])]:
        topology.apply(change)
    assert changes_for(topology, DeleteQueue("/", "q"), PLACES) == [
        BindingRemoved(end),
        BindingRemoved(links[2]),
        BindingRemoved(links[1]),
        QueueRemoved("/", "q"),
        ExchangeRemoved("/", "e3"),
        ExchangeRemoved("/", "e2"),
    ]
    assert changes_for(topology, Unbind("/", "e0", "e1", "", {}, True), PLACES) == [
        BindingRemoved(links[0]),
        ExchangeRemoved("/", "e0"),
    ]


def test_an_exchange_that_never_had_a_binding_stays(topology: Topology) -> None:
    topology.apply(ExchangeAdded(Exchange("/", "fresh", "fanout", auto_delete=True)))
    assert changes_for(topology, Unbind("/", "fresh", "delays", "k", {}), PLACES) == []
    assert changes_for(topology, DeleteQueue("/", "old"), PLACES) == [QueueRemoved("/", "old")]


def test_a_cycle_of_auto_delete_exchanges_goes_at_once() -> None:
    topology = Topology()
    ring = [Binding("/", "a", "b", "", {}, True), Binding("/", "b", "a", "", {}, True)]
    exchanges = [Exchange("/", name, "fanout", auto_delete=True) for name in ("a", "b")]
    for change in [*new_vhost("/"), *map(ExchangeAdded, exchanges), *map(BindingAdded, ring)]:
        topology.apply(change)
    changes = changes_for(topology, Unbind("/", "a", "b", "", {}, True), PLACES)
    assert changes == [*map(BindingRemoved, ring), ExchangeRemoved("/", "a"), ExchangeRemoved("/", "b")]
    for change in changes:
        topology.apply(change)
    assert not topology.bindings


def test_a_rule_that_fails_as_nobody_expected_refuses_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object) -> list[Change]:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setitem(changes._INSIDE, Bind, fail)
    topology = Topology()
    for change in new_vhost("/"):
        topology.apply(change)
    with pytest.raises(RequestError, match=r"failed to carry out Bind \(ZeroDivisionError\): nothing was") as refused:
        changes_for(topology, Bind("/", "amq.topic", "q", "k", {}), QueuePlacement(1, 1))
    assert refused.value.code == ReplyCode.INTERNAL_ERROR
