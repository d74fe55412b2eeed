"""A client's connection, whatever its protocol: who it is, its virtual host, its channels, and what it asks there."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Counts, Purge
from shardmq.errors import (
    AccessRefused,
    ChannelError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    RequestError,
    ResourceLocked,
    Unavailable,
)
from shardmq.gateway.links.command_pacing import CommandPacing
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.front import Front
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.message_loans import Account
from shardmq.limits import (
    CHANNELS_MAX,
    DECLARE_SECONDS,
    DELIVERY_WINDOW_BYTES,
    DELIVERY_WINDOWS_BYTES,
    GET_BYTES,
    GETS_BYTES,
)
from shardmq.topology.commands import Command, DeclareQueue
from shardmq.topology.entities import REPLY_QUEUES, Queue

PAUSE_SECONDS: Final = 0.002
"""Before a queue is declared again that was on its way out; each time twice as long."""

REACH_SECONDS: Final = 5.0
"""How long a deletion waits for the queue's shard to take what was sent to it before; then it goes its way."""


class Session:
    """What one client connection has: a user, a virtual host, channels.

    Args:
        hub: of the process.
        front: the protocol in front.
        vhost: the virtual host it was opened on; it exists.
        user: who it is.

    Attributes:
        rights: what the user may do here.
        account: room for large messages that the connection was lent.
    """

    __slots__ = ("_pace", "account", "channels", "front", "hub", "number", "rights", "user", "vhost")
    _made: ClassVar[int] = 0

    def __init__(self, hub: GatewayState, front: Front, vhost: str, user: str) -> None:
        Session._made += 1
        self.number = Session._made
        self.hub = hub
        self.front = front
        self.vhost = vhost
        self.user = user
        self.rights = hub.rights(user, vhost)
        self.channels: dict[int, Channel] = {}
        self.account = Account(hub.lender)
        self._pace = CommandPacing(hub.coordinator.perform)

    @property
    def identity(self) -> str:
        """Names this connection in the whole broker, as the owner of exclusive queues, and to be closed by."""
        return f"{self.hub.origin:016x}.{self.number}"

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its user, as they are now."""
        user = self.hub.topology.users.get(self.user)
        return () if user is None else user.tags

    @property
    def is_administrator(self) -> bool:
        """Whether its user has the tag "administrator"."""
        return "administrator" in self.tags

    @property
    def next_window(self) -> int:
        """The window of one more consumer."""
        consumers = sum([len(channel.consumers) for channel in self.channels.values()])
        return min(DELIVERY_WINDOW_BYTES, DELIVERY_WINDOWS_BYTES // (consumers + 1) + 1, self.hub.next_window)

    @property
    def get_room(self) -> int:
        """Up to which size a message is got that nothing was lent for."""
        return min(GET_BYTES, GETS_BYTES // len(self.channels), self.hub.next_window)

    def open_channel(self, number: int, most: int = CHANNELS_MAX) -> Channel:
        """Open channel `number`; `most` is the last number there is.

        Raises:
            ChannelError: it is open already, or no number for a channel.
        """
        if number in self.channels:
            raise ChannelError(f"channel {number} is open already")
        if not 1 <= number <= most:
            raise ChannelError(f"channel {number} cannot be opened; channels are 1 to {most}")
        channel = self.channels[number] = Channel(self, number)
        return channel

    def close_channel(self, number: int) -> None:
        """Close a channel, if it is open; what is unacked on it returns to its queues."""
        channel = self.channels.pop(number, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """The connection is gone."""
        for number in list(self.channels):
            self.close_channel(number)
        self.account.close()

    def socket_has_room(self) -> None:
        """The client reads again."""
        for channel in self.channels.values():
            channel.socket_has_room()

    def queue(self, name: str) -> Queue:
        """The queue of that name here.

        Raises:
            NotFound: there is none, or it is there for answers alone.
            ResourceLocked: it is another connection's alone.
        """
        if name.startswith(REPLY_QUEUES):
            raise NotFound(f"no queue '{name}' in vhost '{self.vhost}'")
        queue = self.hub.topology.queue(self.vhost, name)
        if queue.owner and queue.owner != self.identity:
            raise ResourceLocked(
                f"cannot obtain access to locked queue '{name}' in vhost '{self.vhost}': it is exclusive to the "
                "connection that declared it"
            )
        return queue

    # --- transactions ---------------------------------------------------------------------------------------------

    def check_transaction(self, number: int) -> None:
        """Make sure that a transaction is here, undecided, and the user's: an administrator has all of them.

        Raises:
            PreconditionFailed: it is over, or never was in this virtual host.
            AccessRefused: somebody else began it.
            Unavailable: it is not known here, and the coordinator, which would have told of it, is away.
        """
        transaction = self.hub.topology.transactions.get(number)
        if transaction is None and not self.hub.coordinator.is_current:
            raise Unavailable(
                f"the coordinator is not there now, and transaction {number} is not known here; try this again"
            )
        if transaction is None or transaction.vhost != self.vhost:
            raise PreconditionFailed(
                f"transaction {number} is over or unknown: it was committed, aborted or has expired; begin it again"
            )
        if transaction.user != self.user and not self.is_administrator:
            raise AccessRefused(
                f"access to transaction {number} ('{transaction.name}') in vhost '{self.vhost}' refused for user "
                f"'{self.user}': only who began it and administrators have it; begin one of your own"
            )

    def check_staging(self, number: int, attempt: int) -> None:
        """Make sure that a publish may be staged in a transaction for that attempt.

        Raises:
            InvalidRequest: it names no attempt.
            PreconditionFailed, AccessRefused, Unavailable: as `check_transaction`.
        """
        if not attempt:
            raise InvalidRequest(
                f"a publish with transaction {number} needs its attempt as producer, from 1 on; it has 0"
            )
        self.check_transaction(number)

    # --- topology -------------------------------------------------------------------------------------------------

    def perform(self, command: Command, reply: Reply) -> None:
        """Have the coordinator carry out a command."""
        self._pace.perform(command, reply)

    def declare_queue(self, command: DeclareQueue, reply: Reply) -> None:
        """Declare a queue; the result is (ready messages, consumers)."""
        self._declare_queue(command, reply, time.monotonic() + DECLARE_SECONDS, PAUSE_SECONDS)

    def _declare_queue(self, command: DeclareQueue, reply: Reply, deadline: float, pause: float) -> None:
        """Until it is there: one that was there already may have been on its way out."""

        def declared(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                reply(outcome)
                return
            try:
                queue = self.queue(command.name)
            except RequestError as error:
                counted(error)
                return
            self.count(queue, counted, is_declared=True)

        def counted(outcome: Outcome) -> None:
            if isinstance(outcome, NotFound) and time.monotonic() < deadline:
                again = partial(self._declare_queue, command, reply, deadline, 2 * pause)
                asyncio.get_running_loop().call_later(pause, again)
            else:
                reply(outcome)

        self.perform(command, declared)

    def count(self, queue: Queue, reply: Reply, *, is_declared: bool = False) -> None:
        """See what is in a queue, which was just declared or not; the result is (ready messages, consumers)."""
        self.hub.links[queue.shard].ask(Counts(0, queue.id, is_declared), reply)

    def reach(self, queue: Queue, then: Callable[[], None]) -> None:
        """Do something once all that was sent to a queue before has reached its shard: the coordinator's word for it
        takes another way there, and would overtake what is published here.
        """
        link = self.hub.links[queue.shard]
        if link.is_open:
            link.ask(Counts(0, queue.id), lambda _: then(), REACH_SECONDS)
        else:
            then()

    def purge(self, queue_name: str, reply: Reply) -> None:
        """Remove what is ready; the result is how many."""
        queue = self.queue(queue_name)
        self.hub.links[queue.shard].ask(Purge(0, queue.id), reply)
