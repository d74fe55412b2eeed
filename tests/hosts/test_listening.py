"""What the listener makes of frames: bytes in their order, whatever came twice or late; words in all their forms."""

import base64
import itertools
import json
import random

import pytest

from tests.hosts.listening import Stream, Way, is_tls, joined, words_in

WAY = Way("198.18.0.1", 40000, "198.18.0.2", 5682)
WORDS = {"a queue": "mergers-with-initech"}


def test_pieces_that_come_twice_late_and_in_part_are_put_together() -> None:
    lot = random.Random(7)
    whole = lot.randbytes(5000)
    cuts = [0, *sorted(lot.sample(range(1, 5000), 40)), 5000]
    pieces = [(begin, whole[begin:end]) for begin, end in itertools.pairwise(cuts)]
    pieces += [(begin, whole[begin : begin + 300]) for begin in lot.sample(range(5000), 20)]
    lot.shuffle(pieces)
    assert joined(WAY, pieces) == Stream(WAY, whole, True)
    del pieces[:]
    assert not joined(WAY, [(0, b"a"), (2, b"c")]).is_whole


@pytest.mark.parametrize("before", range(4))
def test_words_are_found_in_every_form(before: int) -> None:
    [word] = WORDS.values()
    plain = b"x" * before + word.encode() + b"yz"
    coded = json.dumps({"key": base64.b64encode(plain).decode()}).encode()
    for data in (plain, coded, plain.hex().encode()):
        assert words_in(data, WORDS) == {"a queue"}
    assert not words_in(plain[:-3], WORDS)


def test_protocols_are_told_from_the_bytes() -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01"
    said = {
        "CURVE": [greeting + b"CURVE".ljust(20, b"\0") + bytes(32), greeting, greeting[:1]],
        "TLS": [b"\x16\x03\x01\x00\x02ab\x17\x03\x03\x00\x09half"],
        "": [greeting + b"NULL".ljust(20, b"\0"), greeting + b"PLAIN".ljust(20, b"\0"), b"GET / HTTP/1.1\r\n", b"AMQP"],
    }
    for protocol, all_bytes in said.items():
        for data in all_bytes:
            assert Stream(WAY, data, True).protocol == protocol, data
    assert not is_tls(b"\x16\x03\x01\x00\x02abplain text")
