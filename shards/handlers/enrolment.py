"""Whom a shard listens to, and who recognises it.

    coordinator                         shard
      │  opens a session  ──────────────►  │
      │  ◄───────────────────  [Identity]  │   what the store knows of itself, and its durable queues
      │  [Enroll, Assign, Recorded, …] ─►  │   written with the first queue, or before it
      │  or [Expel]  ───────────────────►  │   the shard refuses to go on: exit code 78

A gateway tells in its Hello which broker's it is, and by which coordinator's topology it routes. The shard opens no
session for one of another broker, nor for one that knows a newer coordinator than itself: that coordinator may be one
which the shard would refuse. Nor for one that the coordinator has lost and named, until it is back there. So nothing is
delivered from a store that was not recognised, and a shard that restarts while the coordinator is away serves the
gateways that it knows.

Where several hosts have coordinators, one that was superseded may not have heard of it: it was frozen, or what it said
was long on the way. With the enrolment by a newer one, the sessions of others end, and nothing of them is heard.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from shardmq.bus.listener import Listener, Peer, Responder
from shardmq.bus.messages.base import Hello
from shardmq.bus.messages.stores import Enroll, Expel, Identity, LinkedGateways, ListGateways
from shardmq.errors import ReplyCode, StoreRefused
from shardmq.shards.state.shard import COORDINATOR, GATEWAY, ShardState
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.topology.entities import Queue


class Enrolment:
    """The shard's part in being recognised.

    Args:
        state: the queues.
        file: the store's, for errors.
        identity: as it is in the store.
        newest_transaction: returns the highest number of a transaction that is known here.

    Attributes:
        superseded: coordinators of which nothing is heard any more.
    """

    def __init__(
        self, state: ShardState, file: object, identity: StoreIdentity, newest_transaction: Callable[[], int]
    ) -> None:
        self._state = state
        self._file = file
        self.identity = identity
        self._newest_transaction = newest_transaction
        self.superseded: set[Peer] = set()
        self._fenced: frozenset[str] = frozenset()
        self._began = time.monotonic()
        self._end: Callable[[Peer, str], None] = lambda _peer, _reason: None
        self.handlers: Final[dict[type, Callable[[Any, Any], None]]] = {
            Enroll: self._enroll,
            Expel: self._expel,
            ListGateways: self._list_gateways,
        }

    def guard(self, listener: Listener[Any]) -> None:
        """Have a listener open sessions with those alone who are to be heard."""
        listener.reason_against = self.reason_against
        listener.is_early = self.is_early
        self._end = listener.end

    def opened(self, peer: Peer) -> None:
        """A session is open: the coordinator is told what is here."""
        if peer.role != COORDINATOR:
            return
        mine, unrecorded = self.identity, self._state.unrecorded
        queues = [
            (declared.id, declared.vhost, declared.name)
            for hosted in self._state.queues.values()
            if (declared := hosted.queue.declared).durable and declared.id not in unrecorded
        ]
        given = mine.queue, mine.is_adopted, queues, self._newest_transaction()
        peer.post(Identity(mine.store, mine.shard, mine.broker, mine.generation, *given))

    def _list_gateways(self, responder: Responder[LinkedGateways], message: ListGateways) -> None:
        if message.fenced is not None:
            self._fence_off(frozenset(message.fenced))
        names = [peer.name for peer in self._state.peers if peer.role == GATEWAY]
        responder.answer(LinkedGateways(time.monotonic() - self._began, names))

    def reason_against(self, hello: Hello) -> str:
        """Why a caller gets no session; "" if it gets one."""
        mine = self.identity
        if hello.role != GATEWAY or not mine.broker or hello.broker == mine.broker:
            return ""
        return f"shard {mine.shard} belongs to broker {mine.broker}, not to {hello.broker or 'none'}"

    def is_early(self, hello: Hello) -> bool:
        """Whether a gateway is to wait for the coordinator, who has not enrolled this shard yet, or not this time.

        Or who has lost the gateway, and has not said yet that it is back.
        """
        mine = self.identity
        if hello.role != GATEWAY:
            return False
        return not mine.broker or hello.generation > mine.generation or hello.name in self._fenced

    def _fence_off(self, names: frozenset[str]) -> None:
        """End the sessions of gateways that the coordinator has lost."""
        self._fenced = names
        for peer in self._state.peers:
            if peer.role == GATEWAY and peer.name in names:
                self._end(
                    peer, "the coordinator has lost it, and it may route by what was; it waits until it is back there"
                )

    def given(self, queue: Queue) -> StoreIdentity | None:
        """A durable queue is new here, and its id is never given to others; returns the identity to write with it."""
        if queue.id <= self.identity.queue:
            return None
        self.identity = msgspec.structs.replace(self.identity, queue=queue.id)
        return self.identity

    def _enroll(self, responder: Responder[None], message: Enroll) -> None:
        mine = self.identity
        if mine.broker not in ("", message.broker):
            text = f"shard {mine.shard} belongs to broker {mine.broker}, not to {message.broker}"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
        elif message.generation < mine.generation:
            text = f"shard {mine.shard} has heard of coordinator generation {mine.generation}"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
            self.superseded.add(responder.peer)
        else:
            self._supersede(responder.peer, message.generation)
            self._state.unrecorded.begin_session()  # not before: a superseded one that calls again tells of no queues
            if (message.broker, message.generation) != (mine.broker, mine.generation):
                self._become(broker=message.broker, generation=message.generation)
            responder.answer(None)

    def lost(self, peer: Peer) -> None:
        """A session is over."""
        self.superseded.discard(peer)

    def _supersede(self, newest: Peer, generation: int) -> None:
        """End the sessions of all coordinators but the newest."""
        for peer in self._state.peers:
            if peer.role == COORDINATOR and peer is not newest:
                self.superseded.add(peer)
                self._end(peer, f"coordinator generation {generation} has enrolled this shard")

    def _expel(self, _peer: Peer, message: Expel) -> None:
        raise StoreRefused(f"{self._file}: {message.text}")

    def _become(self, **changes: Any) -> None:
        self.identity = msgspec.structs.replace(self.identity, **changes)
        self._state.buffer.identify(self.identity)
