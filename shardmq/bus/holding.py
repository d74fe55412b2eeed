"""Envelopes that wait until what they rest on is safe: on one machine nothing waits, on several the other replicas do.

    owner ── commit ── flush ──► held, under the index of the last record ── released ──► the socket

An envelope is numbered and encoded when it is flushed, and leaves in that order: to a peer, nothing overtakes it.
"""

from collections import deque
from collections.abc import Callable


class HeldEnvelopes:
    """What links of one process have flushed and may not send yet.

    Args:
        index: returns the index of the last record: what is flushed now may show what any record up to it wrote.
    """

    __slots__ = ("_held", "_index")

    def __init__(self, index: Callable[[], int]) -> None:
        self._index = index
        self._held: deque[tuple[int, Callable[[bytes], object], bytes]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, send: Callable[[bytes], object], envelope: bytes) -> None:
        """Keep an envelope until all that was written up to now is released.

        Args:
            send: called with it then. Where its session has ended meanwhile, it has to do nothing.
            envelope: it.
        """
        self._held.append((self._index(), send, envelope))

    def release(self, released: int) -> bool:
        """Send what rests on no record above an index; returns whether there was anything."""
        held = self._held
        if not held or held[0][0] > released:
            return False
        while held and held[0][0] <= released:
            _, send, envelope = held.popleft()
            send(envelope)
        return True

    def drop(self) -> None:
        """Forget all of them: their sessions have ended."""
        self._held.clear()
