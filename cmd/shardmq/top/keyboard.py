"""Keys of a terminal, without waiting for Enter."""

import codecs
import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Final, Self

READ_BYTES: Final = 1024

ESCAPE: Final = "\x1b"


class Keyboard:
    """The keys of the terminal that is stdin, one at a time, while the block lasts."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, until: float) -> list[str]:
        """The keys that are pressed next; none when monotonic time `until` comes first.

        Keys that send several characters, as arrows, are left out. A terminal that is gone is Ctrl-C.
        """
        readable, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
        if not readable:
            return []
        raw = os.read(self._fd, READ_BYTES)
        if not raw:
            raise KeyboardInterrupt
        text = self._decoder.decode(raw)
        return [text] if text == ESCAPE else [] if text.startswith(ESCAPE) else list(text)
