"""Files of the user that commands write."""

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""The permissions of what its user alone may read."""

_NO_OTHER: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV})
"""A folder takes no other file, or lets none of it be replaced."""

USUAL: Final = 0o666
"""The permissions of other files, of which the umask takes some away."""


def write_anew(file: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a file anew, whole or not at all: whatever fails, what was there is there.

    A file that is there, in a folder that takes no other, is written in place: one that is mounted by itself, say.

    Args:
        file: where; of a link, the file that it leads to. What is none with a name, as a pipe, is written to as it is.
        content: of it.
        mode: its permissions, also where it was there with others.

    Raises:
        OSError: it cannot be written.
    """
    target = file.resolve()
    if file.exists() and not (target.is_file() and target.samefile(file)):
        file.write_bytes(content)
        return
    new = target.with_name(f".shardmq-{secrets.token_hex(8)}")
    try:
        _write_beside(new, target, content, mode)
    except OSError as fault:
        if fault.errno not in _NO_OTHER or not target.exists():
            raise
        with target.open("r+b") as opened:
            os.fchmod(opened.fileno(), mode)
            opened.truncate()
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())


def _write_beside(new: Path, target: Path, content: bytes, mode: int) -> None:
    """Write a file, and have it take the place of another."""
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(new, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        raise
