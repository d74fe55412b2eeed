"""The shard's part in a backup: it stands still for a moment, and copies its store while it goes on.

All shards stand still before any of them settles what it copies: nothing that moves from one to another, as a dead
letter does, is in neither copy.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.stores import Copy, Copying, Hold
from shardmq.errors import ReplyCode
from shardmq.shards.state.shard import COORDINATOR
from shardmq.shards.storage.store import Store
from shardmq.storage.store_copy import StoreCopy

HOLD_SECONDS: Final = 3.0
"""A shard that is not told to copy within this time goes on: the backup has failed."""

TELL_SECONDS: Final = 0.2

Event = tuple[Peer, Any]


class StoreCopies:
    """Holds back what gateways say, and tells the coordinator how far the copy is.

    Args:
        store: what is copied.
        demand: has everything that is decided written with this pass.

    Attributes:
        is_engaged: whether events are held back, or were and are to be carried out; in all other passes there is
            nothing to do.
    """

    def __init__(self, store: Store, demand: Callable[[], None]) -> None:
        self._store = store
        self._demand = demand
        self._held: list[Event] = []
        self._holds_until: float | None = None
        self._asked: tuple[Responder[None], Copy] | None = None
        self._copy: StoreCopy | None = None
        self._teller: Peer | None = None
        self._told_at = 0.0
        self.is_engaged = False
        self.handlers: Final[dict[type, Callable[[Any, Any], None]]] = {Hold: self._hold, Copy: self._begin}

    @property
    def is_behind(self) -> bool:
        """Whether what was held back is to be carried out now."""
        return self._holds_until is None and bool(self._held)

    @property
    def is_copying(self) -> bool:
        """Whether a copy is on its way."""
        return self._copy is not None

    def hold_back(self, events: list[Event], now: float) -> list[Event]:
        """Return the events to carry out now, with those held back before."""
        if self._holds_until is None:
            self.is_engaged = False
            held, self._held = self._held, []
            return held + events
        self._held += [event for event in events if event[0].role != COORDINATOR]
        events = [event for event in events if event[0].role == COORDINATOR]
        if now >= self._holds_until:
            self._holds_until = None
        return events

    def committed(self) -> bool:
        """Begin the copy that was asked for, now that all decisions are in the store; return whether one was."""
        if self._asked is None:
            return False
        (responder, message), self._asked = self._asked, None
        self._holds_until = None
        try:
            self._copy = self._store.copy(Path(message.folder), message.bytes_per_second)
        except OSError as fault:
            text = f"{message.folder} cannot be written: {fault.strerror}"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
            return True
        self._teller = responder.peer
        responder.answer(None)
        return True

    def tick(self, now: float) -> None:
        """Tell how far the copy is."""
        copy, peer = self._copy, self._teller
        if copy is None or peer is None:
            return
        if copy.is_over:
            self._copy = None
            files = [] if copy.copied is None else [(copy.copied.name, copy.copied.bytes, copy.copied.checksum)]
            peer.post(Copying(copy.done, copy.done if files else copy.total, files, copy.fault))
        elif now >= self._told_at + TELL_SECONDS:
            self._told_at = now
            peer.post(Copying(copy.done, max(copy.done, copy.total)))

    def lost(self, peer: Peer) -> None:
        """A session has ended: what was held back of it is not carried out, as if it had not arrived."""
        self._held = [event for event in self._held if event[0] is not peer]
        if peer is self._teller:
            self.close()

    def close(self) -> None:
        """Give up the copy, if one is on its way."""
        if self._copy is not None:
            self._copy.close()
        self._copy = self._teller = None

    def _hold(self, responder: Responder[None], _message: Hold) -> None:
        self.close()  # an earlier backup has failed, elsewhere
        self._holds_until = time.monotonic() + HOLD_SECONDS
        self.is_engaged = True
        responder.answer(None)

    def _begin(self, responder: Responder[None], message: Copy) -> None:
        if self._holds_until is None:
            text = "the shard has waited for too long, and goes on without a copy"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
            return
        self._asked = responder, message
        self._demand()
