"""Ports for servers of tests, which are told where to listen before they do.

The kernel gives them to nobody else: they lie below those that it gives out by itself. Each test worker has its own.
"""

import contextlib
import itertools
import os
import random
import socket
from typing import Final

FIRST: Final = 10_000
EACH: Final = 1_400
"""Ports of one worker; sixteen workers have some."""

_worker: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_own: Final = range(FIRST + EACH * _worker, FIRST + EACH * (_worker + 1))
_turns: Final = itertools.count(random.randrange(EACH))


def free_ports(count: int) -> list[int]:
    """Ports that are free at all addresses, those last that were given out last."""
    found: list[int] = []
    while len(found) < count:
        port = _own[next(_turns) % EACH]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            found.append(port)
    return found


def free_run(count: int) -> int:
    """The first of so many ports in a row that are free at all addresses."""
    while True:
        first = random.choice(_own[: EACH - count])
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("", port))
            return first
