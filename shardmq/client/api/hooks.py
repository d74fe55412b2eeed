"""What a program wants to hear of its connection: its functions, and their calls, made where they disturb nobody.

Calls wait where a function takes its time, but not without bounds:

* Confirms are counted while they wait, and told together.
* Returned messages wait up to RETURNS_BYTES_MAX. What comes back while so much waits goes where it would go without a
  hook: `flush` of its publisher raises `Unroutable`, and the log says so.
* Of all else EVENTS_MAX wait. What comes then is in the log instead, as an error.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from shardmq.client.api.recovery import Recovered
from shardmq.client.api.returns import ReturnedMessage, returned_messages
from shardmq.errors import ShardmqError
from shardmq.protocol.native.operations.basic import BasicReturn

_log = logging.getLogger("shardmq.client")

Job = Callable[[], None]

RETURNS_BYTES_MAX: Final = 32 << 20
"""Returned messages that wait for `on_return`; a return more may have come before it was noticed."""

RETURN_BYTES: Final = 500
"""What a returned message takes at least."""

EVENTS_MAX: Final = 1000
"""Other calls that wait. No program that hears them is so far behind: each is a connection lost, or an alarm."""


class Hooks:
    """The program's hooks, and an observer of the core: it notes what happens and calls hooks later.

    The program's handlers of log records are its own code too: they may use the connection, whose lock is held here.

    Args:
        later: has a job done, one after the other, somewhere else than here.
        log_later: the same for what writes to the log, which does not wait for a hook that takes its time.
        adopt: takes what a function returned, which may be awaitable.
    """

    def __init__(
        self,
        later: Callable[[Job], None],
        log_later: Callable[[Job], object],
        adopt: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._later = later
        self._log_later = log_later
        self._adopt = adopt
        self._confirmed: dict[int, int] = {}
        self._counting = threading.Lock()  # one thread counts, another tells
        self._returned_bytes = 0  # not told yet
        self._events = 0  # the same
        self._is_behind = False
        self._blocked: str | None = None
        self.on_recovery: list[Callable[[Recovered], object]] = []
        self.on_lost: list[Callable[[ShardmqError], object]] = []
        self.on_return: list[Callable[[ReturnedMessage], object]] = []
        self.on_confirm: list[Callable[[int, int], object]] = []
        self.on_blocked: list[Callable[[str], object]] = []
        self.on_unblocked: list[Callable[[], object]] = []

    def confirmed(self, channel: int, messages: int) -> None:
        """Count confirmed messages; those that come before the hook is called are told with them."""
        if not self.on_confirm:
            return
        with self._counting:
            is_first = not self._confirmed
            self._confirmed[channel] = self._confirmed.get(channel, 0) + messages
        if is_first:
            self._later(self._tell_confirmed)

    @property
    def takes_returns(self) -> bool:
        """Whether returned messages go to `on_return`: there is such a hook, and it is not too far behind."""
        if not self.on_return:
            return False
        is_behind = self._returned_bytes > RETURNS_BYTES_MAX
        if is_behind and not self._is_behind:
            self._log(
                logging.ERROR,
                "on_return is over %d bytes of returned messages behind: flush raises Unroutable for those that "
                "come back until it has caught up",
                RETURNS_BYTES_MAX,
            )
        self._is_behind = is_behind
        return not is_behind

    def returned(self, frame: BasicReturn) -> None:
        """Note that mandatory messages came back."""
        size = len(frame.records) + frame.count * RETURN_BYTES
        with self._counting:
            self._returned_bytes += size

        def tell() -> None:
            try:
                for message in returned_messages(frame):
                    self._call(self.on_return, message)
            finally:
                with self._counting:
                    self._returned_bytes -= size

        self._later(tell)

    def blocked(self, reason: str) -> None:
        """Note that the broker takes no publishes for now."""
        self._blocked = reason
        self._tell(self.on_blocked, reason)

    def unblocked(self) -> None:
        """Note that the broker takes publishes again."""
        self._blocked = None
        self._tell(self.on_unblocked)

    def lost(self, error: ShardmqError) -> None:
        """Note that the connection is lost, or ended for good."""
        self._tell(self.on_lost, error)

    def hear_blocked(self, hook: Callable[[str], object]) -> None:
        """Add a hook for blocked connections; it is called at once if the connection is blocked now."""
        self.on_blocked.append(hook)
        if self._blocked is not None:
            self._tell([hook], self._blocked)

    def recovered(self, recovered: Recovered) -> None:
        """Note that the connection is back, and log what could not be restored."""
        for failure in recovered.failed:
            self._log(logging.WARNING, "recovery could not restore %s", failure)
        self._tell(self.on_recovery, recovered)

    def _tell_confirmed(self) -> None:
        with self._counting:
            confirmed, self._confirmed = self._confirmed, {}
        for channel, messages in confirmed.items():
            self._call(self.on_confirm, channel, messages)

    def _tell(self, hooks: list[Callable[..., object]], *arguments: Any) -> None:
        if not hooks:
            return
        with self._counting:
            is_full = self._events >= EVENTS_MAX
            self._events += not is_full
        if is_full:
            text = "%d calls of hooks wait; %r is not called with %r"
            self._log(logging.ERROR, text, EVENTS_MAX, list(hooks), arguments)
            return

        def tell() -> None:
            with self._counting:
                self._events -= 1
            self._call(hooks, *arguments)

        self._later(tell)

    def _log(self, level: int, text: str, *arguments: object) -> None:
        self._log_later(lambda: _log.log(level, text, *arguments))

    def _call(self, hooks: list[Callable[..., object]], *arguments: Any) -> None:
        for hook in list(hooks):
            try:
                self._adopt(hook(*arguments))
            except Exception:  # noqa: BLE001  the program's fault must not cost it the connection
                _log.exception("the hook %r raised", hook)


class HookRegistration:
    """The part of a connection that takes hooks. Each `on_…` may be used as a decorator, and several times.

    In programs with threads hooks are called on a thread of their own, one after the other; with asyncio on the event
    loop, where they may be coroutine functions. What they raise is logged.

    A hook may take its time, but what waits for it is bounded: see `on_return`. Of other calls, 1,000 wait; what comes
    then is logged as an error instead.
    """

    _hooks: Hooks

    def on_recovery(self, hook: Callable[[Recovered], object]) -> Callable[[Recovered], object]:
        """Call a function when a lost connection is back, with the queues that have new names and what failed."""
        self._hooks.on_recovery.append(hook)
        return hook

    def on_lost(self, hook: Callable[[ShardmqError], object]) -> Callable[[ShardmqError], object]:
        """Call a function when the connection is lost, with the reason; `close` is no loss.

        While the connection `is_open`, it is being recovered.
        """
        self._hooks.on_lost.append(hook)
        return hook

    def on_return(self, hook: Callable[[ReturnedMessage], object]) -> Callable[[ReturnedMessage], object]:
        """Call a function with each mandatory message that no queue took; `flush` then raises for none of them.

        While over 32 MB of them wait to be told, `flush` raises `Unroutable` for those that come back, as without a
        hook.
        """
        self._hooks.on_return.append(hook)
        return hook

    def on_confirm(self, hook: Callable[[int, int], object]) -> Callable[[int, int], object]:
        """Call a function with a channel's number and how many of its messages were confirmed, many at a time."""
        self._hooks.on_confirm.append(hook)
        return hook

    def on_blocked(self, hook: Callable[[str], object]) -> Callable[[str], object]:
        """Call a function with the reason when the broker takes no publishes; at once if it takes none now."""
        self._hooks.hear_blocked(hook)
        return hook

    def on_unblocked(self, hook: Callable[[], object]) -> Callable[[], object]:
        """Call a function when the broker takes publishes again, or the connection on which it took none is lost.

        Where it takes none over the next connection either, `on_blocked` is called once more.
        """
        self._hooks.on_unblocked.append(hook)
        return hook
