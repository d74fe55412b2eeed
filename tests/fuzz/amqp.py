"""Fuzzes what reads AMQP clients' bytes, led by which code they reach: `make fuzz`, or python -m tests.fuzz.amqp.

Whatever comes is read, or refused with a documented error; frames are read as a plain reader reads them, however they
are cut; a property list that is taken can be decoded, and says the same when it is written again.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

from shardmq.protocol.amqp.methods.topology import QueueDeclare

with atheris.instrument_imports(include=["shardmq.gateway.amqp"]):
    from shardmq.protocol.amqp import encoder as sending
    from shardmq.protocol.amqp import properties, property_facts
    from shardmq.protocol.amqp.errors import AmqpError
    from shardmq.protocol.amqp.events import METHOD
    from shardmq.protocol.amqp.frames import FrameReader
    from shardmq.protocol.amqp.methods import codec as methods

from tests.gateway.amqp.sessions import LISTS, TABLES
from tests.protocol.amqp import bytestreams

FRAME_MAX = 300
MESSAGE_MAX = 700
READER_CODES = {501, 502, 505, 540}
LIST_CODES = {501, 502}


def fuzz_frames(data: bytes) -> None:
    """A stream: the first bytes say how it is cut."""
    size, data = 1 + data[0] % 64, data[1:]
    expected = bytestreams.PlainReader(FRAME_MAX, MESSAGE_MAX).read(data)
    for step in (len(data) or 1, size):
        reader = FrameReader(MESSAGE_MAX)
        reader.frame_max = FRAME_MAX
        got = bytestreams.read(reader, [data[at : at + step] for at in range(0, len(data), step)])
        assert got == expected, (step, got, expected)
    assert expected[1] is None or expected[1][0] in READER_CODES, expected[1]


def fuzz_method(data: bytes) -> None:
    """A method's payload."""
    try:
        method = methods.decode(data, 1)
    except AmqpError as fault:
        assert fault.code in READER_CODES, fault
        return
    again = methods.encode(method)
    assert methods.encode(methods.decode(again, 1)) == again


def fuzz_list(data: bytes) -> None:
    """A property list."""
    try:
        property_facts.read_facts(data)
    except AmqpError as fault:
        assert fault.code in LIST_CODES, fault
        return
    known = properties.decode(data)
    again = properties.encode(known)
    property_facts.read_facts(again)
    assert repr(properties.decode(again)) == repr(known)


TARGETS = [fuzz_frames, fuzz_method, fuzz_list]


def fuzz(data: bytes) -> None:
    """What the first byte says."""
    if len(data) > 1:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def seeds() -> list[bytes]:
    """What clients say as a rule."""
    publish, persistent = bytestreams.publish, bytestreams.PERSISTENT_LIST
    streams = [
        publish(b"x" * 20, properties=persistent) * 12,
        publish(b"x" * 600, room=200) + publish(b"") + sending.BEAT,
        b"".join([publish(b"12345"[:size], properties=raw) for size, raw in enumerate(LISTS[:5])]),
        b"".join(map(bytestreams.ack, [1, 2, 3, 5])) + bytestreams.ack(9, multiple=True),
    ]
    declared = [methods.encode(QueueDeclare(0, "q", arguments=table)) for table in TABLES]
    frames = [sending.frame(METHOD, 1, payload) for payload in declared]
    return [
        *[b"\0\7" + stream for stream in (*streams, *frames)],
        *[b"\1" + payload for payload in declared],
        *[b"\2" + raw for raw in LISTS],
    ]


def main() -> None:
    """Fuzz for so many seconds; ends with 1, and a file with the bytes, where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=Path(), help="folder for what was found")
    options = parser.parse_args()
    options.found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds()):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup(
            [
                sys.argv[0],
                corpus,
                f"-max_total_time={options.seconds}",
                "-max_len=4096",
                "-timeout=10",
                f"-artifact_prefix={options.found}/",
                "-print_final_stats=1",
            ],
            fuzz,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
