"""Tells systemd of a whole broker, and ends processes of it that hang.

systemd watches `shardmq up`, which watches its processes for as long: each beats from the loop that does its work. One
that is silent for the whole time is killed, and started again as after any other end.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from shardmq.cmd.run.child import Child
from shardmq.runtime import notify

LATE_BEATS: Final = 2.0
"""When this process itself comes so many beats late, the machine stood still: nobody is taken for hung."""


class Watch:
    """Watches the processes of a broker.

    Args:
        children: the processes.
        say: announces an event of a process, by name, process and text.
    """

    def __init__(self, children: Sequence[Child], say: Callable[..., None]) -> None:
        self._children = children
        self._say = say
        self._watchdog = notify.watchdog_seconds()
        self._heartbeat = notify.Heartbeat(self._wrong)
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Look after the processes, and again and again on the running event loop."""
        now = time.monotonic()
        if self._watchdog is not None:
            if now - self._looked_at > LATE_BEATS * self._heartbeat.pause:
                for child in self._children:
                    child.heard_at = now
            for child in self._children:
                self._end_if_hung(child, now, self._watchdog)
        self._looked_at = now
        self._heartbeat.beat(now)
        asyncio.get_running_loop().call_later(self._heartbeat.pause, self.look)

    def _end_if_hung(self, child: Child, now: float, watchdog: float) -> None:
        silent = now - child.heard_at
        if child.is_ready and silent > watchdog:
            text = f"{child.name} (process {child.pid}) has not turned its loop for {silent:.1f} s; killing it"
            self._say("hung", child, text, seconds=round(silent, 3))
            child.kill()

    def _wrong(self) -> list[str]:
        """What is wrong with the broker: processes that are away, and what the others say."""
        said = [(child, child.status if child.is_ready else "not ready") for child in self._children if child.is_wanted]
        return [f"{child.name}: {status}" for child, status in said if status not in ("", notify.SERVING)]
