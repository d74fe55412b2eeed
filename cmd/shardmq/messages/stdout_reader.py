"""Who reads stdout: whether they have taken what was written, and whether they are there still."""

import contextlib
import fcntl
import io
import os
import select
import stat
import sys
import termios
import threading
from collections.abc import Callable
from typing import Final

RECHECK_MS: Final = 1
"""Pause between two looks at a pipe that could not be made small."""

SIGNAL_MS: Final = 250
"""One wait is no longer: a signal that comes in the moment before does not end it, and Ctrl-C has to wait as long."""


class StdoutReader:
    """The reader of this process's stdout.

    A pipe holds 64 KiB that nobody has read. It is made as small as the kernel allows, one page: it then has room again
    exactly when its reader has taken all that was written.

    Waiting for a reader after each message takes some 10 µs of a free machine, nearly all of it the kernel's, to change
    from this process to the reader and back. Lines that are written together would be faster, and be taken together:
    `head -n 1` would cost the queue all of them.

    Attributes:
        is_pipe: whether stdout is a pipe; only then can be told what was taken.
        is_gone: whether the reader was found to have closed the pipe.
    """

    def __init__(self) -> None:
        self.is_gone = False
        self._busy = threading.Lock()
        try:
            self._fd = sys.stdout.fileno()
            self.is_pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        except io.UnsupportedOperation:  # stdout is no file
            self._fd, self.is_pipe = -1, False
        self._room = select.poll()
        self._end = select.poll()
        if self.is_pipe:
            with contextlib.suppress(OSError):  # somebody else's bytes are in it
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, 1)
            self._room.register(self._fd, select.POLLOUT)
            self._end.register(self._fd, 0)

    def flush(self) -> None:
        """Write out what was printed; where stdout is a pipe, wait until the reader has taken it.

        Raises:
            BrokenPipeError: the reader is gone, and has not taken all of it.
        """
        sys.stdout.buffer.flush()
        while self.is_pipe:
            if not (polled := self._room.poll(SIGNAL_MS)):
                continue
            ((_, events),) = polled
            if not self._unread():
                return
            if events & select.POLLERR or self._end.poll(RECHECK_MS):
                self.is_gone = True
                raise BrokenPipeError

    def working(self) -> threading.Lock:
        """A lock to hold while messages are printed and acked: `close` of `watch` waits for it."""
        return self._busy

    def watch(self, close: Callable[[], None]) -> None:
        """Have `close` called on another thread when the reader goes away while nothing is being printed."""
        if self.is_pipe:
            threading.Thread(target=self._watch, args=(close,), daemon=True).start()

    def _watch(self, close: Callable[[], None]) -> None:
        self._end.poll()
        with self._busy:
            self.is_gone = True
            close()

    def _unread(self) -> int:
        count = bytearray(4)
        fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return int.from_bytes(count, sys.byteorder)
