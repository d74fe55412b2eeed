"""The ordered group of the demo, as its parent sees it: members that are processes, one of which is killed."""

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from shardmq.cmd.demo.member import COUNTS
from shardmq.cmd.run import invocation

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel

MEMBERS: Final = 3
IDLE_SECONDS: Final = 30.0
"""Members that count nothing for so long count nothing more: the longest that a killed one's partitions may take."""


class Members:
    """The members of the group; they are there inside `with`.

    Args:
        url: the broker.
        channel: by which their counts are consumed.

    Attributes:
        counts: flights by carrier, as the members have counted them so far.
        killed: the name of the member that was killed; "" before.
    """

    def __init__(self, url: str, channel: "Channel") -> None:
        self.counts: Counter[str] = Counter()
        self.killed = ""
        self._url = url
        self._channel = channel
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for number in range(1, MEMBERS + 1):
            name = f"member-{number}"
            command = [sys.executable, "-P", "-m", "shardmq.cmd.demo.member", self._url, name]
            self._processes[name] = subprocess.Popen(
                command,
                env=invocation.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def follow(self, total: int, progress: Callable[[int], None], kill_at: int | None = None) -> None:
        """Add up what the members count, until it is so much, or nothing comes any more.

        Args:
            total: flights that they have to have counted.
            progress: called with the number of further flights.
            kill_at: when they have counted so many, whoever told so is killed with SIGKILL.
        """
        with contextlib.closing(self._told(total)) as counts:
            for member, carriers in counts:
                self.counts.update(carriers)
                progress(sum(carriers.values()))
                if not self.killed and kill_at is not None and self.counts.total() >= kill_at:
                    self._processes[member].kill()
                    self.killed = member

    def _told(self, total: int) -> Generator[tuple[str, dict[str, int]], None, None]:
        """What each transaction of a member counted."""
        if self.counts.total() >= total:
            return
        messages = self._channel.consume(COUNTS, prefetch=10, inactivity_timeout=IDLE_SECONDS)
        with contextlib.closing(messages):  # type: ignore[type-var]  # a generator
            for message in messages:
                told = json.loads(message.body)
                message.ack()
                yield told["member"], told["carriers"]
                if self.counts.total() >= total:
                    break
