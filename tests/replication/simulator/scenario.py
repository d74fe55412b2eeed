"""What a seed draws: how many hosts, which faults and when."""

from typing import TYPE_CHECKING

from shardmq.replication.core.events import ElectUnclean, Move, StoreFreed, StoreFull, Transfer
from shardmq.replication.core.group import Group
from tests.replication.simulator.plays import Plays

if TYPE_CHECKING:
    from tests.replication.simulator.node import Node
    from tests.replication.simulator.world import World

BEGIN_SECONDS = 1.8
"""The first primary has nobody to hear from, and waits for so long before it campaigns."""


class Scenario:
    """The faults of a run, drawn as they come.

    Attributes:
        strike: how often it strikes just when something is under way.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        random = world.random
        count = random.choice((2, 2, 3, 3, 3))
        self.names = tuple("abc"[:count])
        self.spares = ("d",) if random.random() < 0.3 else ()
        self.min_in_sync = random.choice((1, 1, 2))
        self.is_new = random.random() < 0.3
        self.members = random.randint(1, count) if self.is_new else count
        self.failed_reads = random.choice((0.0, 0.0, 0.0, 0.3))
        self.seconds = BEGIN_SECONDS + random.uniform(2.0, 4.7)
        self._fault_seconds = random.uniform(0.25, 1.0)
        self._work_seconds = random.uniform(0.02, 0.12)
        self.strike = random.choice((0.0, 0.0, 0.15, 0.4))
        self._faults = random.sample(FAULTS, random.randint(2, 6))
        self.touched_max = random.choice((6, 10_000, 10_000))
        self.keys_max = random.choice((2, 100_000, 100_000))
        world.freeze_before_flush = random.choice((0.0, 0.0, 0.02))
        self.is_healed = False
        self._plays = Plays(world, self)
        self._play = random.choice(self._plays.whole[count]) if random.random() < 0.025 else None
        if self._play is not None:
            self.seconds = BEGIN_SECONDS + 6.0

    def begin(self) -> None:
        world = self._world
        world.at(BEGIN_SECONDS, self._work)
        if self._play is not None:
            world.at(BEGIN_SECONDS + 0.3, self._plays.play, self._play())
            return
        world.etcd.losses = world.random.choice((0.0, 0.0, 0.1, 0.4))
        world.at(BEGIN_SECONDS + 0.3, self._fault)

    def _after(self, seconds: float) -> float:
        return self._world.now + seconds * (0.2 + 1.6 * self._world.random.random())

    def _work(self) -> None:
        if self.is_healed:
            return
        world = self._world
        world.at(self._after(self._work_seconds), self._work)
        for node in world.nodes.values():
            if node.is_up and node.core.leads and world.now >= node.paused_until:
                node.application.read()
                if world.random.random() < 0.75:
                    node.application.publish()
                else:
                    node.application.deliver()

    def _fault(self) -> None:
        if self.is_healed:
            return
        world = self._world
        world.at(self._after(self._fault_seconds), self._fault)
        fault = world.random.choice(self._faults)
        world.trace("", fault.__name__)
        fault(self)

    def group_changed(self, name: str, group: Group) -> None:
        """Strike now and then just when a set changes, which is when it hurts."""
        world = self._world
        if self.is_healed or world.random.random() >= self.strike:
            return
        node = world.nodes[name if world.random.random() < 0.6 else world.random.choice(group.replicas)]
        if world.random.random() < 0.5:
            world.at(world.now, self._kill, node)
        else:
            world.at(world.now, self.freeze_one, node)

    def swap_lost(self, group: Group) -> None:
        """Strike now and then when an answer of etcd is lost, before it is known what it was."""
        world = self._world
        if not self.is_healed and world.random.random() < self.strike:
            if world.random.random() < 0.5:
                node = world.nodes[world.random.choice(group.in_sync)]
                world.at(world.now + 0.3 * world.random.random(), self.freeze_one, node)
            else:
                world.at(world.now + 0.1 * world.random.random(), self._kill, world.nodes[group.primary])

    def caught_up(self, node: "Node") -> None:
        """Strike now and then when a follower is brought up to date, and its disk has not all of it."""
        world = self._world
        if not self.is_healed and world.random.random() < self.strike / 4:
            world.at(world.now + 0.006 * world.random.random(), self._kill, node)

    def heal(self) -> None:
        """Let nothing fail any more."""
        self.is_healed = True
        self.failed_reads = 0.0
        world = self._world
        world.freeze_before_flush = 0.0
        world.network.heal_all()
        world.etcd.heal()
        for node in world.nodes.values():
            node.disk.stalled_until = 0.0
            if not node.is_up:
                node.start()
            node.hand(node.life, StoreFreed())

    def operate(self) -> None:
        """Do what an operator does when those in sync have new disks, or were elected and lost what they had."""
        world = self._world
        group = world.etcd.group
        notes = [world.nodes[name].disk.synced.note for name in group.in_sync]
        if not any(note.copied is None and note.incarnation == group.incarnation for note in notes):
            whole = [name for name in group.replicas if world.nodes[name].disk.synced.note.copied is None]
            if whole and world.random.random() < 0.2:
                node = world.nodes[world.random.choice(whole)]
                node.hand(node.life, ElectUnclean(f"{world.now:.6f}"))

    def _any(self) -> "Node":
        return self._world.random.choice(list(self._world.nodes.values()))

    def _primary(self) -> "Node":
        """Who leads; anybody where nobody does yet."""
        return self._world.nodes.get(self._world.etcd.group.primary) or self._any()

    def _victim(self) -> "Node":
        return self._primary() if self._world.random.random() < 0.6 else self._any()

    def _kill(self, node: "Node") -> None:
        world = self._world
        if node.is_up:
            world.trace(node.name, "killed")
            node.crash()
            down = world.random.choice((0.01, 0.1, 1.0, 2.5)) * (0.5 + world.random.random())
            world.at(world.now + down, self.restart, node)

    def restart(self, node: "Node") -> None:
        if not node.is_up:
            self._world.trace(node.name, "starts")
            node.start()

    def freeze_one(self, node: "Node", seconds: float = 0.0) -> None:
        world = self._world
        world.trace(node.name, "frozen")
        pause = seconds or world.random.choice((0.3, 1.2, 2.0, 3.0)) * (0.5 + world.random.random())
        node.paused_until = max(node.paused_until, world.now + pause)

    def kill(self) -> None:
        self._kill(self._victim())

    def kill_all(self) -> None:
        for node in self._world.nodes.values():
            self._kill(node)

    def freeze(self) -> None:
        self.freeze_one(self._victim())

    def cut(self) -> None:
        """Cut a host off from some others, one way or both."""
        world = self._world
        node = self._victim()
        one_way = world.random.random() < 0.4
        until = world.now + world.random.choice((0.3, 1.0, 2.5)) * (0.5 + world.random.random())
        for other in world.nodes.values():
            if other is node or world.random.random() < 0.25:
                continue
            ways = [(node.name, other.name), (other.name, node.name)]
            if one_way:
                ways = [world.random.choice(ways)]
            for way in ways:
                world.network.cut(*way)
                world.at(until, world.network.heal, *way)
            if world.random.random() < 0.5:
                world.at(world.now + 0.5 + world.random.random(), world.network.lose, node.name, other.name)

    def lose_session(self) -> None:
        node, other = self._world.random.sample(list(self._world.nodes), 2)
        self._world.network.lose(node, other)

    def slow_link(self) -> None:
        world = self._world
        node, other = world.random.sample(list(world.nodes), 2)
        world.network.link(node, other).slow = world.random.choice((0.0, 0.05, 0.3, 0.8, 1.3))

    def late_answers(self) -> None:
        """Let the primary hear its followers late, and the followers no more of it soon."""
        world = self._world
        primary = self._primary()
        until = world.now + 2.5 + world.random.random()
        for other in world.nodes.values():
            if other is not primary:
                world.network.link(other.name, primary.name).slow = 0.4 + world.random.random()
                world.at(world.now + 0.3, world.network.cut, primary.name, other.name)
                world.at(until, world.network.heal, primary.name, other.name)

    def late_election(self) -> None:
        """Freeze the primary until a follower campaigns; let it be heard once more before etcd gets to the swap."""
        world = self._world
        primary = self._primary()
        frozen = 1.45 + 0.6 * world.random.random()
        primary.paused_until = max(primary.paused_until, world.now + frozen)
        world.etcd.slow = 0.1 + 0.4 * world.random.random()
        world.at(world.now + 1.3, self._slow_etcd)
        for other in world.nodes.values():
            if other is not primary:
                world.at(world.now + frozen + 0.1, world.network.cut, other.name, primary.name)
                world.at(world.now + frozen + 1.5, world.network.heal, other.name, primary.name)

    def _slow_etcd(self) -> None:
        self._world.etcd.slow_until = self._world.now + 1.5

    def join_again(self) -> None:
        self._plays.play(self._plays.join_again())

    def join_behind(self) -> None:
        """Let a host join while the followers lag behind, and kill the primary then."""
        world = self._world
        primary = self._primary()
        group = world.etcd.group
        followers = [name for name in group.in_sync if name != primary.name]
        outside = [name for name in world.nodes if name not in group.replicas]
        if not primary.is_up or not followers or not outside:
            return
        for name in followers:
            world.network.link(primary.name, name).slow = 0.3 + 0.4 * world.random.random()
        primary.hand(primary.life, Move(followers[0], outside[0]))
        world.at(world.now + 0.2 + world.random.random(), self._kill, primary)

    def stall_disk(self) -> None:
        world = self._world
        self._victim().disk.stalled_until = world.now + world.random.choice((0.2, 0.7, 1.5, 3.0))

    def fill_disk(self) -> None:
        world = self._world
        node = self._any()
        if node.is_up and not node.core.leads:
            node.hand(node.life, StoreFull())
            world.at(world.now + 2 * world.random.random(), node.hand, node.life, StoreFreed())

    def etcd_away(self) -> None:
        world = self._world
        world.etcd.away_until = world.now + world.random.choice((0.2, 1.0, 2.0))

    def etcd_cut(self) -> None:
        """Cut one host off from etcd alone."""
        self._world.etcd.cut(self._victim(), self._world.random.choice((0.3, 1.0, 3.0)))

    def transfer(self) -> None:
        group = self._world.etcd.group
        node = self._primary()
        if node.is_up:
            node.hand(node.life, Transfer(self._world.random.choice(group.replicas)))

    def move(self) -> None:
        world = self._world
        group = world.etcd.group
        outside = [name for name in world.nodes if name not in group.replicas]
        node = self._primary()
        if node.is_up and outside:
            node.hand(node.life, Move(world.random.choice(group.replicas), world.random.choice(outside)))

    def wipe(self) -> None:
        """Replace the disk of a host, where another one in sync has everything; what it said before arrives late."""
        world = self._world
        node = self._any()
        if self._may_be_wiped(node):
            world.network.link(node.name, world.etcd.group.primary).slow = 0.3 * world.random.random()
            world.at(world.now + 0.4 * world.random.random(), self.replace_disk, node)

    def _may_be_wiped(self, node: "Node") -> bool:
        world = self._world
        group = world.etcd.group
        others = [name for name in group.in_sync if name != node.name and name not in world.checker.excused]
        if node.name == group.primary or not node.is_up or node.core.leads or group.primary not in others:
            return False
        # A primary may take a whole learner in before it hears of the new disk, as it may before the disk is replaced.
        is_whole = node.disk.synced.note.copied is None
        is_believed = any(other.believes_whole(node.name, 1 << 63) for other in world.nodes.values())
        return not self.is_healed and (node.name in group.in_sync or not (is_whole or is_believed))

    def replace_disk(self, node: "Node") -> None:
        world = self._world
        group = world.etcd.group
        if not self._may_be_wiped(node):
            return
        world.trace(node.name, "has a new disk")
        node.crash()
        node.disk.wipe()
        is_joining = any(swap == world.etcd.revision and node.name in to.in_sync for swap, to in world.etcd.under_way)
        if node.name in group.in_sync or is_joining:
            world.checker.excused.add(node.name)
        world.at(world.now + 0.05 * world.random.random(), self.restart, node)

    def elect_unclean(self) -> None:
        """Lose all of the in-sync set, and let an operator choose who leads."""
        world = self._world
        group = world.etcd.group
        outside = [name for name in group.replicas if name not in group.in_sync]
        if not outside:
            return
        node = world.nodes[world.random.choice(outside)]
        if not node.is_up or node.core.group is None or node.disk.synced.note.copied is not None:
            return
        for name in group.in_sync:
            if world.nodes[name].is_up:
                world.nodes[name].crash()
            world.at(world.now + 3 + world.random.random(), self.restart, world.nodes[name])
        world.trace(node.name, "elected unclean")
        node.hand(node.life, ElectUnclean(f"{world.now:.6f}"))


FAULTS = (
    *(Scenario.kill, Scenario.kill, Scenario.kill_all, Scenario.freeze, Scenario.freeze, Scenario.cut, Scenario.cut),
    *(Scenario.lose_session, Scenario.slow_link, Scenario.stall_disk, Scenario.fill_disk, Scenario.etcd_away),
    *(Scenario.etcd_cut, Scenario.join_again),
    *(
        Scenario.late_answers,
        Scenario.late_election,
        Scenario.join_behind,
        Scenario.transfer,
        Scenario.move,
        Scenario.wipe,
        Scenario.elect_unclean,
    ),
)
