"""Commands through the real process loop and real links: who is waited for, who is told what, in which order."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.coordinator import Changes, RunCommand, Snapshot
from shardmq.coordinator import assembly
from shardmq.coordinator.handlers import commands
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.topology.changes import BindingAdded, BindingRemoved, ExchangeRemoved, QueueRemoved
from shardmq.topology.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
)
from shardmq.topology.entities import Binding, Exchange, Queue, predeclared

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room

PLACES = QueuePlacement(1, 2)
NAMES = [f"q{number}" for number in range(20)]
ON_0 = [name for name in NAMES if PLACES.of("/", name) == 0]
ON_1 = [name for name in NAMES if PLACES.of("/", name) == 1]


def declare(name: str, durable: bool = True) -> DeclareQueue:
    return DeclareQueue("/", name, durable, {})


def told(gateway: "GatewayEnd") -> list[object]:
    return [change for event in gateway.heard if isinstance(event, Changes) for change in event.changes]


def test_a_gateway_is_first_told_everything(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    snapshot = next(event for event in gateway.heard if isinstance(event, Snapshot))
    assert [vhost.name for vhost in snapshot.vhosts] == ["/"]
    assert {exchange.name for exchange in snapshot.exchanges} == {each.name for each in predeclared("/")}
    assert [user.name for user in snapshot.users] == ["guest"]
    assert snapshot.shards == [room.address("shard-0"), room.address("shard-1")]


def test_a_declaration_waits_for_its_shard(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    shard.answers = False
    request = gateway.ask(declare(ON_0[0]))
    room.until(lambda: shard.withheld)
    room.settle(gateway)
    assert request not in gateway.answers
    assert not told(gateway)
    shard.answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, shard.queues[ON_0[0]])
    assert gateway.topology.router.route("/", "", ON_0[0])[0].id == shard.queues[ON_0[0]]


def test_a_declaration_waits_for_every_gateway(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    other.applies = False
    request = asking.ask(DeclareExchange("/", "e", "topic", True, {}))
    room.until(lambda: ("/", "e") in other.topology.exchanges and ("/", "e") in asking.topology.exchanges)
    room.settle(asking)
    assert request not in asking.answers
    other.say_applied()
    assert room.until(lambda: asking.answers.get(request)) == Answer(request, None)


def test_a_repeated_declaration_waits_for_gateways_that_lag(room: "Room") -> None:
    room.start()
    asking, third, other = (room.gateway(f"gateway-{number}") for number in range(3))
    other.applies = False
    first = asking.ask(DeclareExchange("/", "e", "topic", True, {}))
    again = third.ask(DeclareExchange("/", "e", "topic", True, {}))
    room.until(lambda: ("/", "e") in other.topology.exchanges)
    room.settle(asking)
    room.settle(third)
    assert first not in asking.answers
    assert again not in third.answers
    other.say_applied()
    room.until(lambda: asking.answers.get(first) and third.answers.get(again))


@pytest.mark.parametrize("others", [0, 1])
def test_who_asks_hears_of_the_change_and_then_of_the_answer_without_saying_so(room: "Room", others: int) -> None:
    room.start()
    asking, shard = room.gateway("asking"), room.shard(0)
    for number in range(others):
        room.gateway(f"gateway-{number}")
    asking.applies = False
    for command in (declare(ON_0[0]), Bind("/", "amq.direct", ON_0[0], "key", {})):
        asking.heard.clear()
        request = asking.ask(command)
        room.until(lambda: request in asking.answers)  # noqa: B023
        change, answer = asking.heard
        assert isinstance(change, Changes)
        assert answer == asking.answers[request]
    assert shard.queues.keys() == {ON_0[0]}


def test_a_queue_is_not_dropped_before_who_deletes_it_has_followed(room: "Room") -> None:
    room.start()
    asking, shard = room.gateway(), room.shard(0)
    room.perform(asking, declare(ON_0[0]))
    asking.applies = False
    assert room.perform(asking, DeleteQueue("/", ON_0[0])) == Answer(2, None)
    assert ("/", ON_0[0]) not in asking.topology.queues
    room.settle(asking)
    assert not shard.dropped
    asking.say_applied()
    room.until(lambda: shard.dropped)


def test_a_queue_that_was_deleted_by_a_gateway_that_is_gone_is_dropped(room: "Room") -> None:
    room.start()
    asking, shard = room.gateway(), room.shard(0)
    declared = room.perform(asking, declare(ON_0[0]))
    asking.applies = False
    room.perform(asking, DeleteQueue("/", ON_0[0]))
    room.hang_up(asking)
    room.gateway("gateway-1")
    room.until(lambda: shard.dropped == [declared.result])  # type: ignore[union-attr]


def test_a_gateway_that_is_gone_is_not_waited_for(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    room.hang_up(other)
    assert room.perform(asking, DeclareExchange("/", "e", "topic", True, {})) == Answer(1, None)


def test_a_silent_gateway_is_waited_for_no_longer_than_silence(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmq.bus.listener.LINK_SILENCE_SECONDS", 1.5)
    room.start()
    asking, stopped = room.gateway("gateway-0"), room.gateway("gateway-1")
    room.ends.remove(stopped)
    try:
        assert room.perform(asking, DeclareExchange("/", "e", "topic", True, {})) == Answer(1, None)
    finally:
        stopped.dialer.close()


def test_a_gateway_that_does_not_follow_is_named(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ANSWER_SECONDS", 0.3)
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    other.applies = False
    answer = room.perform(asking, DeclareExchange("/", "e", "topic", True, {}))
    assert isinstance(answer, Refusal)
    assert answer.text.startswith("gateway-1 has not taken in the change yet")


def test_a_queue_whose_deletion_took_too_long_is_dropped_once_every_gateway_has_followed(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "ANSWER_SECONDS", 0.3)
    room.start()
    shard, asking, other = room.shard(1), room.gateway("gateway-0"), room.gateway("gateway-1")
    declared = room.perform(asking, declare(ON_1[0]))
    assert isinstance(declared, Answer)
    other.applies = False
    assert isinstance(room.perform(asking, DeleteQueue("/", ON_1[0])), Refusal)
    assert not shard.dropped
    other.say_applied()
    room.until(lambda: shard.dropped == [declared.result])


def test_a_declaration_for_a_shard_that_is_down_is_refused_and_completed_later(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.3)
    room.start()
    gateway = room.gateway()
    answer = room.perform(gateway, declare(ON_1[0]))
    assert isinstance(answer, Refusal)
    assert answer.code == 506
    assert answer.text.startswith("shard-1 is not reachable")
    monkeypatch.setattr(commands, "SHARD_SECONDS", 10.0)
    request = gateway.ask(declare(ON_1[0]))
    shard = room.shard(1)
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, shard.queues[ON_1[0]])
    assert gateway.topology.queue("/", ON_1[0]).id == shard.queues[ON_1[0]]


def test_a_shard_that_is_down_does_not_hold_up_the_others(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.shard(0)
    waiting = gateway.ask(declare(ON_1[0]))
    assert isinstance(room.perform(gateway, declare(ON_0[0])), Answer)
    assert isinstance(room.perform(gateway, DeclareExchange("/", "e", "fanout", True, {})), Answer)
    assert waiting not in gateway.answers


def test_a_shards_refusal_reaches_who_asked(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    shard.refusal = "the disk is full"
    assert room.perform(gateway, declare(ON_0[0])) == Refusal(1, 506, "the disk is full")
    shard.refusal = None
    assert room.perform(gateway, declare(ON_0[0])) == Answer(2, shard.queues[ON_0[0]])


def test_commands_on_one_name_keep_their_order(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.shard(0)
    room.shard(1)
    name = ON_0[0]
    for _ in range(10):
        gateway.ask(declare(name))
        gateway.ask(Bind("/", "amq.topic", name, "a.#", {}))
        gateway.ask(DeleteQueue("/", name))
    room.until(lambda: len(gateway.answers) == 30)
    ids = [gateway.answers[request].result for request in range(1, 31, 3)]  # type: ignore[union-attr]
    assert ids == sorted(set(ids))
    assert all(isinstance(answer, Answer) for answer in gateway.answers.values())
    assert gateway.topology.router.route("/", "amq.topic", "a.b") == ()


def test_binding_does_not_wait_for_earlier_bindings_to_be_followed(room: "Room") -> None:
    room.start()
    gateway, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    room.shard(0)
    room.perform(gateway, declare(ON_0[0]))
    other.applies = False
    requests = [gateway.ask(Bind("/", "amq.topic", ON_0[0], f"k{number}", {})) for number in range(50)]
    room.until(lambda: len(other.topology.bindings) == 50)
    room.settle(gateway)
    assert not gateway.answers.keys() & set(requests)
    other.say_applied()
    room.until(lambda: gateway.answers.keys() >= set(requests))


def test_a_restarted_coordinator_gives_gateways_time_to_return(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "RETURN_SECONDS", 3600.0)
    room.start()
    gateway = room.gateway()
    command = DeclareExchange("/", "e", "topic", True, {})
    assert isinstance(room.perform(gateway, command), Answer)
    room.restart()
    gateway = room.gateway("gateway-1")
    request = gateway.ask(command)
    room.settle(gateway)
    assert request not in gateway.answers
    monkeypatch.setattr(assembly, "RETURN_SECONDS", 0.0)
    room.restart()
    gateway = room.gateway("gateway-2")
    assert isinstance(room.perform(gateway, command), Answer)


def test_a_deleted_queue_leaves_the_gateways_before_its_shard(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    number = room.perform(gateway, declare(ON_0[0])).result  # type: ignore[union-attr]
    room.perform(gateway, Bind("/", "amq.fanout", ON_0[0], "", {}))
    gateway.applies = False
    gateway.heard.clear()
    request = gateway.ask(DeleteQueue("/", ON_0[0]))
    room.until(lambda: told(gateway))
    room.settle(gateway)
    assert told(gateway) == [BindingRemoved(Binding("/", "amq.fanout", ON_0[0], "")), QueueRemoved("/", ON_0[0])]
    assert gateway.answers[request] == Answer(request, None)
    assert not shard.dropped
    gateway.say_applied()
    room.until(lambda: shard.dropped == [number])


def test_a_queue_deleted_while_its_shard_is_away_is_dropped_when_it_is_back(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    number = room.perform(gateway, declare(ON_0[0])).result  # type: ignore[union-attr]
    room.hang_up(shard)
    assert room.perform(gateway, DeleteQueue("/", ON_0[0])) == Answer(2, None)
    room.stop()
    room.start()
    back = room.shard(0)
    room.until(lambda: back.dropped)
    assert back.dropped == [number]
    assert not back.queues
    # Answered after the drop on the same link: when this is through, so is that. A coordinator stopped before it has
    # heard the answer asks again, as it must.
    assert isinstance(room.perform(room.gateway("gateway-1"), declare(ON_0[1])), Answer)
    room.restart()
    assert isinstance(room.perform(room.gateway("gateway-2"), declare(ON_0[2])), Answer)
    assert back.dropped == [number]


def test_deleting_an_exchange_tells_its_bindings_first(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.shard(0)
    room.perform(gateway, declare(ON_0[0]))
    room.perform(gateway, DeclareExchange("/", "e", "direct", False, {}))
    room.perform(gateway, Bind("/", "e", ON_0[0], "k", {}))
    room.perform(gateway, DeleteExchange("/", "e"))
    binding = Binding("/", "e", ON_0[0], "k")
    assert told(gateway)[2:] == [BindingAdded(binding), BindingRemoved(binding), ExchangeRemoved("/", "e")]


def test_a_shard_is_given_its_queues_with_every_session(room: "Room") -> None:
    room.start()
    gateway, shard, other = room.gateway(), room.shard(0), room.shard(1)
    for name in NAMES:
        room.perform(gateway, declare(name, durable=False))
    assert set(shard.queues) == set(ON_0)
    assert set(other.queues) == set(ON_1)
    room.hang_up(shard)
    again = room.shard(0)
    room.until(lambda: again.queues)
    assert again.queues == shard.queues


def test_what_a_lost_gateway_asked_for_is_carried_out(room: "Room") -> None:
    room.start()
    asking, other, shard = room.gateway("gateway-0"), room.gateway("gateway-1"), room.shard(0)
    shard.answers = False
    asking.ask(declare(ON_0[0]))
    room.until(lambda: shard.withheld)
    room.hang_up(asking)
    shard.answers = True
    room.until(lambda: ("/", ON_0[0]) in other.topology.queues)
    assert isinstance(room.perform(other, declare(ON_0[0])), Answer)


def test_durable_things_survive_and_others_live_as_long_as_the_broker(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    kept, lost = ON_0[:2]
    for name, durable in ((kept, True), (lost, False)):
        room.perform(gateway, declare(name, durable))
        room.perform(gateway, DeclareExchange("/", f"e-{name}", "direct", durable, {}))
    for exchange, queue in ((kept, kept), (kept, lost), (lost, kept), (lost, lost)):
        room.perform(gateway, Bind("/", f"e-{exchange}", queue, "k", {}))
    before = gateway.topology.snapshot()
    room.restart()
    fields = room.gateway("gateway-1").topology.snapshot()
    for noun in ("vhosts", "exchanges", "queues", "bindings", "users"):
        assert sorted(getattr(fields, noun), key=str) == sorted(getattr(before, noun), key=str)
    room.restart(boot_id="second")
    topology = room.gateway("gateway-2").topology
    assert [name for _, name in topology.queues] == [kept]
    assert list(topology.bindings.values()) == [Binding("/", f"e-{kept}", kept, "k")]
    assert topology.exchanges["/", f"e-{kept}"] == Exchange("/", f"e-{kept}", "direct")
    assert ("/", f"e-{lost}") not in topology.exchanges
    room.until(lambda: shard.dropped)
    assert shard.dropped == [shard.queues[lost]]


def test_changes_of_one_pass_tell_whose_each_is(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    users = ["anna", "anna", "", "bert", "anna"]
    for number, user in enumerate(users):
        last = gateway.call(RunCommand(DeclareExchange("/", f"e{number}", "direct", False, {}), user))
    room.until(lambda: last in gateway.answers)
    (news,) = [event for event in gateway.heard if isinstance(event, Changes)]
    assert (len(news.changes), news.performers) == (5, [(2, "anna"), (1, ""), (1, "bert"), (1, "anna")])


def test_a_queue_keeps_its_shard_when_there_are_more(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    room.perform(gateway, declare(ON_0[0]))
    room.shards = 5
    room.restart()
    assert room.gateway("gateway-1").topology.queue("/", ON_0[0]) == Queue("/", ON_0[0], shard.queues[ON_0[0]], 0)


def test_inspecting_tells_what_there_is(room: "Room", tmp_path: Path) -> None:  # noqa: ARG001
    room.start()
    gateway = room.gateway()
    room.perform(gateway, DeclareExchange("/", "e", "direct", False, {}))
    gateway.dialer.post(Call(99, Inspect()))
    room.until(lambda: 99 in gateway.answers)
    answer = gateway.answers[99]
    assert isinstance(answer, Answer)
    status = answer.result
    assert status["process"] == "coordinator"
    assert (status["exchanges"], status["queues"], status["bindings"], status["gateways"]) == (
        len(predeclared("/")) + 1,
        0,
        0,
        1,
    )
    assert status["version_of_topology"] == gateway.topology.version
