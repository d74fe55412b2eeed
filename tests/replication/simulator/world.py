"""The heap of what is to happen, and the run of a seed."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from shardmq.replication.core.group import Group
from shardmq.replication.core.note import Note
from tests.replication.simulator.checker import Checker, Violation
from tests.replication.simulator.etcd import Etcd
from tests.replication.simulator.network import Network
from tests.replication.simulator.node import Node
from tests.replication.simulator.scenario import Scenario

HEAL_SECONDS = 20.0
STEPS_MAX = 20_000
REVISIONS_MAX = 60


class World:
    """Hosts, their network and etcd, all drawn from one seed.

    Attributes:
        now: seconds since the beginning.
    """

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.is_traced = tell is not None
        self._tell = tell
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._messages = 0
        self.freeze_before_flush = 0.0
        self.scenario = Scenario(self)
        self.network = Network(self)
        self.checker = Checker(self)
        names = self.scenario.names
        is_new, members = self.scenario.is_new, names[: self.scenario.members]
        term, primary = (0, "") if is_new else (1, names[0])
        self.etcd = Etcd(self, Group("1", term, primary, members, names, self.scenario.min_in_sync))
        note = Note("", copied=(0, b"")) if is_new else Note("1", 1)
        self.nodes = {name: Node(self, name, note) for name in names}
        for name in self.scenario.spares:
            self.nodes[name] = Node(self, name, Note("", copied=(0, b"")))

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        self._scheduled += 1
        heappush(self._heap, (time, self._scheduled, call, arguments))

    def trace(self, who: str, what: str, detail: object = "") -> None:
        if self._tell is not None:
            self._tell(f"{self.now:9.4f}  {who:<5} {what} {detail}")

    def next_message(self) -> int:
        self._messages += 1
        return self._messages

    def any_message(self) -> int:
        return 1 + int(self.random.random() * self._messages)

    def run(self) -> None:
        """Run until nothing fails any more, and everybody has everything.

        Raises:
            Violation: an invariant does not hold.
        """
        for node in self.nodes.values():
            node.start()
        self.scenario.begin()
        self._run_until(self.scenario.seconds)
        self.scenario.heal()
        until = self.now + HEAL_SECONDS
        while True:
            self._run_until(self.now + 0.15)
            missing = self.checker.quiescent()
            if not missing:
                break
            self.scenario.operate()
            if self.now > until:
                raise Violation(f"{HEAL_SECONDS:g} seconds after the last fault: {missing}")
        self.checker.check_digests()

    def _run_until(self, end: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
        if self.steps > STEPS_MAX:
            raise Violation(f"{self.steps} steps: messages are sent in circles")
        if self.etcd.revision > REVISIONS_MAX:
            raise Violation(f"{self.etcd.revision} revisions: the group's key is changed in circles")
        self.now = end


def run_seed(seed: int, tell: Callable[[str], None] | None = None) -> World:
    """Run a seed, and return what is left of its world.

    Raises:
        Violation: an invariant does not hold.
    """
    world = World(seed, tell)
    world.run()
    return world
