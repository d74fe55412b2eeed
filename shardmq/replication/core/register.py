"""The group's key in etcd: what is known of it, and the one swap that may be under way.

A swap that was not answered took place, or did not, or will: what was sent may arrive late. So the key is read before
anything else is asked of it. Where it still has the revision of before, the swap is not dead: it dies when the key
gets another revision. Whoever cares, as the growth of a set, must go on as if it took place until then.
"""

from shardmq.replication.core.effects import ReadGroup, Swap
from shardmq.replication.core.group import Group
from shardmq.replication.core.state import ReplicaState
from shardmq.replication.core.timing import READ_SECONDS


class Register:
    """What a replica knows of its group's key.

    Attributes:
        group: the newest value known; None before the first read.
        revision: of the key, with that value.
        asked: the value of the swap under way; None where none is.
        must_read: nothing is asked of the key before it was read.
    """

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self.group: Group | None = None
        self.revision = 0
        self.asked: Group | None = None
        self.must_read = True
        self._read_at = float("-inf")
        self._is_reading = False
        self._read_again = False

    @property
    def is_busy(self) -> bool:
        """Whether a swap is under way, or one whose outcome is not known."""
        return self.asked is not None or self.must_read

    def swap(self, group: Group) -> None:
        """Ask for a change of the newest value known."""
        self.asked = group
        self._state.effects.append(Swap(self.revision, group))

    def read(self) -> None:
        """Read the key, if that is due."""
        if not self._is_reading and self._state.now - self._read_at >= READ_SECONDS:
            self._read_at = self._state.now
            self._is_reading = True
            self._state.effects.append(ReadGroup())

    def was_read(self) -> None:
        """Take note of an answer. One that was asked for before a swap was lost says nothing about the swap."""
        self._is_reading = False
        self.must_read, self._read_again = self._read_again, False

    def read_lost(self) -> None:
        """Take note that a read was not answered: it is repeated a little later."""
        self._is_reading = False

    def want_read(self) -> None:
        """Read the key before anything else is asked of it."""
        self.must_read = True
        self.read()

    def learn(self, revision: int, group: Group) -> bool:
        """Take a value that was read or seen, and return whether it is news."""
        if revision <= self.revision:
            return False
        self.revision, self.group = revision, group
        return True

    def swapped(self, revision: int) -> bool:
        """Take the success of the swap under way, and return whether it is news."""
        asked, self.asked = self.asked, None
        if asked is None:
            raise RuntimeError(f"{self._state.name}: a swap was answered that is not under way")
        return self.learn(revision, asked)

    def swap_lost(self) -> None:
        """Take note that the swap under way was not answered."""
        self.asked = None
        self._read_at = float("-inf")
        self._read_again = self._is_reading
        self.want_read()
