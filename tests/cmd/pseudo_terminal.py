"""Programs on a terminal of a given size."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A program whose stdin, stdout and stderr are a terminal.

    Args:
        words: its command line.
        env: its environment.
        columns: of the terminal.
        lines: of the terminal.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str], columns: int = 80, lines: int = 24) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        plain = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            words, env={**plain, "TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.written = b""

    @property
    def text(self) -> str:
        """What was written so far, without colours and cursor movements."""
        return ESCAPES.sub(b"", self.written).replace(b"\r\n", b"\n").decode()

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._fd, text.encode())

    def read_until(self, wanted: str, seconds: float = 20.0) -> str:
        """Read until something was written; returns all that was."""
        deadline = time.monotonic() + seconds
        while wanted not in self.text:
            assert self._read(deadline), f"no {wanted!r} in {self.text!r}"
        return self.text

    def wait(self, seconds: float = 20.0) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def close(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def _read(self, deadline: float) -> bool:
        readable, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        try:
            piece = os.read(self._fd, 65_536) if readable else b""
        except OSError:  # the kernel's word for "nobody holds the other end"
            piece = b""
        self.written += piece
        return bool(piece)
