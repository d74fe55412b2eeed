"""Who publishes and consumes through a host, and what is answered once it is released."""

from collections import deque
from typing import TYPE_CHECKING

from shardmq.replication.core.events import Propose
from shardmq.storage.engine import Edit

if TYPE_CHECKING:
    from tests.replication.simulator.node import Node
    from tests.replication.simulator.world import World

HOT_KEYS = tuple(b"hot%d" % number for number in range(5))
MESSAGES = 1
MARKS = 2


class Answer:
    """What may be told once an index is released."""

    __slots__ = ("index", "is_publish", "message", "redelivered", "term")

    def __init__(self, message: int, is_publish: bool, redelivered: bool) -> None:
        self.message = message
        self.is_publish = is_publish
        self.redelivered = redelivered
        self.index = 0
        self.term = 0


class Application:
    """Answers that wait in one process of a host."""

    def __init__(self, world: "World", node: "Node") -> None:
        self._world = world
        self._node = node
        self._asked: dict[int, Answer] = {}
        self._waiting: deque[Answer] = deque()
        self._numbers = 0

    def publish(self) -> None:
        world = self._world
        message = world.next_message()
        name = b"%06d" % message
        edits: list[Edit] = [(MESSAGES, name, name)]
        for _ in range(world.random.randint(0, 2)):
            value = None if world.random.random() < 0.2 else name
            edits.append((0, HOT_KEYS[int(world.random.random() * len(HOT_KEYS))], value))
        self._propose(tuple(edits), Answer(message, True, False))

    def deliver(self) -> None:
        """Deliver a message: marked, where it was delivered before, and else the mark is written first."""
        rows = self._node.disk.applied.rows
        message = self._world.any_message()
        name = b"%06d" % message
        if (MESSAGES, name) not in rows:
            return
        if (MARKS, name) not in rows:
            self._propose(((MARKS, name, b"1"),), Answer(message, False, False))
        elif self._node.core.takes_proposals:
            answer = Answer(message, False, True)
            self._wait(answer, self._node.core.index)

    def read(self) -> None:
        """Answer from what was released, which rests on the lease alone."""
        node = self._node
        if node.core.may_answer(node.clock()):
            answer = Answer(0, False, True)
            answer.index, answer.term = node.core.released, node.core.leads
            self._tell(answer)

    def _propose(self, edits: tuple[Edit, ...], answer: Answer) -> None:
        self._numbers += 1
        self._asked[self._numbers] = answer
        node, number = self._node, self._numbers
        node.hand(node.life, Propose(number, edits, answer.is_publish))
        if number in self._asked and not node.is_behind:
            self._world.checker.stalled(node, number)

    def rejected(self, number: int) -> None:
        self._asked.pop(number, None)

    def accepted(self, number: int, index: int) -> None:
        answer = self._asked.pop(number)
        self._world.checker.accepted(self._node, answer)
        self._wait(answer, index)

    def _wait(self, answer: Answer, index: int) -> None:
        answer.index = index
        answer.term = self._node.core.leads
        self._waiting.append(answer)
        if not answer.is_publish and not answer.redelivered and not self.waits_for_mark():
            self._tell(answer)

    def waits_for_mark(self) -> bool:
        """Whether a delivery waits until its mark is released."""
        return True

    def has_unanswered(self) -> bool:
        return bool(self._waiting)

    def deposed(self) -> None:
        self._waiting.clear()
        self._asked.clear()

    def flush_soon(self) -> None:
        """Flush what was released; now and then the machine is frozen just before."""
        if not self._waiting or self._waiting[0].index > self._node.core.released:
            return
        world = self._world
        if world.random.random() < world.freeze_before_flush:
            self._node.paused_until = max(self._node.paused_until, world.now + 3 * world.random.random())
            world.at(self._node.paused_until, self._thaw, self._node.life)
        else:
            self.flush()

    def _thaw(self, life: int) -> None:
        if life == self._node.life:
            self.flush()

    def flush(self) -> None:
        """Tell what was released, as long as the lease lasts."""
        node, waiting = self._node, self._waiting
        while waiting and waiting[0].index <= node.core.released and node.core.may_answer(node.clock()):
            self._tell(waiting.popleft())

    def _tell(self, answer: Answer) -> None:
        self._world.checker.answered(self._node, answer)
