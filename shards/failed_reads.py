"""Requests that only read: one that fails as nobody expected is refused, and the shard goes on.

Anything else that fails so ends the shard: what it was changing may be half done, and only a start from what is on disk
is right.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardmq.bus.listener import Responder
from shardmq.bus.messages.base import Request
from shardmq.errors import ReplyCode, ShardmqError

_log = logging.getLogger(__name__)


def guarded(handlers: Mapping[type, Callable[[Any, Any], None]]) -> dict[type, Callable[[Any, Any], None]]:
    """Those of the handlers whose requests only read, each of which refuses a request where it fails."""
    return {
        kind: partial(_carry_out, handler)
        for kind, handler in handlers.items()
        if issubclass(kind, Request) and kind.only_reads
    }


def _carry_out(handler: Callable[[Any, Any], None], responder: Responder[Any], message: Request[Any]) -> None:
    try:
        handler(responder, message)
    except Exception as fault:  # noqa: BLE001  it is raised again where it may have changed anything
        refuse_failed(responder, message, fault)


def refuse_failed(responder: Responder[Any], message: Request[Any], fault: Exception) -> None:
    """Refuse a request that only reads and has failed; to be called where `fault` is handled.

    Raises:
        ShardmqError: the fault, where it is one of ours: something stored is damaged, or a change is half done.
    """
    if isinstance(fault, ShardmqError):
        raise fault
    what = type(message).__name__
    _log.exception("%s of %s failed and is refused; nothing was changed", what, responder.peer)
    text = f"the shard failed to carry out {what} ({type(fault).__name__}): nothing was changed, and its log has more"
    responder.refuse(ReplyCode.INTERNAL_ERROR, text)
