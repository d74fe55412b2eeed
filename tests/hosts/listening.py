"""Listens to all that hosts send one another, puts each connection's bytes together again, and finds words in them."""

import base64
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 263, 6, 23
SO_RCVBUFFORCE = 33
ETH_P_ALL, ETH_P_IPV4 = 0x0003, 0x0800
BUFFER_BYTES: Final = 1 << 29
"""For frames that this process has not taken yet: it may be long in getting its turn."""

FRAME_BYTES_MAX: Final = 1 << 17
TURN_SECONDS: Final = 0.1
HEADER_BYTES: Final = 14
FIN, SYN = 1, 2

GREETING_BYTES: Final = 32
"""ZMTP 3: signature, version, and the mechanism's name in 20 bytes (https://rfc.zeromq.org/spec/23)."""

TLS_HANDSHAKE: Final = 22
TLS_RECORDS: Final = range(20, 25)
"""Types of TLS records: change cipher spec, alert, handshake, application data, heartbeat."""


class Way(NamedTuple):
    """One direction of a connection: addresses and ports."""

    sender: str
    sender_port: int
    receiver: str
    receiver_port: int


class Segment(NamedTuple):
    """What a frame has of a connection over TCP."""

    way: Way
    sequence: int
    flags: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """What was sent one way over a connection, in order, each byte once.

    Attributes:
        way: whose.
        data: the bytes, one at least.
        is_whole: whether no byte between the first and the last is missing.
    """

    way: Way
    data: bytes
    is_whole: bool

    @property
    def protocol(self) -> str:
        """CURVE by its greeting, or TLS by all its records; "" for any other."""
        if self.data[0] == 0xFF and self.data[9:10] in (b"\x7f", b""):
            mechanism = self.data[12:GREETING_BYTES]
            return "CURVE" if b"CURVE".ljust(20, b"\0").startswith(mechanism) else ""
        return "TLS" if is_tls(self.data) else ""


class Listener:
    """Takes all frames that come to a bridge, inside a `with` block.

    Args:
        sock: gets them.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._frames: list[bytes] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._socket.close()

    def frames(self) -> list[bytes]:
        """All that have come so far.

        Raises:
            AssertionError: the kernel had no room for some.
        """
        _, dropped = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert dropped == 0, f"{dropped} frames were not heard"
        return list(self._frames)

    def _listen(self) -> None:
        while True:
            try:
                self._frames.append(self._socket.recv(FRAME_BYTES_MAX))
            except TimeoutError:
                if self._ending.is_set():
                    return


def packet_socket() -> socket.socket:
    """A socket that gets all frames of the namespace that this thread is in, each once: when it arrives."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.settimeout(TURN_SECONDS)
    return sock


def segments(frames: Iterable[bytes]) -> Iterator[Segment]:
    """TCP segments of frames with IPv4; what is in no such frame is not among them."""
    for frame in frames:
        if int.from_bytes(frame[12:14]) != ETH_P_IPV4 or frame[HEADER_BYTES + 9] != socket.IPPROTO_TCP:
            continue
        length = int.from_bytes(frame[HEADER_BYTES + 2 : HEADER_BYTES + 4])
        packet = frame[HEADER_BYTES : HEADER_BYTES + length]  # short frames have something behind it
        sender, receiver = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
        tcp = packet[4 * (packet[0] & 15) :]
        sender_port, receiver_port, sequence = struct.unpack_from("!HHI", tcp)
        way = Way(sender, sender_port, receiver, receiver_port)
        yield Segment(way, sequence, tcp[13], tcp[4 * (tcp[12] >> 4) :])


def streams(frames: Iterable[bytes]) -> list[Stream]:
    """What was sent over each connection, by way; ports that were used again are other connections."""
    begun: dict[Way, int] = {}
    pieces: dict[tuple[Way, int], list[tuple[int, bytes]]] = defaultdict(list)
    for segment in segments(frames):
        if segment.flags & SYN:
            begun[segment.way] = (segment.sequence + 1) % 2**32
        first = begun.setdefault(segment.way, segment.sequence)
        if segment.payload:
            place = (segment.sequence - first + 2**31) % 2**32 - 2**31
            pieces[segment.way, first].append((place, segment.payload))
    return [stream for (way, _), found in pieces.items() if (stream := joined(way, found)).data]


def joined(way: Way, pieces: Iterable[tuple[int, bytes]]) -> Stream:
    """Put pieces together by their places; some may have come twice, in part or late."""
    data, end, is_whole = bytearray(), 0, True
    for place, piece in sorted(pieces):
        is_whole &= place <= end
        data += piece[max(0, end - place) :]
        end = max(end, place + len(piece))
    return Stream(way, bytes(data), is_whole)


def is_tls(data: bytes) -> bool:
    """Whether bytes are a handshake's record of TLS and others after it; the last one may not be whole."""
    if data[0] != TLS_HANDSHAKE:
        return False
    place = 0
    while place + 5 <= len(data):
        kind, major, length = data[place], data[place + 1], int.from_bytes(data[place + 3 : place + 5])
        if kind not in TLS_RECORDS or major != 3:
            return False
        place += 5 + length
    return True


def words_in(data: bytes, words: Mapping[str, str]) -> set[str]:
    """What of these words stands in some bytes: as it is, in hexadecimal, or in base64 with whatever before it.

    Args:
        data: the bytes.
        words: by what each is.
    """
    return {what for what, word in words.items() if any(form in data for form in forms(word.encode()))}


def forms(word: bytes) -> list[bytes]:
    """A word as it is, and as it is written in texts."""
    found = [word, word.hex().encode()]
    for before in range(3):  # bytes, which share their last character with the word, as the word does with what follows
        coded = base64.b64encode(bytes(before) + word)
        end = (before + len(word)) * 8 // 6
        found.append(coded[-(-before * 8 // 6) : end])
    return found
