"""What was handed out is settled once, whatever other threads settle at the same moment."""

import sys
import threading
from types import FrameType
from typing import Any

from shardmq.client.core.groups import handed_out
from shardmq.client.core.groups.handed_out import HandedOut


class Channel:
    """The channel's settler: keeps what it is told."""

    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack_one(self, tag: int) -> None:
        self.acked.append(tag)

    def ack(self, first: int, last: int) -> None:
        self.acked += range(first, last + 1)

    def nack(self, *_: object, **__: object) -> None:
        raise AssertionError

    renew = nack


def test_the_newest_message_is_acked_while_another_thread_settles_an_earlier_one_again() -> None:
    line = 0
    has_acted = True
    while has_acted:
        line += 1
        channel, guard, lines = Channel(), threading.Lock(), 0
        handed = HandedOut(channel, guard)
        handed.hand_out(1)
        handed.ack(1, 1)
        handed.hand_out(2)
        has_acted = False

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines, has_acted
            if frame.f_code.co_filename != handed_out.__file__:
                return None
            if event == "line":
                lines += 1
                if lines >= line and not has_acted and not guard.locked():  # noqa: B023  of this turn
                    has_acted = True
                    handed.ack(1, 1)  # noqa: B023
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            handed.ack_all()
        finally:
            sys.settrace(before)
        assert channel.acked == [1, 2], f"before line {line}"
    assert line > 2
