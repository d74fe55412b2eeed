"""What must be true after every step, and at the end."""

from typing import TYPE_CHECKING

from shardmq.replication.core.effects import Commit, UncleanElection
from shardmq.replication.core.group import Group
from shardmq.replication.core.note import Key
from tests.replication.simulator.application import MESSAGES, Answer

if TYPE_CHECKING:
    from tests.replication.simulator.node import Node
    from tests.replication.simulator.world import World


SLOWEST, FASTEST = 0.94, 1.06
"""Seconds that a host's clock counts in one of the world's; hosts draw a little less."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Checker:
    """Watches a run from outside, and knows what no replica knows."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.records: dict[tuple[int, int], Commit] = {}
        self.log: list[tuple[int, Commit, int]] = []
        self.excused: set[str] = set()
        self.confirms = 0
        self._delivered: dict[int, int] = {}
        self._answering: dict[int, str] = {}
        self._answering_term = 0
        self._led: set[int] = set()
        self._clocks: dict[str, tuple[int, float, float]] = {}
        self._unclean: dict[str, UncleanElection] = {}
        self._lost: dict[str, list[tuple[int, Commit, int]]] = {}

    def _check_clock(self, node: "Node", commit: Commit) -> None:
        """The group's clock goes on by itself on each host, and is nobody's own."""
        now = self._world.now
        life, at, clock = self._clocks.get(node.name, (0, 0.0, 0.0))
        least = clock + SLOWEST * (now - at) if life == node.life else 0.0
        if not least - 1e-6 <= commit.clock <= FASTEST * now + 1e-6:
            raise Violation(f"{node.name} has the group's clock at {commit.clock}, from {clock} at {at}")
        self._clocks[node.name] = (node.life, now, commit.clock)

    def written(self, node: "Node", commit: Commit) -> None:
        """A term and an index name one record, whoever writes it."""
        self._check_clock(node, commit)
        if len(commit.touched) != 1 or commit.cut is not None:
            return
        name = (commit.note.term, commit.note.index)
        known = self.records.setdefault(name, commit)
        if known.edits != commit.edits:
            raise Violation(f"{node.name} has other edits in record {name} than another replica")

    def _holds(self, name: str, index: int, term: int) -> bool:
        if name in self.excused:
            return True
        synced = self._world.nodes[name].disk.synced
        note = synced.note
        return note.copied is None and note.index >= index and synced.term_at(index) == term

    def _check_in_sync(self, index: int, what: str) -> None:
        """All of the set in etcd have what was released."""
        if index == 0:
            return
        term = self.log[index - 1][0]
        for name in self._world.etcd.group.in_sync:
            if not self._holds(name, index, term):
                raise Violation(f"{what}: {name} is in sync, and has no record ({term}, {index}) on its disk")

    def released(self, node: "Node", index: int) -> None:
        """What is released is on all disks of the set, and the same whoever releases it."""
        applied = node.disk.applied
        if applied.note.incarnation != self._world.etcd.group.incarnation:
            return  # an operator chose to lose it, before it was released; whoever answers it is found by `answered`
        while len(self.log) < index:
            place = len(self.log) + 1
            term = applied.term_at(place)
            commit = self.records.get((term, place))
            if commit is None:
                raise Violation(f"{node.name} released ({term}, {place}), which nobody wrote")
            if self.log and commit.clock < self.log[-1][1].clock:
                raise Violation(f"the group's clock went back at ({term}, {place})")
            self.log.append((term, commit, node.core.leads))
        if applied.term_at(index) != self.log[index - 1][0]:
            raise Violation(f"{node.name} released another record at {index} than was released before")
        self._check_in_sync(index, f"{node.name} released {index}")

    def leading(self, node: "Node", term: int) -> None:
        """Who leads has all that was released in the terms before. A term begins once: what ends with it has ended."""
        if term in self._led:
            raise Violation(f"{node.name} leads term {term}, which was led before")
        self._led.add(term)
        index = len(self.log)
        while index and self.log[index - 1][2] >= term:
            index -= 1
        if index and node.disk.applied.term_at(index) != self.log[index - 1][0]:
            record = (self.log[index - 1][0], index)
            raise Violation(f"{node.name} leads term {term} without record {record}, which was released")

    def accepted(self, node: "Node", answer: Answer) -> None:
        group = node.core.group
        assert group is not None
        if answer.is_publish and len(group.in_sync) < group.min_in_sync:
            raise Violation(f"{node.name} took a publish with {len(group.in_sync)} of {group.min_in_sync} in sync")

    def stalled(self, node: "Node", number: int) -> None:
        raise Violation(f"{node.name} neither took proposal {number} nor refused it")

    def waits_for_leader(self, node: "Node", until: float) -> None:
        """A primary that can write nothing has another one in its place before a time."""
        if self._world.now > until:
            raise Violation(f"{node.name} can write nothing, and nobody leads in its place")

    def unclean(self, node: "Node", effect: UncleanElection) -> None:
        self._unclean[node.name] = effect

    def answered(self, node: "Node", answer: Answer) -> None:
        """One at most answers, no term answers after a higher one, and only what is released."""
        if answer.term < self._answering_term:
            raise Violation(f"{node.name} answers in term {answer.term} after term {self._answering_term} did")
        self._answering_term = answer.term
        if self._answering.setdefault(answer.term, node.name) != node.name:
            raise Violation(f"two primaries answer in term {answer.term}")
        lost = self._lost.get(node.disk.applied.note.incarnation)  # whoever has not heard of that may yet answer
        log = self.log if lost is None else lost
        if answer.index > len(log):
            raise Violation(f"{node.name} answered {answer.index}, which is not released")
        if lost is None:
            self._check_in_sync(answer.index, f"{node.name} answered {answer.index}")
        self._world.trace(node.name, "answered", answer.index)
        if answer.is_publish:
            self.confirms += 1
            key = (MESSAGES, b"%06d" % answer.message)
            if all((database, name) != key for database, name, _ in log[answer.index - 1][1].edits):
                raise Violation(
                    f"{node.name} confirmed message {answer.message}, which is not in record {answer.index}"
                )
        else:
            if not answer.redelivered and answer.message in self._delivered:
                raise Violation(f"message {answer.message} was delivered again without the mark")
            if lost is None:
                self._delivered[answer.message] = answer.index

    def group_changed(self, name: str, before: Group, group: Group) -> None:
        """Sets are never empty, and whoever is in one has what was released."""
        if not group.in_sync or group.primary not in group.in_sync:
            raise Violation(f"the in-sync set is {group.in_sync}, and {group.primary} leads")
        self.excused = {member for member in self.excused if member in group.in_sync or self._is_believed(member)}
        if group.incarnation != before.incarnation:
            self._forgive(self._world.nodes[group.primary], before, group)
            return
        if group.term > before.term and (group.primary not in before.in_sync or name not in before.in_sync):
            raise Violation(f"{name} elected {group.primary}, and in sync were {before.in_sync}")
        self._check_in_sync(len(self.log), f"{name} swapped {group}")
        self._world.scenario.group_changed(name, group)

    def _is_believed(self, name: str) -> bool:
        """Whether a primary has yet to hear that a host has a new disk, or asked to take it in before it did."""
        world, etcd = self._world, self._world.etcd
        is_joining = any(swap >= etcd.revision and name in group.in_sync for swap, group in etcd.under_way)
        first_stream = world.nodes[name].first_stream
        return is_joining or any(other.believes_whole(name, first_stream) for other in world.nodes.values())

    def transferred(self, node: "Node") -> None:
        """A transfer leaves no client without an answer."""
        if node.application.has_unanswered():
            raise Violation(f"{node.name} handed over, and has not answered all it took")

    def _forgive(self, node: "Node", before: Group, group: Group) -> None:
        """Forget what an operator chose to lose, and was told of."""
        applied = node.disk.applied
        kept = min(len(self.log), applied.note.index)
        while kept and applied.term_at(kept) != self.log[kept - 1][0]:
            kept -= 1
        told = self._unclean[node.name]
        if applied.note.incarnation == group.incarnation:
            if min(told.released, len(self.log)) > kept or told.kept != applied.note.index:
                raise Violation(f"{node.name} lost what was released above {kept}, and told of {told}")
            if told.in_sync != before.in_sync:
                raise Violation(f"{node.name} told that {told.in_sync} have what is lost, and {before.in_sync} do")
        self._lost[before.incarnation] = self.log[:]
        del self.log[kept:]
        self._delivered = {message: index for message, index in self._delivered.items() if index <= kept}

    def quiescent(self) -> str:
        """What is not yet as it should be, now that nothing fails any more; "" where all is."""
        world = self._world
        group = world.etcd.group
        if set(group.in_sync) != set(group.replicas) or not group.primary:
            return f"in sync are {group.in_sync} of {group.replicas}"
        index = world.nodes[group.primary].core.index
        for name in group.replicas:
            node = world.nodes[name]
            if node.core.leads != (group.term if name == group.primary else 0):
                return f"{name} leads term {node.core.leads}"
            if node.core.index != index or node.core.released != index or node.disk.unsynced:
                return f"{name} is at {node.core.index}, released {node.core.released}, of {index}"
        if not world.nodes[group.primary].core.may_answer(world.nodes[group.primary].clock()):
            return f"{group.primary} has no lease"
        return ""

    def check_digests(self) -> None:
        """All stores hold what the released records say, and nothing else."""
        expected: dict[Key, bytes] = {}
        for _, commit, _ in self.log:
            for database, name, value in commit.edits:
                if value is None:
                    expected.pop((database, name), None)
                else:
                    expected[database, name] = bytes(value)
        for name in self._world.etcd.group.replicas:
            rows = self._world.nodes[name].disk.synced.rows
            if rows != expected:
                differing = sorted(key for key in rows.keys() | expected.keys() if rows.get(key) != expected.get(key))
                raise Violation(f"the store of {name} differs from the released records at {differing[:5]}")
