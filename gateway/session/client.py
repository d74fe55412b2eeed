"""Who a client is, and what it may touch: user, virtual host, permissions, exclusive queues, transactions."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import msgspec

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Counts, DropQueue, Purge
from shardmq.errors import (
    AccessRefused,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    RequestError,
    ResourceLocked,
    Unavailable,
)
from shardmq.gateway.links.command_pacing import CommandPacing
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.front import Front
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.message_loans import Account
from shardmq.limits import (
    DECLARE_SECONDS,
    DELIVERY_WINDOW_BYTES,
    DELIVERY_WINDOWS_BYTES,
    GET_BYTES,
    GETS_BYTES,
    LEAST_WINDOW_BYTES,
    LEAST_WINDOWS,
    OFFSETS_FROM,
)
from shardmq.topology.commands import Command, DeclareQueue, DeleteQueue
from shardmq.topology.entities import REPLY_QUEUES, SEE_ALL_TAGS, Queue, check_nesting
from shardmq.topology.parameters.shovel import RUNNER
from shardmq.topology.repeats import repeated_queue

PAUSE_SECONDS: Final = 0.002
"""Pause before a queue is declared again that was being deleted; each time twice as long."""

REACH_SECONDS: Final = 5.0
"""How long a deletion waits for the queue's shard, to take what was sent to it before, or to count; then it goes on."""

CLIENT_PROPERTIES_BYTES_MAX: Final = 4096
"""What a client may say of itself and have it kept, as msgpack; 5,000 connections make 20 MB of it at most."""

CLIENTS_KNOWN: Final = 1024
"""Connections of one program say the same of themselves, and share it: so many that are different."""


class Client:
    """A client that was let in: one user, on one virtual host, over one connection.

    Args:
        state: of the gateway.
        front: the protocol in front.
        vhost: the virtual host it has opened; it exists. "" is none: an administrative session.
        user: who it is.

    Attributes:
        permissions: what the user may do here.
        account: room for large messages that the connection was lent.
        channels: how many are open.
        consumers: how many run, on all channels.
        partitions: how many those of groups have.
        reads_keys: whether it reads batches in which each message has a routing key of its own.
        answers_lost: whether its program's next step shows that it has heard of partitions that a consumer has lost.
        serves_http: whether it asks for those who ask it over HTTP; such connections are not in totals and pages.
    """

    __slots__ = (
        "_number",
        "_pacing",
        "account",
        "answers_lost",
        "channels",
        "consumers",
        "front",
        "partitions",
        "permissions",
        "reads_keys",
        "serves_http",
        "state",
        "user",
        "vhost",
    )
    _count: ClassVar[int] = 0

    def __init__(self, state: GatewayState, front: Front, vhost: str, user: str) -> None:
        Client._count += 1
        self._number = Client._count
        self.state = state
        self.front = front
        self.vhost = vhost
        self.user = user
        self.permissions = state.permissions(user, vhost)
        self.account = Account(state.lender)
        self.channels = self.consumers = self.partitions = 0
        self.reads_keys = self.serves_http = False
        self.answers_lost = True
        self._pacing = CommandPacing(state.coordinator.perform, user)

    @property
    def identity(self) -> str:
        """Names this connection in the whole broker, as the owner of exclusive queues, and to be closed by."""
        return f"{self.state.origin:016x}.{self._number}"

    def consumer_started(self, channel: int, queue: str, consumer: Consumer, arguments: Mapping[str, Any]) -> None:
        """Count a consumer, and tell of it."""
        self.consumers += 1
        self.state.events.consumer_created(self, channel, queue, consumer, arguments)

    def consumers_ended(self, channel: int, consumers: Collection[Consumer]) -> None:
        """Count consumers no longer, and tell of it."""
        self.consumers -= len(consumers)
        if not self.state.events.is_heard:
            return
        for consumer in consumers:
            queue = self.state.topology.queue_by_id(consumer.queue)
            self.state.events.consumer_deleted(self, channel, "" if queue is None else queue.name, consumer)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its user, as they are now."""
        if self.user == RUNNER:
            return ("administrator",)
        user = self.state.topology.users.get(self.user)
        return () if user is None else user.tags

    @property
    def is_administrative(self) -> bool:
        """Whether this is an administrative session, which has no virtual host."""
        return not self.vhost

    @property
    def is_administrator(self) -> bool:
        """Whether its user has the tag "administrator"."""
        return "administrator" in self.tags

    @property
    def vhosts_shown(self) -> Collection[str]:
        """The virtual hosts that its lists are of: its own; in an administrative session all that the user may see."""
        topology = self.state.topology
        if self.vhost:
            return (self.vhost,)
        if not SEE_ALL_TAGS.isdisjoint(self.tags):
            return topology.vhosts
        return {vhost for user, vhost in topology.permissions if user == self.user}

    @property
    def next_window(self) -> int:
        """The window of one more consumer, in bytes."""
        consumers = self.consumers + self.partitions
        share = DELIVERY_WINDOWS_BYTES // (consumers + 1) + 1
        if consumers < LEAST_WINDOWS:
            share = max(share, LEAST_WINDOW_BYTES)
        return min(DELIVERY_WINDOW_BYTES, share, self.state.next_window)

    @property
    def get_room(self) -> int:
        """Up to which size, in bytes, a message is got that nothing was lent for."""
        return min(GET_BYTES, GETS_BYTES // self.channels, self.state.next_window)

    def consumer_tag(self, channel: int, number: int) -> str:
        """A tag for the consumer of a client that has chosen none; no other consumer of the broker has it."""
        return f"amq.ctag-{self.state.origin:016x}.{self._number}.{channel}.{number}"

    def queue(self, name: str) -> Queue:
        """The queue of that name in the client's virtual host.

        Raises:
            NotFound: there is none, or it is a reply queue, which has no name for others.
            ResourceLocked: it is exclusive to another connection.
        """
        if name.startswith(REPLY_QUEUES):
            raise NotFound(f"no queue '{name}' in vhost '{self.vhost}'")
        queue = self.state.topology.queue(self.vhost, name)
        if queue.owner and queue.owner != self.identity:
            raise ResourceLocked(
                f"cannot obtain access to locked queue '{name}' in vhost '{self.vhost}': it is exclusive to the "
                "connection that declared it"
            )
        return queue

    def is_elsewhere(self, queue: Queue) -> bool:
        """Whether a queue is exclusive to a client of another gateway, or of an earlier life of this one."""
        return bool(queue.owner) and not queue.owner.startswith(f"{self.state.origin:016x}.")

    def check_transaction(self, number: int) -> None:
        """Make sure that a transaction is here, undecided, and the user's: an administrator has all of them.

        Raises:
            PreconditionFailed: it is over, or never was in this virtual host.
            AccessRefused: somebody else began it.
            Unavailable: it is not known here, and the coordinator, which would have told of it, is away.
        """
        transaction = self.state.topology.transactions.get(number)
        if transaction is None and not self.state.coordinator.is_current:
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

    def check_staging(self, number: int, attempt: int, end: int) -> None:
        """Make sure that a publish may be staged in a transaction for that attempt.

        Args:
            number: of the transaction.
            attempt: its number.
            end: behind the last of the numbers that its messages take.

        Raises:
            InvalidRequest: it names no attempt, or its messages have numbers that are for offsets.
            PreconditionFailed: the transaction is over, or never was in this virtual host.
            AccessRefused: somebody else began it.
            Unavailable: it is not known here, and the coordinator is away.
        """
        if not attempt:
            raise InvalidRequest(
                f"a publish with transaction {number} needs its attempt as producer, from 1 on; it has 0"
            )
        if end > OFFSETS_FROM:
            raise InvalidRequest(
                f"a publish with transaction {number} numbers its messages up to {end - 1}; numbers from "
                f"{OFFSETS_FROM} on are for the offsets that its attempt commits: number messages from 0"
            )
        self.check_transaction(number)

    def perform(self, command: Command, reply: Reply) -> None:
        """Have the coordinator carry out a command."""
        self._pacing.perform(command, reply)

    def declare_queue(self, command: DeclareQueue, reply: Reply) -> None:
        """Declare a queue; the result is (ready messages, consumers).

        One that is there already is only counted. One that was not there when this was asked had nothing in it when it
        was declared, whoever was first.
        """
        declare = partial(self._declare_queue, command, reply, time.monotonic() + DECLARE_SECONDS, PAUSE_SECONDS)
        topology = self.state.topology
        if not self.state.coordinator.is_promised:
            declare()
        elif (command.vhost, command.name) not in topology.queues:
            declare(is_new=True)
        elif (there := repeated_queue(topology, command)) is not None:

            def counted(outcome: Outcome) -> None:
                if isinstance(outcome, NotFound):
                    declare()
                else:
                    reply(outcome)

            self.count(there, counted, is_declared=True)
        else:
            declare()

    def _declare_queue(
        self, command: DeclareQueue, reply: Reply, deadline: float, pause: float, *, is_new: bool = False
    ) -> None:
        """Declare a queue until it is there: one that existed may have been being deleted.

        One that `is_new` is counted only where its shard is back for the coordinator, and not yet for this gateway.
        """

        def declared(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                reply(outcome)
                return
            try:
                queue = self.queue(command.name)
            except RequestError as error:
                counted(error)
                return
            if is_new and self.state.links[queue.shard].is_open:
                reply((0, 0))
            else:
                self.count(queue, counted, is_declared=True)

        def counted(outcome: Outcome) -> None:
            if isinstance(outcome, NotFound) and time.monotonic() < deadline:
                again = partial(self._declare_queue, command, reply, deadline, 2 * pause)
                asyncio.get_running_loop().call_later(pause, again)
            else:
                reply(outcome)

        self.perform(command, declared)

    def count(self, queue: Queue, reply: Reply, *, is_declared: bool = False) -> None:
        """Count what is in a queue, which was just declared or not; the result is (ready messages, consumers)."""
        self.state.links[queue.shard].ask(Counts(queue.id, is_declared), reply)

    def delete_queue(self, queue: Queue, if_unused: bool, if_empty: bool, reply: Reply) -> None:
        """Delete a queue; the result is how many messages that were ready went with it.

        The coordinator decides, once the shard has all that was sent to it from here; so the count is that of all who
        were told that they had published. The shard is told to drop the queue by this gateway, for the count, and by
        the coordinator: this gateway may end in between.
        """
        link = self.state.links[queue.shard]

        def dropped(outcome: Outcome) -> None:
            reply(0 if isinstance(outcome, Unavailable) else outcome)  # it is deleted; what it had is not known

        def deleted(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                reply(outcome)
            else:
                link.ask(DropQueue(queue.id), dropped, REACH_SECONDS)

        command = DeleteQueue(self.vhost, queue.name, if_unused, if_empty, queue.id)
        if if_unused or if_empty or not link.is_carried_out:
            self.reach(queue, lambda: self.perform(command, deleted))
        else:
            self.perform(command, deleted)

    def reach(self, queue: Queue, then: Callable[[], None]) -> None:
        """Call `then` once all that was sent to a queue before has reached its shard.

        What the coordinator tells the shard of the queue would overtake what is published here.
        """
        link = self.state.links[queue.shard]
        if link.is_open:
            link.ask(Counts(queue.id), lambda _: then(), REACH_SECONDS)
        else:
            then()

    def purge(self, queue_name: str, reply: Reply) -> None:
        """Remove the ready messages of a queue; the result is how many.

        Raises:
            NotFound: no such queue.
            ResourceLocked: it is exclusive to another connection.
        """
        queue = self.queue(queue_name)
        self.state.links[queue.shard].ask(Purge(queue.id), reply)


NO_PROPERTIES: Final = msgspec.msgpack.encode({})
"""What is kept of a client that says nothing of itself."""


def packed_properties(properties: dict[str, Any]) -> bytes:
    """What is kept of what a client says of itself, as msgpack.

    Returns:
        All of it; or nothing where it is too much, or no table of names.
    """
    try:
        check_nesting(properties)
        kept = msgspec.msgpack.encode(_plain(properties))
    except (RequestError, RecursionError):
        kept = NO_PROPERTIES
    return _shared(kept) if len(kept) <= CLIENT_PROPERTIES_BYTES_MAX else NO_PROPERTIES


@lru_cache(maxsize=CLIENTS_KNOWN)
def _shared(kept: bytes) -> bytes:
    return kept


def _plain(value: Any) -> Any:
    """A value that every reader of lists knows: AMQP has types of its own."""
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case str():
            return value.encode(errors="replace").decode()
        case bytes():
            return value.decode(errors="replace")
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)
