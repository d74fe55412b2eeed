"""What becomes of a message whose handler raised."""

import logging
from typing import Final, Literal, Protocol

from shardmq.client.api.message import Message
from shardmq.errors import ChannelError, ConnectionFault, InvalidRequest

_log = logging.getLogger("shardmq.client")

OnError = Literal["requeue", "reject", "close"]

REQUEUE_DELAY_MS: Final = 1000
"""A message whose handler raised comes again so much later: without a pause the two would keep a processor busy."""

_FATES: Final = {
    "requeue": f"it comes again in {REQUEUE_DELAY_MS} ms",
    "reject": "it is dead-lettered, or dropped where its queue has no dead-letter exchange",
    "close": "its channel closes",
}


class HandlerOwner(Protocol):
    """What `handler_raised` needs of the channel."""

    def is_unsettled(self, tag: int) -> bool:
        """Whether the handler left that message unacked."""


def check_handler(callback: object, on_error: str) -> None:
    """Raise TypeError for a handler that cannot be called, InvalidRequest for a policy that does not exist."""
    if not callable(callback):
        raise TypeError(f"a handler is a function of a message, not {callback!r}")
    if on_error not in _FATES:
        raise InvalidRequest(f"on_error is 'requeue', 'reject' or 'close', not '{on_error}'")


def handler_raised(channel: HandlerOwner, message: Message, queue: str, on_error: str) -> bool:
    """Log a handler's exception, and nack the message as the policy says.

    Called while the exception is handled.

    Returns:
        Whether the channel is to close.
    """
    is_unsettled = channel.is_unsettled(message.delivery_tag)
    fate = _FATES[on_error] if is_unsettled or on_error == "close" else "it was settled already"
    if is_unsettled and on_error != "close":
        try:
            message.nack(on_error == "requeue", REQUEUE_DELAY_MS if on_error == "requeue" else 0)
        except (ChannelError, ConnectionFault):
            fate = "it returns to its queue, as its channel is closed"
    _log.exception(
        "a handler raised: message %s of queue '%s', consumer '%s'; %s",
        message.message_id,
        queue,
        message.consumer_tag,
        fate,
    )
    return on_error == "close"
