"""Requests of clients that only read: one that fails as nobody expected is refused, and nobody else notices.

    client ─► Inquiry.run(handler) ─► ask a shard ─► … ─► Inquiry.run(what takes the answer) ─► reply

What takes an answer runs when the answer is there, called by the link that has asked. So links ask for `watched(reply)`
while an inquiry is under way. Whatever else fails ends the process: half of it may be done.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from shardmq.errors import ReplyCode, RequestError

Call = Callable[..., None]

_log = logging.getLogger(__name__)


class Inquiry:
    """A client's request that only reads, from when it is carried out until it is answered.

    Args:
        what: is asked, for the log.
        say: tells the client the result, or the error that refuses it.
        go_on: called once it is told; what fails in that is no fault of this request.
    """

    __slots__ = ("_go_on", "_is_answered", "_say", "_what")

    def __init__(self, what: str, say: Call, go_on: Call) -> None:
        self._is_answered = False
        self._what = what
        self._say = say
        self._go_on = go_on

    def reply(self, outcome: Any) -> None:
        """Answer the client, who hears of the first answer alone."""
        if self._is_answered:
            return
        self._say(outcome)
        self._is_answered = True
        self._go_on()

    def run(self, call: Call, *given: Any) -> None:
        """Call what carries out a part of the request; where that fails, the request is refused.

        Raises:
            Exception: it was answered before.
        """
        before, _under_way.inquiry = _under_way.inquiry, self
        try:
            call(*given)
        except Exception as fault:
            if self._is_answered:
                raise
            self.reply(fault if isinstance(fault, RequestError) else self._unexpected(fault))
        finally:
            _under_way.inquiry = before

    def _unexpected(self, fault: Exception) -> RequestError:
        _log.error("%s failed and is refused; nothing was changed", self._what, exc_info=fault)
        text = f"{self._what} failed ({type(fault).__name__}): nothing was changed, and the log of the gateway has more"
        return RequestError(text, ReplyCode.INTERNAL_ERROR)


class _UnderWay(threading.local):
    """What is carried out now on a thread: calls that it makes, not those that it has made later."""

    inquiry: Inquiry | None = None


_under_way = _UnderWay()


def watched(call: Call) -> Call:
    """What takes an answer, as a part of the inquiry that is under way; as it is where there is none."""
    inquiry = _under_way.inquiry
    return call if inquiry is None else partial(inquiry.run, call)
