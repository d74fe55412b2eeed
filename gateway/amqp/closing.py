"""How an AMQP connection ends, once one of us closes it.

    open ──connection.close from us──► closing ──close-ok, or no time left──► finished
     └─────connection.close from the client──► leaving ──close-ok─────────────►┘

A client that was told why is disconnected when it has answered; one that was not told, after a while.
"""

from collections.abc import Callable
from typing import Final

from shardmq.gateway.amqp.outbox import Outbox
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import Event, MethodReceived
from shardmq.protocol.amqp.methods.connection import ConnectionClose, ConnectionCloseOk
from shardmq.protocol.amqp.methods.fields import Method

SILENT_SECONDS: Final = 3.0
"""How long a client that did not log in waits before it is disconnected without an answer, as in RabbitMQ
(`SILENT_CLOSE_DELAY`): so passwords cannot be tried fast."""


class Closing:
    """The end of one connection. A connection has one from when it begins to close.

    Args:
        outbox: the connection's.

    Attributes:
        is_deaf: nothing that still comes is looked at.
        is_goodbye_due: the last words are sent once exclusive queues are gone.
    """

    __slots__ = ("_outbox", "is_deaf", "is_goodbye_due")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.is_deaf = False
        self.is_goodbye_due = False

    def say_goodbye(self, fault: AmqpError, then: Callable[[], None] | None = None) -> None:
        """Tell the client why; it answers with close-ok, and hangs up."""
        self.say_last(ConnectionClose(fault.code, str(fault), *fault.method), then)

    def say_last(self, words: Method, then: Callable[[], None] | None = None) -> None:
        """Give back what the client has, and say so when its exclusive queues are gone.

        As with RabbitMQ, a client that has heard it may declare them anew at once, over another connection.
        """
        outbox = self._outbox
        session = outbox.session

        def say() -> None:
            self.is_goodbye_due = False
            outbox.send(0, words)
            if then is not None:
                then()
            elif self.is_deaf:
                outbox.finish()

        outbox.begin_close()
        self.is_goodbye_due = True
        if session is None:
            say()
        else:
            outbox.host.when_gone(session.client, say)

    def end_silently(self) -> None:
        """Tell the client nothing, and hang up after a while."""
        self.is_deaf = True
        self._outbox.begin_close(SILENT_SECONDS)
        self._outbox.pause_reading()

    def take(self, event: Event) -> None:
        """Take what comes after we closed: only what belongs to that counts any more."""
        method = event.method if isinstance(event, MethodReceived) and not event.channel else None
        if isinstance(method, ConnectionCloseOk):
            self._outbox.finish()
        elif isinstance(method, ConnectionClose):  # at the same time; close-ok comes next
            self._outbox.send(0, ConnectionCloseOk())
