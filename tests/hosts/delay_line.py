"""Hands frames on later: those that come on the device `line` go out on `back` when their time has come.

`tc netem` would do it, where the kernel has that; this needs /dev/net/tun alone. What is delayed by how much is in
a file, by sender and receiver, which is read again at each SIGHUP: `[["198.18.0.1", "198.18.0.2", 0.05], …]`.
"""

import fcntl
import heapq
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import FrameType

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES_MAX = 65_550
ADDRESSES = slice(26, 34)  # of an IPv4 packet in an Ethernet frame: source and destination


def tap(name: str) -> int:
    """The end of a TAP device that is not the kernel's."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def main(file: Path) -> None:
    line, back = tap("line"), tap("back")
    delays: dict[bytes, float] = {}
    waiting: list[tuple[float, int, bytes]] = []
    count = 0

    def read_delays(_: int = 0, __: FrameType | None = None) -> None:
        delays.clear()
        for sender, receiver, seconds in json.loads(file.read_text()):
            delays[socket.inet_aton(sender) + socket.inet_aton(receiver)] = seconds

    signal.signal(signal.SIGHUP, read_delays)
    read_delays()
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(back, select.POLLIN)
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            os.write(back, heapq.heappop(waiting)[2])
        for descriptor, _ in poll.poll(max(0.0, waiting[0][0] - now) * 1000 if waiting else None):
            try:
                while True:
                    frame = os.read(descriptor, FRAME_BYTES_MAX)
                    if descriptor == line:
                        count += 1
                        until = time.monotonic() + delays.get(frame[ADDRESSES], 0.0)
                        heapq.heappush(waiting, (until, count, frame))
            except BlockingIOError:
                pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
