"""What commands change, and why they are refused."""

import pytest

from shardmq.commands import (
    Bind,
    BindingAdded,
    BindingRemoved,
    Change,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    Unbind,
)
from shardmq.coordinator.access import new_vhost
from shardmq.coordinator.queues import Places
from shardmq.coordinator.rules import changes_for
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, PreconditionFailed, RequestError
from shardmq.model import Binding, Exchange, Queue
from shardmq.topology import Topology

PLACES = Places(11, 4)


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    changes: list[Change] = [
        *new_vhost("/"),
        ExchangeAdded(Exchange("/", "flights", "topic")),
        QueueAdded(Queue("/", "delays", 1, 0)),
        BindingAdded(Binding("/", "flights", "delays", "UA.#")),
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
    ],
)
def test_what_is_already_so_changes_nothing(topology: Topology, command: Command) -> None:
    assert changes_for(topology, command, PLACES) == []


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        (DeclareExchange("/", "e", "fanout", False, {}), [ExchangeAdded(Exchange("/", "e", "fanout", False))]),
        (DeclareQueue("/", "q", False, {}), [QueueAdded(Queue("/", "q", 11, PLACES.of("/", "q"), False))]),
        (Bind("/", "amq.topic", "delays", "a", {"x": 1}),
         [BindingAdded(Binding("/", "amq.topic", "delays", "a", {"x": 1}))]),
        (Unbind("/", "flights", "delays", "UA.#", {}), [BindingRemoved(Binding("/", "flights", "delays", "UA.#"))]),
        (DeleteExchange("/", "flights"),
         [BindingRemoved(Binding("/", "flights", "delays", "UA.#")), ExchangeRemoved("/", "flights")]),
        (DeleteQueue("/", "delays"),
         [BindingRemoved(Binding("/", "flights", "delays", "UA.#")), QueueRemoved("/", "delays")]),
    ],
)  # fmt: skip
def test_commands_become_changes(topology: Topology, command: Command, changes: list[Change]) -> None:
    assert changes_for(topology, command, PLACES) == changes


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (DeclareQueue("/", "delays", False, {}), PreconditionFailed,
         "inequivalent arg 'durable' for queue 'delays' in vhost '/': received 'false' but current is 'true'"),
        (DeclareExchange("/", "flights", "direct", True, {}), PreconditionFailed,
         "inequivalent arg 'type' for exchange 'flights' in vhost '/': received 'direct' but current is 'topic'"),
        (DeclareExchange("/", "amq.direct", "direct", False, {}), PreconditionFailed, "inequivalent arg 'durable'"),
        (DeclareExchange("/", "amq.mine", "direct", True, {}), AccessRefused, "reserved prefix 'amq.*'"),
        (DeclareQueue("/", "amq.mine", True, {}), AccessRefused, "reserved prefix 'amq.*'"),
        (DeclareQueue("/", "", True, {}), InvalidRequest, "needs a name"),
        (DeclareQueue("/", "x" * 256, True, {}), InvalidRequest, "over 255 bytes"),
        (DeclareExchange("/", "", "direct", True, {}), AccessRefused, "default exchange"),
        (DeclareExchange("/", "e", "headerz", True, {}), InvalidRequest,
         "unknown exchange type 'headerz' for exchange 'e' in vhost '/'; known are direct, fanout, topic"),
        (DeclareQueue("/", "q", True, {"x-max-lenght": 3}), PreconditionFailed,
         "invalid arg 'x-max-lenght' for queue 'q' in vhost '/': known are x-consumer-timeout, "),
        (DeclareQueue("/", "q", True, {"x-max-length": True}), PreconditionFailed,
         "invalid arg 'x-max-length' for queue 'q' in vhost '/': True; expected is a whole number from 0"),
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
)  # fmt: skip
def test_refusals_say_why(topology: Topology, command: Command, error: type[RequestError], text: str) -> None:
    with pytest.raises(error) as refusal:
        changes_for(topology, command, PLACES)
    assert text in refusal.value.text


def test_a_queues_shard_depends_on_its_name_and_virtual_host_only() -> None:
    spread = [Places(1, 4).of("/", f"q{number}") for number in range(1000)]
    assert spread == [Places(99, 4).of("/", f"q{number}") for number in range(1000)]
    assert all(200 < spread.count(shard) < 300 for shard in range(4))
    assert [Places(1, 4).of("other", f"q{number}") for number in range(1000)] != spread
