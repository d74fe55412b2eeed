"""Faults in an order that chance would not bring about in 10,000 seeds: each waits for what the one before did."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardmq.replication.core.events import Transfer

if TYPE_CHECKING:
    from tests.replication.simulator.scenario import Scenario
    from tests.replication.simulator.world import World

LOOK_SECONDS = 0.05

LED_SECONDS = 3.0
"""A primary whose disk stalls sends its last beat 0.5 s later; a follower campaigns within 2.0 s. Clocks differ."""

STALLED_SECONDS = 4.0


class Plays:
    """What goes by a script in a run.

    Attributes:
        whole: plays that a run has instead of other faults, by the number of hosts that they need.
    """

    def __init__(self, world: "World", scenario: "Scenario") -> None:
        self._world = world
        self._scenario = scenario
        for_any = (self.elected_twice, self.stalled_primary)
        self.whole = {2: for_any, 3: (*for_any, self.forgotten_primary)}

    def play(self, steps: Iterator[None]) -> None:
        """Go on with a play until it ends, or nothing may fail any more."""
        world = self._world
        if self._scenario.is_healed:
            return
        for _ in steps:
            world.at(world.now + LOOK_SECONDS, self.play, steps)
            return

    def elected_twice(self) -> Iterator[None]:
        """Elect a follower late, which has granted the old primary a lease meanwhile, and forgets that in a restart."""
        world = self._world
        network, etcd = world.network, world.etcd
        while len(etcd.group.in_sync) < len(etcd.group.replicas) or not etcd.group.primary:
            yield
        old = etcd.group.primary
        others = [name for name in etcd.group.replicas if name != old]
        etcd.cut(world.nodes[old], 6.0)
        for other in others:
            network.cut(old, other)
        for _ in range(24):
            yield
        etcd.slow_until, etcd.slow = world.now + 2.0, 0.3 + 0.1 * world.random.random()
        while all(group.primary == old for _, group in etcd.under_way):
            yield
        for other in others:
            network.heal(old, other)
        while etcd.group.primary == old:
            yield
        for other in others:
            network.cut(old, other)
            network.cut(other, old)
        etcd.slow = 0.0
        heir = world.nodes[etcd.group.primary]
        heir.crash()
        self._scenario.restart(heir)
        for _ in range(20):
            yield
        network.heal_all()
        etcd.heal()

    def forgotten_primary(self) -> Iterator[None]:
        """Let the primary of long ago be heard by the only host that its lease rests on. Others lead since.

        Mostly that host has a new disk, without any promise, and has not heard from etcd yet.
        """
        world = self._world
        network, etcd = world.network, world.etcd
        while len(etcd.group.in_sync) < 3 or not etcd.group.primary:
            yield
        old = world.nodes[etcd.group.primary]
        late, heir = world.random.sample([world.nodes[name] for name in etcd.group.in_sync if name != old.name], 2)
        self._scenario.freeze_one(late, 1.25)
        while late.name in etcd.group.in_sync:
            yield
        etcd.cut(old, 10.0)
        for other in (late, heir):
            network.cut(old.name, other.name)
            network.cut(other.name, old.name)
        while etcd.group.primary != heir.name or late.name not in etcd.group.in_sync:
            yield
        while etcd.group.primary != late.name:
            heir.hand(heir.life, Transfer(late.name))
            yield
        while not late.core.takes_proposals:
            yield
        yield
        if world.random.random() < 0.6:
            etcd.cut(heir, 0.3 + 0.3 * world.random.random())
            self._scenario.replace_disk(heir)
        network.heal(old.name, heir.name)
        network.heal(heir.name, old.name)
        for _ in range(20):
            yield
        network.heal_all()
        etcd.heal()

    def stalled_primary(self) -> Iterator[None]:
        """Stall the primary's disk, and nothing else: another host leads in time, and the old one wakes up under it."""
        world = self._world
        etcd = world.etcd
        self._scenario.strike = world.freeze_before_flush = 0.0
        while world.checker.quiescent() or world.nodes[etcd.group.primary].paused_until > world.now:
            yield  # one that is frozen would write nothing for a part of the stall
        old = world.nodes[etcd.group.primary]
        old.disk.stalled_until = world.now + STALLED_SECONDS
        while not old.disk.unsynced:
            yield
        stalled = world.now
        while etcd.group.primary == old.name or not world.nodes[etcd.group.primary].core.takes_proposals:
            world.checker.waits_for_leader(old, stalled + LED_SECONDS)
            yield

    def join_again(self) -> Iterator[None]:
        """Let a follower's disk be late, and its connection lost twice: it leaves the set, and joins anew meanwhile."""
        world = self._world
        group = world.etcd.group
        followers = [name for name in group.in_sync if name != group.primary]
        if not followers or not group.primary:
            return
        node = world.nodes[world.random.choice(followers)]
        node.disk.stalled_until = world.now + 0.6
        yield
        world.network.lose(group.primary, node.name)
        for _ in range(8):
            yield
            if node.name not in world.etcd.group.in_sync:
                world.network.lose(group.primary, node.name)
                return
