"""What commands on topics change, and why they are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, PreconditionFailed, RequestError
from shardmq.topology.changes import (
    BindingAdded,
    BindingRemoved,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    TopicPut,
    TopicRemoved,
    VhostPut,
)
from shardmq.topology.commands import (
    Command,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    DeleteQueue,
    DeleteTopic,
    DeleteVhost,
    ExtendTopic,
)
from shardmq.topology.entities import PARTITIONS_MAX, Binding, Exchange, Queue, Topic, Vhost
from shardmq.topology.topology import Topology

STREAM = {"x-queue-type": "stream"}


def empty() -> Topology:
    topology = Topology()
    for change in new_vhost("/"):
        topology.apply(change)
    return topology


def carry_out(topology: Topology, command: Command, shards: int = 4) -> None:
    next_queue = 1 + max((queue.id for queue in topology.queues.values()), default=0)
    for change in changes_for(topology, command, QueuePlacement(next_queue, shards)):
        topology.apply(change)


def refused(topology: Topology, command: Command, error: type[RequestError], match: str) -> None:
    before = topology.snapshot()
    with pytest.raises(error, match=match):
        carry_out(topology, command)
    assert topology.snapshot() == before


def test_a_topic_is_made_with_all_that_belongs_to_it() -> None:
    arguments = {"x-max-age": "1h", "x-partitioner": "explicit", "alternate-exchange": "amq.fanout"}
    changes = changes_for(empty(), DeclareTopic("/", "t", 2, arguments), QueuePlacement(7, 1))
    own = {**STREAM, "x-max-age": "1h", "x-topic": "t"}
    exchange = {"x-partitioner": "explicit", "alternate-exchange": "amq.fanout"}
    assert changes == [
        ExchangeAdded(Exchange("/", "t", "x-partition", True, exchange)),
        QueueAdded(Queue("/", "t-0", 7, 0, True, own)),
        QueueAdded(Queue("/", "t-1", 8, 0, True, own)),
        BindingAdded(Binding("/", "t", "t-0", "0", {"x-stream-partition-order": 0})),
        BindingAdded(Binding("/", "t", "t-1", "1", {"x-stream-partition-order": 1})),
        TopicPut(Topic("/", "t", (7, 8), arguments, 1)),
    ]


@given(st.text("abc", min_size=1, max_size=9), st.integers(1, 60), st.integers(1, 9), st.integers(0, 30))
def test_shards_have_the_same_number_of_partitions_but_for_one(
    name: str, partitions: int, shards: int, more: int
) -> None:
    topology = empty()
    carry_out(topology, DeclareTopic("/", name, partitions, {}), shards)
    carry_out(topology, ExtendTopic("/", name, partitions + more), shards)
    counts = [sum(queue.shard == shard for queue in topology.queues.values()) for shard in range(shards)]
    assert sum(counts) == partitions + more
    assert max(counts) - min(counts) <= 1


def test_a_topic_declared_again_changes_nothing() -> None:
    topology = empty()
    carry_out(topology, DeclareTopic("/", "t", 2, {}))
    assert changes_for(topology, DeclareTopic("/", "t", 2, {}), QueuePlacement(9, 4)) == []
    assert changes_for(topology, DeclareTopic("/", "t", 2, {"x-partitioner": "key"}), QueuePlacement(9, 4)) == []
    refused(topology, DeclareTopic("/", "t", 3, {}), PreconditionFailed, "inequivalent arg 'partitions'.*'3'.*'2'")
    refused(topology, DeclareTopic("/", "t", 2, {"x-max-age": "1h"}), PreconditionFailed, "inequivalent arg .x-max")


def test_adding_partitions_begins_a_new_epoch() -> None:
    topology = empty()
    carry_out(topology, DeclareTopic("/", "t", 2, {}))
    carry_out(topology, ExtendTopic("/", "t", 2))
    assert topology.topics["/", "t"].epoch == 1
    carry_out(topology, ExtendTopic("/", "t", 4))
    assert (topology.topics["/", "t"].epoch, len(topology.topics["/", "t"].partitions)) == (2, 4)
    refused(topology, ExtendTopic("/", "t", 3), PreconditionFailed, "has 4 partitions.*added, never removed")
    refused(topology, ExtendTopic("/", "other", 3), NotFound, "no topic 'other'")


@pytest.mark.parametrize("partitions", [0, PARTITIONS_MAX + 1, 2**31 - 1])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: int) -> None:
    topology = empty()
    refused(topology, DeclareTopic("/", "t", partitions, {}), InvalidRequest, f"give it 1 to {PARTITIONS_MAX}")
    carry_out(topology, DeclareTopic("/", "t", 1, {}))
    if partitions:
        refused(topology, ExtendTopic("/", "t", partitions), InvalidRequest, f"give it 1 to {PARTITIONS_MAX}")


def test_names_that_topics_cannot_have_are_refused() -> None:
    refused(empty(), DeclareTopic("/", "amq.t", 1, {}), AccessRefused, "reserved prefix")
    refused(empty(), DeclareTopic("/", "", 1, {}), InvalidRequest, "needs a name")
    refused(empty(), DeclareTopic("/", "t" * 254, 1, {}), InvalidRequest, "over 255 bytes")
    refused(empty(), DeclareTopic("/", "t" * 253, 11, {}), InvalidRequest, "over 255 bytes")
    refused(empty(), DeclareTopic("/", "t\n", 1, {}), InvalidRequest, "control character")
    refused(empty(), DeclareTopic("/", "t", 1, {"x-max-priority": 1}), PreconditionFailed, "invalid arg")
    refused(empty(), DeclareTopic("/", "t", 1, {"x-partitioner": "random"}), PreconditionFailed, "key, round-robin")
    refused(empty(), DeclareTopic("gone", "t", 1, {}), NotFound, "no vhost 'gone'")


@pytest.mark.parametrize("command", [DeclareTopic("/", "t", 3, {}), ExtendTopic("/", "t", 3)])
def test_names_of_others_are_left_to_them(command: Command) -> None:
    topology = empty()
    if isinstance(command, ExtendTopic):
        carry_out(topology, DeclareTopic("/", "t", 1, {}))
    carry_out(topology, DeclareQueue("/", "t-2", True, STREAM))
    refused(topology, command, PreconditionFailed, "there is queue 't-2', which is not the topic's")
    if isinstance(command, DeclareTopic):
        carry_out(topology, DeclareExchange("/", "t", "direct", True, {}))
        refused(topology, command, PreconditionFailed, "there is exchange 't', which is not the topic's")


def test_the_limit_of_queues_counts_partitions() -> None:
    topology = empty()
    topology.apply(VhostPut(Vhost("/", limits={"max-queues": 3})))
    refused(topology, DeclareTopic("/", "t", 4, {}), PreconditionFailed, r"queue limit in vhost '/' \(3\)")
    carry_out(topology, DeclareTopic("/", "t", 3, {}))
    refused(topology, ExtendTopic("/", "t", 4), PreconditionFailed, "queue limit")


def test_deleting_a_topic_or_its_virtual_host_leaves_nothing_of_it() -> None:
    topology = empty()
    before = topology.snapshot()
    carry_out(topology, DeclareTopic("/", "t", 3, {}))
    refused(topology, DeleteQueue("/", "t-1"), PreconditionFailed, "is a partition of topic 't'; delete the topic")
    changes = changes_for(topology, DeleteTopic("/", "t"), QueuePlacement(9, 4))
    assert [type(change) for change in changes] == [
        TopicRemoved,
        *[BindingRemoved] * 3,
        *[QueueRemoved] * 3,
        ExchangeRemoved,
    ]
    for change in changes:
        topology.apply(change)
    assert topology.snapshot() == before
    carry_out(topology, DeclareTopic("/", "t", 3, {}))
    carry_out(topology, DeleteVhost("/"))
    assert [*topology.topics, *topology.queues, *topology.bindings] == []


def test_what_shards_have_kept_of_a_lost_topic_is_taken_again() -> None:
    topology = empty()
    carry_out(topology, DeclareTopic("/", "t", 3, {"x-max-age": "1h"}))
    queues = list(topology.queues.values())
    again = empty()
    for queue in queues:
        again.apply(QueueAdded(queue))
    refused(again, DeclareTopic("/", "t", 3, {}), PreconditionFailed, "there is queue 't-0'")
    carry_out(again, DeclareTopic("/", "t", 3, {"x-max-age": "1h"}))
    assert again.topics["/", "t"].partitions == tuple(queue.id for queue in queues)
    assert again.bindings == topology.bindings
