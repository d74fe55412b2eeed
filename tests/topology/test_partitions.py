"""A transaction goes by the partitions that gateways knew when it began, whatever is added, forgotten or read anew."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.changes import changes_for
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.coordinator.rules.transactions import TransactionFacts, outcome_of
from shardmq.message.properties import Properties
from shardmq.topology.changes import Change, QueueAdded, TransactionEnded
from shardmq.topology.commands import BeginTransaction, Command, DeclareQueue, DeclareTopic, DeleteTopic, ExtendTopic
from shardmq.topology.partitions import router_at, router_for
from shardmq.topology.topology import Topology

STEPS = st.lists(st.sampled_from(["begin", "begin again", "end", "decide", "tell", "restart"]), max_size=30)


class Model:
    """A coordinator's topology, and by how many partitions each undecided transaction has to go."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.next_number = self.next_queue = 1
        self.coming: list[Change] = []
        self.counts: dict[int, int] = {}
        for change in new_vhost("/"):
            self.topology.apply(change)
        self.carry_out(DeclareTopic("/", "t", 1, {}))

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

    def carry_out(self, command: Command) -> None:
        for change in self._changes(command):
            self.topology.apply(change)

    @property
    def told(self) -> int:
        return len(self.topology.topics["/", "t"].partitions)

    def _chosen(self, choice: int) -> tuple[int, str]:
        number = sorted(self.counts)[choice % len(self.counts)]
        return number, self.topology.transactions[number].name

    def _changes(self, command: Command) -> list[Change]:
        changes = changes_for(self.topology, command, QueuePlacement(self.next_queue, 2, {}, self.next_number))
        self.next_queue += sum(isinstance(change, QueueAdded) for change in changes)
        return changes

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


def test_all_growth_is_kept() -> None:
    model = Model()
    for kind in ["decide", "tell", "begin", "begin", "decide", "tell", "begin", "decide", "tell"]:
        model.step(kind, 0)
    assert model.topology.topics["/", "t"].growth == ((1, 1), (3, 2), (4, 3))


GROWING = st.lists(
    st.sampled_from(["publish", "grow", "grow another", "queue", "restart", "delete another"]), max_size=30
)


@settings(max_examples=150)
@given(GROWING, st.integers(1, 50))
def test_what_is_sent_again_goes_by_the_partitions_that_there_were(steps: list[str], stride: int) -> None:
    model = Model()
    topology, published, counts = model.topology, {1: 1}, {"t": 1}
    for place, kind in enumerate(steps):
        if kind == "publish":
            published.setdefault(topology.grown_to, counts["t"])
        elif kind.startswith("grow"):
            name = "t" if kind == "grow" else "another"
            if ("/", name) not in topology.topics:
                counts[name] = 1 + place * stride % 3
                model.carry_out(DeclareTopic("/", name, counts[name], {}))
            counts[name] += 1 + place * stride % 3
            model.carry_out(ExtendTopic("/", name, counts[name]))
        elif kind == "queue":
            model.carry_out(DeclareQueue("/", f"queue-{place}", True, {}, False, "", False))
        elif kind == "delete another" and ("/", "another") in topology.topics:
            model.carry_out(DeleteTopic("/", "another"))
        elif kind == "restart":
            topology.load(topology.snapshot())
        for growth, count in published.items():
            topic = router_at(topology, growth).topic("/", "t")
            assert topic is not None
            assert topic.count == count


def test_where_messages_say_their_partition_they_may_name_new_ones() -> None:
    model = Model()
    model.carry_out(DeclareTopic("/", "named", 1, {"x-partitioner": "explicit"}))
    model.carry_out(ExtendTopic("/", "named", 3))
    properties = Properties(headers={"x-partition": 2})
    (queue,) = router_at(model.topology, 1).route_message("/", "named", [""], properties)
    assert queue.name == "named-2"


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
