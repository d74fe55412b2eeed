"""Who is connected, and what follows from it: the coordinator is told, and who lost what it needs is parted from.

A connection ends when its user or virtual host does, or when it is expelled; the exclusive queues it declared end with
it, also those whose declaration is answered later.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from shardmq.bus.coordinator_link import Outcome
from shardmq.bus.messages.coordinator import ReportConnections
from shardmq.errors import NotAllowed, ReplyCode, ShardmqError, Unavailable
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.changes import (
    Change,
    ConnectionClosed,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    UserRemoved,
    VhostRemoved,
)
from shardmq.topology.commands import DeleteQueue
from shardmq.topology.entities import Queue

RETRY_SECONDS: Final = 1.0
"""A queue that could not be deleted, as the coordinator was away, is tried again so much later."""


class Client(Protocol):
    """An open connection, whatever its protocol."""

    @property
    def session(self) -> Session | None:
        """What it has; not None."""

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and hang up."""


class ConnectionTracker:
    """See the module.

    Args:
        hub: of the process.
    """

    def __init__(self, hub: GatewayState) -> None:
        self._hub = hub
        self._clients: dict[tuple[str, str], dict[str, Client]] = {}  # by (vhost, user), then by identity
        self._identities: dict[str, tuple[str, str]] = {}
        self._owned: dict[str, dict[tuple[str, str], Queue]] = {}  # exclusive queues by identity
        self._owners: dict[tuple[str, str], str] = {}
        self._awaited: dict[str, Callable[[], None]] = {}  # who waits until an identity owns none
        self._is_news = True
        hub.coordinator.follow(self)
        hub.on_tick(self._tick)
        self.loaded()
        self._tick(0.0)  # before anybody comes in: what this gateway's last life owned is gone then

    def opened(self, client: Client, session: Session) -> None:
        """A client has come in."""
        place = session.vhost, session.user
        self._clients.setdefault(place, {})[session.identity] = client
        self._identities[session.identity] = place
        self._is_news = True

    def closed(self, session: Session) -> None:
        """A client is gone."""
        place = self._identities.pop(session.identity, None)
        if place is None:
            return
        del self._clients[place][session.identity]
        if not self._clients[place]:
            del self._clients[place]
        self._is_news = True
        for queue in list(self._owned.get(session.identity, {}).values()):
            self._delete(queue)

    def when_gone(self, session: Session, then: Callable[[], None]) -> None:
        """Call back when the exclusive queues of a client that is gone are gone, too; at once where there are none."""
        if session.identity in self._owned:
            self._awaited[session.identity] = then
        else:
            then()

    def check_channels(self, session: Session) -> None:
        """Make sure that the user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """
        user = self._hub.topology.users.get(session.user)
        most = None if user is None else user.limits.get("max-channels")
        if most is None:
            return
        places = [place for place in self._clients if place[1] == session.user]
        opened = sum(len(client.session.channels) for client in self._at(places) if client.session is not None)
        if opened >= most:
            raise NotAllowed(
                f"number of channels opened for user '{session.user}' has reached the maximum allowed user limit of "
                f"{most}"
            )

    # --- changes ------------------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All may be different: look at every connection and every exclusive queue anew."""
        topology = self._hub.topology
        for (vhost, user), clients in list(self._clients.items()):
            self._forget_rights(vhost, user)
            if user not in topology.users:
                self._part(list(clients.values()), f"user '{user}' was deleted")
            elif vhost not in topology.vhosts:
                self._part(list(clients.values()), f"virtual host '{vhost}' was deleted")
        self._owned.clear()
        self._owners.clear()
        for queue in topology.queues.values():
            self._own(queue)
        for identity in [each for each in self._awaited if each not in self._owned]:
            self._awaited.pop(identity)()

    def changed(self, changes: Sequence[Change]) -> None:
        """Something is different."""
        for change in changes:
            match change:
                case QueueAdded():
                    self._own(change.queue)
                case QueueRemoved():
                    self._disown(change)
                case PermissionPut():
                    self._forget_rights(change.permission.vhost, change.permission.user)
                case PermissionRemoved():
                    self._forget_rights(change.vhost, change.user)
                case UserRemoved():
                    places = [place for place in self._clients if place[1] == change.name]
                    self._part(list(self._at(places)), f"user '{change.name}' was deleted")
                case VhostRemoved():
                    places = [place for place in self._clients if place[0] == change.name]
                    self._part(list(self._at(places)), f"virtual host '{change.name}' was deleted")
                case ConnectionClosed(connection, reason):
                    place = self._identities.get(connection)
                    if place is not None:
                        self._part([self._clients[place][connection]], reason)

    def _at(self, places: list[tuple[str, str]]) -> Iterator[Client]:
        for place in places:
            yield from self._clients[place].values()

    def _part(self, clients: list[Client], reason: str) -> None:
        for client in clients:
            client.close(ShardmqError(reason, ReplyCode.CONNECTION_FORCED))

    def _forget_rights(self, vhost: str, user: str) -> None:
        for client in self._clients.get((vhost, user), {}).values():
            if client.session is not None:
                client.session.rights.forget()

    # --- exclusive queues ---------------------------------------------------------------------------------------------

    def _own(self, queue: Queue) -> None:
        if not queue.owner.startswith(f"{self._hub.origin:016x}."):
            return
        name = queue.vhost, queue.name
        self._owners[name] = queue.owner
        self._owned.setdefault(queue.owner, {})[name] = queue
        if queue.owner not in self._identities:
            self._delete(queue)  # its connection is gone already

    def _disown(self, change: QueueRemoved) -> None:
        name = change.vhost, change.name
        owner = self._owners.pop(name, None)
        if owner is not None:
            del self._owned[owner][name]
            if not self._owned[owner]:
                del self._owned[owner]
                if owner in self._awaited:
                    self._awaited.pop(owner)()

    def _delete(self, queue: Queue) -> None:
        def deleted(outcome: Outcome) -> None:
            if isinstance(outcome, Unavailable):
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._delete, queue)

        if self._hub.topology.has_queue(queue.id):
            self._hub.coordinator.perform(DeleteQueue(queue.vhost, queue.name, queue=queue.id), deleted)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tick(self, _now: float) -> None:
        """Tell the coordinator, where there is news, who is here."""
        if not self._is_news:
            return
        self._is_news = False
        counts = [(vhost, user, len(clients)) for (vhost, user), clients in self._clients.items()]
        self._hub.coordinator.present(ReportConnections(self._hub.origin, counts))
