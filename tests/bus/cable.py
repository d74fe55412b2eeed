"""A way between the two ends of a link over TCP that a test can cut or break."""

import contextlib
import socket
import threading


class Cable:
    """A way to a listener that can be cut: nothing comes through, and nobody is told, as with a pulled plug.

    Args:
        to: address of the listener, which ends with its port on this machine.
        port: where the way begins; 0 for any that is free.
    """

    def __init__(self, to: str, port: int = 0) -> None:
        self._to = ("127.0.0.1", int(to.rpartition(":")[2]))
        self._server = socket.create_server(("127.0.0.1", port))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._cut: set[socket.socket] = set()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._ends) // 2

    def cut(self) -> None:
        """The connections that there are; others come through."""
        self._cut |= set(self._ends)

    def break_off(self) -> None:
        """End the connections that there are, and tell both ends."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._to)
            except OSError:
                return
            self._ends += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if source not in self._cut:
                    sink.sendall(data)
            if source not in self._cut:
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            return
