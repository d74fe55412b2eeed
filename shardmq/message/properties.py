"""A message's properties, by AMQP's names."""

from typing import Any, Final

import msgspec

RECURSION_MAX: Final = 1000
"""Python's default limit of recursion. Properties that could be read when they came in are read again with this limit,
as the stack may be deeper then; gateways run with a lower one."""


class Properties(
    msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, forbid_unknown_fields=True, kw_only=True, frozen=True
):
    """A message's properties, with AMQP 0-9-1's names and meanings (section 4.2.6.1); None where one is not set.

    Attributes:
        content_type: MIME type of the body.
        content_encoding: MIME encoding of the body.
        headers: a table for the application; keys are strings. Values are what msgpack has, times with a time zone, and
            decimal.Decimal.
        delivery_mode: 1 transient, 2 persistent; persistent by default.
        priority: 0 to 255.
        correlation_id: for the application, to match replies with requests.
        reply_to: for the application, the queue for replies.
        expiration: how long the message may wait in a queue, in milliseconds, as a decimal string.
        message_id: for the application; the broker assigns one where it is not set.
        timestamp: seconds since 1970.
        type: the application's name for the kind of message.
        user_id: the publishing user.
        app_id: the publishing application.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
