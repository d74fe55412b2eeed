"""Links between hosts: they keep order, or lose and tell, as the bus does."""

from typing import TYPE_CHECKING

from shardmq.replication.core.messages import Message

if TYPE_CHECKING:
    from tests.replication.simulator.world import World


class Link:
    """One direction of a connection."""

    __slots__ = ("again", "backlog", "clear_at", "connection", "is_cut", "sent", "slow")

    def __init__(self) -> None:
        self.connection = 0
        self.clear_at = 0.0
        self.is_cut = False
        self.slow = 0.0
        self.sent = 0
        self.backlog: list[tuple[int, int, Message]] = []
        self.again: set[int] = set()  # sent anew after a cut, and on their way: what was sent later comes later


class Network:
    """All links. What is sent over a cut waits, as TCP repeats it, until the connection is given up."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.links: dict[tuple[str, str], Link] = {}

    def link(self, source: str, target: str) -> Link:
        try:
            return self.links[source, target]
        except KeyError:
            return self.links.setdefault((source, target), Link())

    def send(self, source: str, target: str, message: Message) -> None:
        link = self.link(source, target)
        link.sent += 1
        if link.is_cut:
            link.backlog.append((link.sent, link.connection, message))
            return
        self._carry(source, target, link, link.sent, message)

    def _carry(self, source: str, target: str, link: Link, number: int, message: Message) -> None:
        world = self._world
        draw = world.random.random()
        link.clear_at = arrival = max(world.now + 0.0002 + 0.002 * draw * draw + link.slow, link.clear_at)
        world.at(arrival, self._arrive, link, (number, link.connection, message), source, target)

    def _arrive(self, link: Link, sent: tuple[int, int, Message], source: str, target: str) -> None:
        number, connection, message = sent
        if connection != link.connection:
            world = self._world
            if world.random.random() < 0.5:  # the other half was read from its socket before, and is late
                world.at(world.now + 1.5 * world.random.random() ** 2, world.nodes[target].receive, source, message)
            return
        link.again.discard(number)
        if link.is_cut:
            link.backlog.append(sent)
        elif link.again and number > min(link.again):
            link.again.add(number)
            self._carry(source, target, link, number, message)
        else:
            self._world.nodes[target].receive(source, message)

    def lose(self, one: str, other: str) -> None:
        """Lose the connection of two hosts, and tell both, soon."""
        world = self._world
        for source, target in ((one, other), (other, one)):
            link = self.link(source, target)
            link.connection += 1
            link.clear_at = world.now
            late = [message for _, _, message in link.backlog if world.random.random() < 0.2]
            link.backlog.clear()
            link.again.clear()
            for message in late:
                world.at(world.now + world.random.random(), world.nodes[target].receive, source, message)
            world.at(world.now + 0.05 * world.random.random(), world.nodes[target].link_lost, source)

    def cut(self, source: str, target: str) -> None:
        self.link(source, target).is_cut = True

    def heal(self, source: str, target: str) -> None:
        link = self.link(source, target)
        if not link.is_cut:
            return
        link.is_cut = False
        backlog, link.backlog = link.backlog, []
        for number, connection, message in sorted(backlog, key=lambda sent: sent[0]):
            if connection == link.connection:
                link.again.add(number)
                self._carry(source, target, link, number, message)

    def heal_all(self) -> None:
        for source, target in list(self.links):
            self.heal(source, target)
            self.links[source, target].slow = 0.0
