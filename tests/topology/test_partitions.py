"""A transaction goes by the partitions that gateways knew when it began, whatever is added, forgotten or read anew."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.coordinator.rules.transactions import TransactionFacts, outcome_of
from shardmq.topology.changes import Change, TransactionEnded
from shardmq.topology.commands import BeginTransaction, DeclareTopic, ExtendTopic
from shardmq.topology.partitions import router_for
from shardmq.topology.topology import Topology

STEPS = st.lists(st.sampled_from(["begin", "begin again", "end", "decide", "tell", "restart"]), max_size=30)


class Model:
    """A coordinator's topology, and by how many partitions each undecided transaction has to go."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.next_number = 1
        self.coming: list[Change] = []
        self.counts: dict[int, int] = {}
        for change in new_vhost("/"):
            self.topology.apply(change)
        for change in self._changes(DeclareTopic("/", "t", 1, {})):
            self.topology.apply(change)

    def step(self, kind: str, choice: int) -> None:
        if kind == "begin":
            self._begin(f"transaction {self.next_number}")
            self.counts[self.next_number] = self.told
            self.next_number += 1
        elif kind == "begin again" and self.counts:
            self._begin(self._chosen(choice)[1])
        elif kind == "end" and self.counts:
            number, name = self._chosen(choice)
            self.topology.apply(TransactionEnded("/", name, number, False, [], 0))
            del self.counts[number]
        elif kind == "decide" and not self.coming:
            self.coming = self._changes(ExtendTopic("/", "t", self.told + 1 + choice % 3))
        elif kind in ("tell", "restart"):  # what is decided is on disk
            for change in self.coming:
                self.topology.apply(change)
            self.coming = []
            if kind == "restart":
                self.topology.load(self.topology.snapshot())

    @property
    def told(self) -> int:
        return len(self.topology.topics["/", "t"].partitions)

    def _chosen(self, choice: int) -> tuple[int, str]:
        number = sorted(self.counts)[choice % len(self.counts)]
        return number, self.topology.transactions[number].name

    def _changes(self, command: DeclareTopic | ExtendTopic) -> list[Change]:
        next_queue = 1 + max((queue.id for queue in self.topology.queues.values()), default=0)
        return changes_for(self.topology, command, QueuePlacement(next_queue, 2, {}, self.next_number))

    def _begin(self, name: str) -> None:
        facts = TransactionFacts(self.next_number, 0, growing=[("/", "t"), ("other", "t")] if self.coming else [])
        for change in outcome_of(self.topology, BeginTransaction("/", name, "guest", 0), facts).changes:
            self.topology.apply(change)


@settings(max_examples=150)
@given(STEPS, st.integers(1, 50))
def test_each_transaction_has_its_partitions_all_along(steps: list[str], stride: int) -> None:
    model = Model()
    for place, kind in enumerate(steps):
        model.step(kind, place * stride)
        found = {number: router_for(model.topology, number).topic("/", "t") for number in model.counts}
        assert {number: topic.count for number, topic in found.items() if topic is not None} == model.counts
        everybody = model.topology.router.topic("/", "t")
        assert everybody is not None
        assert everybody.count == model.told


def test_of_the_growth_is_kept_what_undecided_transactions_need() -> None:
    model = Model()
    for kind in ["decide", "tell", "begin", "begin", "decide", "tell", "begin", "decide", "tell"]:
        model.step(kind, 0)
    topics = model.topology.topics
    assert topics["/", "t"].growth == ((3, 2), (4, 3))
    for kind in ["end", "end", "decide", "tell"]:
        model.step(kind, 0)
    assert topics["/", "t"].growth == ((4, 3),)
    for kind in ["end", "decide", "tell"]:
        model.step(kind, 0)
    assert topics["/", "t"].growth == ()


def test_the_routes_of_a_transaction_have_no_partition_that_was_added() -> None:
    model = Model()
    model.step("begin", 0)
    model.step("decide", 2)
    model.step("tell", 0)
    router = router_for(model.topology, 1)
    keys = [f"key-{number}" for number in range(50)]
    assert {queue.name for key in keys for queue in router.route("/", "t", key)} == {"t-0"}
    assert {queue.name for turn in range(9) for queue in router.route_message("/", "t", [""], None, turn)} == {"t-0"}
    assert {queue.name for key in keys for queue in model.topology.router.route("/", "t", key)} == {
        f"t-{number}" for number in range(model.told)
    }
    assert router.route("/", "", "t-1") == (model.topology.queue("/", "t-1"),)
