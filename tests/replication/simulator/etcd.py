"""etcd as one register: compare and swap. It can be away, lose answers, and swap after it was given up."""

from typing import TYPE_CHECKING

from shardmq.replication.core.events import GroupRead, GroupSeen, ReadLost, SwapLost, Swapped, SwapRefused
from shardmq.replication.core.group import Group

if TYPE_CHECKING:
    from tests.replication.simulator.node import Node
    from tests.replication.simulator.world import World

TIMEOUT = 0.3


class Etcd:
    """The register."""

    def __init__(self, world: "World", group: Group) -> None:
        self._world = world
        self.group = group
        self.revision = 1
        self.away_until = 0.0
        self.slow_until = 0.0
        self.slow = 0.0
        self.losses = 0.0
        self.under_way: list[tuple[int, Group]] = []
        self._cut_until: dict[str, float] = {}

    def cut(self, node: "Node", seconds: float) -> None:
        """Cut a host off for a while, from now on."""
        self._cut_until[node.name] = max(self._back_at(node), self._world.now + seconds)

    def heal(self) -> None:
        """Be there for everybody, fast."""
        self.away_until = self.losses = self.slow = 0.0
        self._cut_until.clear()

    def _back_at(self, node: "Node") -> float:
        return max(self.away_until, self._cut_until.get(node.name, 0.0))

    def _is_lost(self, node: "Node") -> bool:
        return self._world.now < self._back_at(node) or self._world.random.random() < self.losses

    def _delay(self) -> float:
        draw = self._world.random.random()
        return 0.001 + 0.02 * draw * draw + (self.slow if self._world.now < self.slow_until else 0.0)

    def read(self, node: "Node") -> None:
        world = self._world
        if self._is_lost(node):
            world.at(world.now + TIMEOUT, node.hand, node.life, ReadLost())
        else:
            world.at(world.now + self._delay(), self._answer_read, node, node.life)

    def _answer_read(self, node: "Node", life: int) -> None:
        world = self._world
        world.at(world.now + self._delay(), node.hand, life, GroupRead(self.revision, self.group))

    def swap(self, node: "Node", revision: int, group: Group) -> None:
        world = self._world
        self.under_way = [swap for swap in self.under_way if swap[0] >= self.revision]
        self.under_way.append((revision, group))
        if not self._is_lost(node):
            world.at(world.now + self._delay(), self._answer_swap, node, node.life, revision, group)
            return
        world.at(world.now + TIMEOUT, node.hand, node.life, SwapLost())
        world.scenario.swap_lost(group)
        fate = world.random.random()
        if fate < 0.7:
            late = world.now + (0.0 if fate < 0.3 else TIMEOUT + world.random.random() * (0.2 if fate < 0.5 else 2.0))
            world.at(max(late, self._back_at(node)), self._swap, node, revision, group)

    def _answer_swap(self, node: "Node", life: int, revision: int, group: Group) -> None:
        world = self._world
        if self._swap(node, revision, group):
            world.at(world.now + self._delay(), node.hand, life, Swapped(self.revision))
        else:
            world.at(world.now + self._delay(), node.hand, life, SwapRefused(self.revision, self.group))

    def _swap(self, node: "Node", revision: int, group: Group) -> bool:
        if revision != self.revision:
            return False
        world = self._world
        before, self.group = self.group, group
        self.revision += 1
        world.trace("etcd", f"swapped by {node.name}", group)
        world.checker.group_changed(node.name, before, group)
        for other in world.nodes.values():
            delay = world.random.random() ** 4 * 1.5 + (2 * self.slow if world.now < self.slow_until else 0.0)
            seen_at = max(world.now, self._back_at(other)) + 0.001 + delay
            world.at(seen_at, other.hand, other.life, GroupSeen(self.revision, group))
        return True
