"""What the topology holds, what follows from it, and that replicas stay the same as their authority."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, RequestError
from shardmq.topology import router
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    ExchangeAdded,
    QueueAdded,
    QueueRemoved,
    TracingSet,
    UserPut,
    VhostPut,
    VhostRemoved,
)
from shardmq.topology.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    DeleteExchange,
    DeleteQueue,
    DeleteTopic,
    ExtendTopic,
    Unbind,
)
from shardmq.topology.entities import Binding, Exchange, Queue, User, Vhost
from shardmq.topology.topology import Topology


def with_queues(*names: str) -> Topology:
    topology = Topology()
    for change in new_vhost("/"):
        topology.apply(change)
    for number, name in enumerate(names, 1):
        topology.apply(QueueAdded(Queue("/", name, number, 0)))
    return topology


def names(queues: tuple[Queue, ...]) -> set[str]:
    assert len(queues) == len({queue.id for queue in queues})
    return {queue.name for queue in queues}


def test_the_default_exchange_routes_to_the_queue_named_by_the_key() -> None:
    topology = with_queues("a", "b")
    assert names(topology.router.route("/", "", "a")) == {"a"}
    assert topology.router.route("/", "", "c") == ()


def test_a_queue_bound_by_two_matching_keys_gets_a_message_once() -> None:
    topology = with_queues("a")
    topology.apply(BindingAdded(Binding("/", "amq.topic", "a", "x.*")))
    topology.apply(BindingAdded(Binding("/", "amq.topic", "a", "#")))
    assert names(topology.router.route("/", "amq.topic", "x.y")) == {"a"}


def test_bindings_that_differ_in_their_arguments_are_two() -> None:
    topology = with_queues("a")
    plain, other = Binding("/", "amq.direct", "a", "k"), Binding("/", "amq.direct", "a", "k", {"x": 1, "y": 2})
    topology.apply(BindingAdded(plain))
    topology.apply(BindingAdded(other))
    topology.apply(BindingRemoved(Binding("/", "amq.direct", "a", "k", {"y": 2, "x": 1})))
    assert names(topology.router.route("/", "amq.direct", "k")) == {"a"}
    topology.apply(BindingRemoved(plain))
    assert topology.router.route("/", "amq.direct", "k") == ()


def test_a_remembered_route_is_forgotten_with_every_change() -> None:
    topology = with_queues("a")
    assert topology.router.route("/", "", "b") == ()
    topology.apply(QueueAdded(Queue("/", "b", 9, 0)))
    assert names(topology.router.route("/", "", "b")) == {"b"}
    topology.apply(QueueRemoved("/", "b"))
    assert topology.router.route("/", "", "b") == ()


def test_a_remembered_route_is_the_same_object() -> None:
    topology = with_queues("a")
    assert topology.router.route("/", "", "a") is topology.router.route("/", "", "a")


def test_remembered_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "ROUTES_MAX", 100)
    topology = with_queues("a")
    for number in range(1000):
        topology.router.route("/", "amq.direct", f"key-{number}")
        assert len(topology.router._routes) <= 100


def test_what_is_missing_is_named() -> None:
    topology = with_queues("a")
    with pytest.raises(NotFound, match="no queue 'x' in vhost '/'; declare it first"):
        topology.queue("/", "x")
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'; declare it first"):
        topology.router.route("/", "x", "k")
    with pytest.raises(NotFound, match="no vhost 'other'"):
        topology.router.route("other", "", "a")
    with pytest.raises(NotFound, match="no vhost 'other'"):
        topology.queue("other", "a")


def test_binding_keys_are_checked_by_the_exchanges_type() -> None:
    topology = with_queues()
    topology.check_binding_key("/", "amq.direct", "a.*b")
    with pytest.raises(InvalidRequest, match=r"binding key 'a\.\*b'"):
        topology.check_binding_key("/", "amq.topic", "a.*b")


def test_topics_that_a_message_passes_take_turns_together() -> None:
    topology = with_queues()
    for name, partitions in (("two", 2), ("three", 3)):
        for change in changes_for(
            topology, DeclareTopic("/", name, partitions, {}), QueuePlacement(partitions * 10, 2)
        ):
            topology.apply(change)
    topology.apply(ExchangeAdded(Exchange("/", "in", "fanout")))
    for name in ("two", "three"):
        topology.apply(BindingAdded(Binding("/", "in", name, "", to_exchange=True)))
    routes = topology.router
    assert [routes.turns("/", exchange, "") for exchange in ("two", "three", "in", "amq.topic", "")] == [2, 3, 6, 0, 0]
    assert [routes.turns("/", exchange, "key") for exchange in ("two", "in")] == [0, 0]
    found = [names(routes.route_message("/", "in", ("",), None, turn)) for turn in range(6)]
    assert len({tuple(sorted(each)) for each in found}) == 6
    assert all(len(each) == 2 for each in found)
    partition = routes.partition_of("/", "three", "key")
    assert routes.route("/", "three", "key") == (partition,)
    assert routes.partition_of("/", "three", "") is routes.partition_of("/", "in", "key") is None


def test_virtual_hosts_are_apart() -> None:
    topology = with_queues("a")
    topology.apply(VhostPut(Vhost("other")))
    topology.apply(ExchangeAdded(Exchange("other", "e", "fanout")))
    topology.apply(QueueAdded(Queue("other", "a", 77, 0)))
    topology.apply(BindingAdded(Binding("other", "e", "a", "")))
    assert [queue.id for queue in topology.router.route("other", "e", "")] == [77]
    assert [queue.id for queue in topology.router.route("/", "", "a")] == [1]


def test_loading_a_snapshot_forgets_what_was_there() -> None:
    topology = with_queues("a")
    topology.apply(UserPut(User("guest", "hash")))
    topology.apply(TracingSet("/", 0.5))
    topology.version = 7
    replica = with_queues("b")
    replica.router.route("/", "", "b")
    replica.load(topology.snapshot())
    assert replica.snapshot() == topology.snapshot()
    assert replica.router.route("/", "", "b") == ()


def test_a_virtual_host_that_is_deleted_is_not_traced_any_more() -> None:
    topology = Topology()
    for change in (VhostPut(Vhost("other")), TracingSet("other", 1.0), VhostRemoved("other")):
        topology.apply(change)
    assert topology.tracing == {}


TOPIC = st.sampled_from(["e", "t"])
NAME = st.sampled_from(["a", "b"])
EXCHANGE = st.sampled_from(["e", "f", "amq.topic", ""])
KEY = st.sampled_from(["k", "k.*", "#"])
ARGUMENTS = st.sampled_from([{}, {"x": 1}])
COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        DeclareExchange, st.just("/"), EXCHANGE, st.sampled_from(["topic", "fanout"]), st.just(True), st.just({})
    ),
    st.builds(DeleteExchange, st.just("/"), EXCHANGE),
    st.builds(DeclareQueue, st.just("/"), NAME, st.booleans(), st.just({})),
    st.builds(DeleteQueue, st.just("/"), NAME),
    st.builds(DeclareTopic, st.just("/"), TOPIC, st.integers(1, 3), st.just({})),
    st.builds(ExtendTopic, st.just("/"), TOPIC, st.integers(1, 5)),
    st.builds(DeleteTopic, st.just("/"), TOPIC),
    st.builds(DeclareQueue, st.just("/"), st.just("e-2"), st.just(True), st.just({"x-queue-type": "stream"})),
    st.builds(DeleteQueue, st.just("/"), st.sampled_from(["e-0", "e-2"])),
    st.builds(Bind, st.just("/"), EXCHANGE, NAME, KEY, ARGUMENTS),
    st.builds(Unbind, st.just("/"), EXCHANGE, NAME, KEY, ARGUMENTS),
)


def expected(topology: Topology, exchange: str, key: str) -> set[str]:
    """Routes from the bare lists, for the keys used here."""
    topic = topology.topics.get(("/", exchange))
    if topic is not None:
        partition = topology.queue_by_id(topic.partitions[xxh3_64_intdigest(key.encode()) % len(topic.partitions)])
        assert partition is not None
        return {partition.name}
    found = set()
    for binding in topology.bindings.values():
        if binding.exchange == exchange and (
            topology.exchanges["/", exchange].type == "fanout"
            or binding.key in ("#", key)
            or (binding.key == "k.*" and key == "k.l")
        ):
            found.add(binding.destination)
    return found


def check_topics(topology: Topology) -> None:
    """Topics are whole, and every queue knows whether it is a partition."""
    partitions = {}
    for (_, name), topic in topology.topics.items():
        for number, queue_id in enumerate(topic.partitions):
            queue = topology.queue("/", f"{name}-{number}")
            assert (queue.id, queue.durable, queue.arguments["x-topic"]) == (queue_id, True, name)
            (binding,) = [each for each in topology.bindings_of_queue("/", queue.name) if each.exchange == name]
            assert binding.key == str(number)
            partitions[queue_id] = topic
        assert topology.exchange("/", name).type == "x-partition"
        assert topology.binding_count("/", name) == len(topic.partitions)
    for queue in topology.queues.values():
        assert topology.topic_of(queue.id) is partitions.get(queue.id)


@given(st.lists(COMMANDS, max_size=40))
def test_replicas_follow_and_bindings_have_both_ends(commands: list[Command]) -> None:
    topology, replica = with_queues(), with_queues()
    next_queue = 1
    for command in commands:
        try:
            changes = changes_for(topology, command, QueuePlacement(next_queue, 4))
        except RequestError:
            continue
        for change in changes:
            next_queue += isinstance(change, QueueAdded)
            topology.apply(change)
            replica.apply(change)
        for binding in topology.bindings.values():
            assert ("/", binding.exchange) in topology.exchanges
            assert ("/", binding.destination) in topology.queues
        check_topics(topology)
        fresh: Any = Topology()
        fresh.load(topology.snapshot())
        assert replica.snapshot() == topology.snapshot()
        for (_, exchange), declared in topology.exchanges.items():
            if declared.internal:
                with pytest.raises(AccessRefused):
                    topology.router.route("/", exchange, "k")
                continue
            for key in ("k", "k.l", "z"):
                found = names(topology.router.route("/", exchange, key))
                assert found == expected(topology, exchange, key)
                assert (
                    found
                    == names(replica.router.route("/", exchange, key))
                    == names(fresh.router.route("/", exchange, key))
                )
