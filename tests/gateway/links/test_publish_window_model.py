"""The publish window against a plain model: each queue has its messages in order, each publish is answered once.

In queues with priorities, messages of one priority have an order, and those that went to other queues, too, or that
their producer has numbered, have one with all.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.gateway.links.publishes.fan_out import FanOut
from shardmq.gateway.links.publishes.publish_plan import PublishPlan, SortingQueues
from shardmq.gateway.links.publishes.publish_window import PublishWindow
from shardmq.message.keyed_records import keys_of, runs
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import KEYED, RecordBatch
from tests.gateway.columns import one_by_one

ROUTES: list[tuple[int, ...]] = [(1,), (2,), (1, 2), (3, 1)]
SORTING_ROUTES = [SortingQueues((4,)), SortingQueues((4, 5)), SortingQueues((6, 4)), (4, 1), (5, 6)]
KINDS = [("a", 0), ("b", 1), ("c", 0)]
"""Routing keys and flags."""


class Posted:
    """The end of a link that is open: what is posted is kept."""

    is_open = True

    def __init__(self) -> None:
        self.publishes: list[Publish] = []

    def post(self, message: BusMessage) -> None:
        self.publishes += one_by_one(message)


@dataclass(eq=False)
class Publisher:
    """A channel: its requests, and what it heard of each."""

    requests: int = 0
    more_confirmed: int = 0
    is_confirming: bool = True
    confirmed: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        for first, last in requests:
            self.confirmed += range(first, last + 1)

    def refuse(self, first: int, last: int, _code: int, _text: str, _taken: int = 0) -> None:
        self.refused += range(first, last + 1)


class World:
    """A window with two publishers, and what should come of what they publish."""

    def __init__(self) -> None:
        self.link = Posted()
        self.serial = 1
        self.window = PublishWindow(self.link, "shard-0", lambda _queue: True, self._stamp)  # type: ignore[arg-type]
        self.publishers = (Publisher(), Publisher())
        self.plans: dict[tuple[tuple[int, ...], tuple[str, int], int], PublishPlan] = {}
        self.places: dict[bytes, int | None] = {}  # priority, where that alone gives an order
        self.kinds: dict[bytes, tuple[str, int]] = {}
        self.expected: dict[int, list[bytes]] = defaultdict(list)
        self.bodies: dict[tuple[int, int], list[bytes]] = {}
        self.numbers = 0
        self.numbered: set[bytes] = set()
        self.answered = 0

    def _stamp(self, batch: RecordBatch) -> None:
        batch.timestamp_ms, batch.origin, batch.serial = 5, 9, self.serial
        self.serial += batch.count

    def plan(self, route: tuple[int, ...], kind: tuple[str, int], priority: int) -> PublishPlan:
        place = (route, kind, priority)
        if place not in self.plans:
            key, flags = kind
            common = self.plan(route, ("", flags | KEYED), priority) if not flags & KEYED else None
            self.plans[place] = PublishPlan.of(route, "x", key, flags, priority, common)
        return self.plans[place]

    def publish(
        self, who: int, route: tuple[int, ...], kind: tuple[str, int], count: int, way: str, priority: int = 0
    ) -> None:
        publisher = self.publishers[who]
        bodies = [b"%d" % (self.numbers + place) for place in range(count)]
        self.numbers += count
        first = publisher.requests + 1
        publisher.requests += count if way == "singly" else 1
        for place, body in enumerate(bodies):
            self.bodies.setdefault((who, first + place if way == "singly" else first), []).append(body)
        if way in ("counted", "numbered"):
            self.numbered.update(bodies)
        is_sorted = isinstance(route, SortingQueues) and way not in ("counted", "numbered")
        self.places.update(dict.fromkeys(bodies, priority if is_sorted else None))
        self.kinds.update(dict.fromkeys(bodies, kind))
        for queue in route:
            self.expected[queue] += bodies
        plan = self.plan(route, kind, priority)
        if way == "planned":
            self.window.add_planned(publisher, first, plan, pack_many(bodies))
            return
        if way == "numbered":
            sequence = self.numbers - count + 1
            plan = self.plan(route, kind, 0)
            self.window.add_numbered(publisher, first, plan, (count, pack_many(bodies), 7, sequence))
            return
        batch = RecordBatch("x", *kind, 0, 0, 0, count, pack_many(bodies), priority)
        producer, sequence = (7, self.numbers - count + 1) if way == "counted" else (0, 0)
        fan_out = FanOut(1) if way == "joined" else None
        if fan_out is not None:
            self._stamp(batch)
        self.window.add(publisher, first, Publish(plan.queues, batch, producer, sequence), fan_out, 0, way == "singly")

    def heard(self) -> dict[int, list[bytes]]:
        queues: dict[int, list[bytes]] = defaultdict(list)
        for publish in self.link.publishes:
            batch = publish.batch
            records = [record for run in runs(batch) for record in unpack(run.records, run.count)]
            for place, (record, key) in enumerate(zip(records, keys_of(batch), strict=True)):
                assert self.kinds[record.body] == (key, batch.flags & ~KEYED)
                assert (record.body in self.numbered) == bool(publish.producer)
                assert not publish.producer or int(record.body) + 1 == publish.sequence + place
            for queue in publish.queues:
                queues[queue] += [record.body for record in records]
        return queues

    def answer(self, refusals: dict[int, int]) -> set[bytes]:
        """Confirm all that was posted; refuse some publishes, but for their first messages. Returns what is lost."""
        lost: set[bytes] = set()
        for number, publish in enumerate(self.link.publishes, 1):
            if number <= self.answered or number not in refusals:
                continue
            taken = min(refusals[number], publish.batch.count - 1)
            records = [record for run in runs(publish.batch) for record in unpack(run.records, run.count)]
            lost |= {record.body for record in records[taken:]}
            self.window.on_refusal(PublishRefusal(number, ReplyCode.RESOURCE_ERROR, "full", taken))
        self.answered = len(self.link.publishes)
        self.window.on_confirmed(Confirmed(self.answered))
        return lost


publishes = st.tuples(
    st.integers(0, 1),
    st.sampled_from(ROUTES),
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.sampled_from(
        ["singly", "singly", "together", "planned", "planned", "counted", "joined", "numbered", "numbered"]
    ),
)
steps = st.lists(
    publishes | st.just("send") | st.dictionaries(st.integers(1, 30), st.integers(0, 3)), min_size=8, max_size=40
)


def in_order(world: World, bodies: list[bytes]) -> list[object]:
    """What of the order of a queue's messages counts: of each priority, and of all around those that have none."""
    found: list[object] = []
    levels: dict[int, list[bytes]] = defaultdict(list)
    for body in bodies:
        priority = world.places[body]
        if priority is None:
            found += [dict(levels), body]
            levels.clear()
        else:
            levels[priority].append(body)
    return [*found, dict(levels)]


prioritized = st.tuples(
    st.integers(0, 1),
    st.sampled_from(SORTING_ROUTES),
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.sampled_from(["singly", "planned", "planned", "planned", "joined", "counted", "numbered"]),
    st.integers(0, 2),
)


@given(st.lists(prioritized | publishes | st.just("send"), min_size=8, max_size=60))
def test_queues_with_priorities_have_the_messages_of_each_in_order(steps: list[object]) -> None:
    world = World()
    for step in [*steps, "send"]:
        if isinstance(step, tuple):
            who, route, kind, count, way, *more = step
            world.publish(who, route, kind, 1 if way == "planned" else count, way, *more)
        else:
            world.window.send()
    heard = world.heard()
    assert heard.keys() == world.expected.keys()
    for queue, bodies in heard.items():
        assert in_order(world, bodies) == in_order(world, world.expected[queue])
    world.answer({})
    assert world.window.is_settled
    for publisher in world.publishers:
        assert sorted(publisher.confirmed) == list(range(1, publisher.requests + 1))


def test_priorities_that_alternate_grow_side_by_side() -> None:
    world = World()
    for number in range(40):
        world.publish(0, SORTING_ROUTES[0], KINDS[0], 1, "planned", number % 4)
    world.window.send()
    assert [(each.batch.priority, each.batch.count) for each in world.link.publishes] == [(p, 10) for p in range(4)]


@given(steps)
def test_every_queue_has_its_messages_in_order_and_every_publish_is_answered_once(steps: list[object]) -> None:
    world = World()
    lost: set[bytes] = set()
    for step in [*steps, "send", {}]:
        if isinstance(step, tuple):
            who, route, kind, count, way = step
            world.publish(who, route, kind, 1 if way == "planned" else count, way)
        elif isinstance(step, dict):
            lost |= world.answer(step)
        else:
            world.window.send()
    assert world.heard() == world.expected
    assert world.window.is_settled
    assert not world.window.unconfirmed_bytes
    for who, publisher in enumerate(world.publishers):
        requests = range(1, publisher.requests + 1)
        assert sorted(publisher.confirmed + publisher.refused) == list(requests)
        assert set(publisher.refused) == {each for each in requests if lost.intersection(world.bodies[who, each])}
