"""Two dozen connections that guess passwords, until the program's standard input ends.

    python -m tests.gateway.authentication.guessers PORT KIND

A process of their own: threads of whoever measures the logins of others would hold that one up, not the broker.
"""

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from shardmq.protocol.native.operations.connection import ConnectionOpen
from tests.gateway.amqp.rawclient import RawClient as AmqpClient
from tests.gateway.rawclient import Listening, RawClient

GUESSERS = 24


def native(broker: Listening, number: int, user: str = "guest") -> None:
    with RawClient(broker) as client:
        client.send(ConnectionOpen(1, 1, user, f"wrong-{number}", "/", 0))
        with contextlib.suppress(ConnectionError):
            client.receive()


def amqp(broker: Listening, number: int) -> None:
    with AmqpClient(broker.port, is_open=False) as client:
        client.greet()
        client.login(b"\0guest\0wrong-%d" % number)
        with contextlib.suppress(ConnectionError, TimeoutError):
            client.socket.settimeout(1)
            client.socket.recv(1000)


def impatient(broker: Listening, number: int) -> None:
    """Whoever is not let in at once hangs up and tries the next.

    The greeting shows that the gateway has accepted: else, on a busy machine, more and more connections that nobody is
    at any more would wait in the kernel, and new ones behind them.
    """
    with AmqpClient(broker.port, is_open=False) as client:
        client.greet()
        client.login(b"\0victim\0wrong-%d" % number)
        client.socket.settimeout(0.1)
        with contextlib.suppress(OSError):
            client.socket.recv(1000)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stranger(broker: Listening, number: int) -> None:
    native(broker, number, f"nobody-{number}")


KINDS: dict[str, Callable[[Listening, int], None]] = {
    guess.__name__: guess for guess in (native, amqp, impatient, stranger)
}


@contextlib.contextmanager
def guessing(broker: Listening, kind: str) -> Iterator[None]:
    """Have two dozen connections guess, each again when it is refused."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-m", __name__, str(broker.port), kind]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE) as guessers:
        assert guessers.stdin is not None
        with guessers.stdin:
            yield
    assert guessers.returncode == 0


class _Broker(NamedTuple):
    port: int


def _main(port: str, kind: str) -> None:
    broker, guess = _Broker(int(port)), KINDS[kind]
    is_over = threading.Event()
    numbers = iter(range(10**9))

    def go_on() -> None:
        while not is_over.is_set():
            guess(broker, next(numbers))

    with ThreadPoolExecutor(GUESSERS) as threads:
        guessers = [threads.submit(go_on) for _ in range(GUESSERS)]
        sys.stdin.read()
        is_over.set()
    for guesser in guessers:
        guesser.result()  # one that ended before its time is told by the exit code


if __name__ == "__main__":
    _main(*sys.argv[1:])
