"""Who is connected: told to the coordinator, and disconnected when its user or virtual host is deleted.

A connection is also closed when an administrator says so. The exclusive queues it declared are deleted with it, also
those whose declaration is answered later.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from shardmq.bus.coordinator_link import Outcome
from shardmq.bus.messages.coordinator import Changes, ReportConnections
from shardmq.errors import NotAllowed, ReplyCode, ShardmqError, Unavailable
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.changes import (
    ConnectionClosed,
    PermissionPut,
    PermissionRemoved,
    QueueAdded,
    QueueRemoved,
    UserPut,
    UserRemoved,
    VhostPut,
    VhostRemoved,
    WatermarksSet,
)
from shardmq.topology.commands import DeleteQueue
from shardmq.topology.entities import Queue
from shardmq.topology.parameters.shovel import RUNNER

NEW_LOGIN_SECONDS: Final = 1.0
"""Administrative sessions of a user that was changed end so much later: the answer to the change may be theirs."""

RETRY_SECONDS: Final = 1.0
"""A queue that could not be deleted, as the coordinator was away, is tried again so much later."""


class TrackedConnection(Protocol):
    """An open connection, whatever its protocol."""

    @property
    def session(self) -> Session | None:
        """What the client has; not None."""

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and close the connection."""


class ConnectionTracker:
    """Knows the clients that were let in, and follows what the topology says of them.

    Args:
        state: of the gateway.
    """

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._connections: dict[tuple[str, str], dict[str, TrackedConnection]] = {}  # by (vhost, user), by identity
        self._identities: dict[str, tuple[str, str]] = {}
        self._owned: dict[str, dict[tuple[str, str], Queue]] = {}  # exclusive queues by identity
        self._owners: dict[tuple[str, str], str] = {}
        self._awaited: dict[str, Callable[[], None]] = {}  # who waits until an identity owns none
        self._is_news = True
        state.coordinator.follow(self)
        state.on_tick(self._tick)
        self.loaded()
        self._tick(0.0)  # before the first login, so that the coordinator deletes what this gateway's last life owned

    def opened(self, connection: TrackedConnection, client: Client) -> None:
        """Note a client that has logged in."""
        place = client.vhost, client.user
        self._connections.setdefault(place, {})[client.identity] = connection
        self._identities[client.identity] = place
        self._is_news = True

    def closed(self, client: Client) -> None:
        """Forget a client that is gone, and delete its exclusive queues."""
        place = self._identities.pop(client.identity, None)
        if place is None:
            return
        del self._connections[place][client.identity]
        if not self._connections[place]:
            del self._connections[place]
        self._is_news = True
        for queue in list(self._owned.get(client.identity, {}).values()):
            self._delete(queue)

    def when_gone(self, client: Client, then: Callable[[], None]) -> None:
        """Call back when the exclusive queues of a client that is gone are gone, too; at once where there are none."""
        if client.identity in self._owned:
            self._awaited[client.identity] = then
        else:
            then()

    def check_channels(self, client: Client) -> None:
        """Make sure that the client's user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """
        user = self._state.topology.users.get(client.user)
        most = None if user is None else user.limits.get("max-channels")
        if most is None:
            return
        sessions = [connection.session for connection in self._of_user(client.user)]
        opened = sum(session.client.channels for session in sessions if session is not None)
        if opened >= most:
            raise NotAllowed(
                f"number of channels opened for user '{client.user}' has reached the maximum allowed user limit of "
                f"{most}"
            )

    def loaded(self) -> None:
        """Look at every connection and every exclusive queue anew: all may be different."""
        topology = self._state.topology
        for (vhost, user), connections in list(self._connections.items()):
            self._forget_permissions(vhost, user)
            if user not in topology.users and user != RUNNER:
                self._close(list(connections.values()), f"user '{user}' was deleted")
            elif vhost and vhost not in topology.vhosts:
                self._close(list(connections.values()), f"virtual host '{vhost}' was deleted")
        self._owned.clear()
        self._owners.clear()
        for queue in topology.queues.values():
            self._own(queue)
        for identity in [each for each in self._awaited if each not in self._owned]:
            self._awaited.pop(identity)()

    def changed(self, news: Changes) -> None:
        """Follow changes of the topology."""
        for change in news.changes:
            match change:
                case QueueAdded():
                    self._own(change.queue)
                case QueueRemoved():
                    self._disown(change)
                case PermissionPut():
                    self._forget_permissions(change.permission.vhost, change.permission.user)
                case PermissionRemoved():
                    self._forget_permissions(change.vhost, change.user)
                case UserRemoved():
                    self._close(list(self._of_user(change.name)), f"user '{change.name}' was deleted")
                case VhostRemoved():
                    self._close(list(self._of_vhost(change.name)), f"virtual host '{change.name}' was deleted")
                case UserPut(user):
                    self._report()
                    self._end_administration(user.name)
                case VhostPut():
                    self._report()  # behind TopologyApplied: a limit that was just put counts everybody who is here
                case WatermarksSet(memory_bytes):
                    self._state.watermarks.change(memory_bytes, None)
                case ConnectionClosed(connection, reason):
                    place = self._identities.get(connection)
                    if place is not None:
                        self._close([self._connections[place][connection]], reason)

    def _end_administration(self, user: str) -> None:
        """End the administrative sessions of a user soon: password or tags may be others."""
        sessions = list(self._connections.get(("", user), {}).values())
        if sessions:
            reason = f"user '{user}' was changed; log in again"
            asyncio.get_running_loop().call_later(NEW_LOGIN_SECONDS, self._close, sessions, reason)

    def _of_user(self, name: str) -> Iterator[TrackedConnection]:
        for (_, user), connections in self._connections.items():
            if user == name:
                yield from connections.values()

    def _of_vhost(self, name: str) -> Iterator[TrackedConnection]:
        for (vhost, _), connections in self._connections.items():
            if vhost == name:
                yield from connections.values()

    def _close(self, connections: list[TrackedConnection], reason: str) -> None:
        for connection in connections:
            connection.close(ShardmqError(reason, ReplyCode.CONNECTION_FORCED))

    def _forget_permissions(self, vhost: str, user: str) -> None:
        for connection in self._connections.get((vhost, user), {}).values():
            if connection.session is not None:
                connection.session.client.permissions.forget()

    def _own(self, queue: Queue) -> None:
        if not queue.owner.startswith(f"{self._state.origin:016x}."):
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

        if self._state.topology.has_queue(queue.id):
            self._state.coordinator.perform(DeleteQueue(queue.vhost, queue.name, queue=queue.id), deleted)

    def _tick(self, _now: float) -> None:
        self._report()

    def _report(self) -> None:
        """Tell the coordinator who is here, where that has changed."""
        if not self._is_news:
            return
        self._is_news = False
        places = self._connections.items()
        counts = [(vhost, user, len(connections)) for (vhost, user), connections in places if vhost]
        self._state.coordinator.present(ReportConnections(self._state.origin, counts))
