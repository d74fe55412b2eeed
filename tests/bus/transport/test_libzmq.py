"""Sockets of libzmq, as links over TCP have them."""

import time
from typing import Any

from shardmq.bus.curve import CurveKeys
from shardmq.bus.poller import context
from shardmq.bus.transport.libzmq import ZmqDealer, ZmqRouter
from tests.ports import free_ports

ENVELOPE = bytes(1 << 20)
COUNT = 200


def test_what_was_sent_before_a_listener_closed_arrives() -> None:
    """A primary that hands over says what it has confirmed, and listens no more at once."""
    security = CurveKeys(is_insecure=True)
    here, there = context(security), context(security)
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    router = ZmqRouter(here, address)
    dealer = ZmqDealer(there, address, b"gateway", "shard-0")
    received: list[Any] = []
    deadline = time.monotonic() + 60.0
    while not dealer.send(b"hello"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    while not (called := router.receive()):
        assert time.monotonic() < deadline
        router.poll(100)
    for _ in range(COUNT):
        assert router.send(called[0][0], ENVELOPE)
    router.close()
    while len(received) < COUNT:
        assert time.monotonic() < deadline, f"{len(received)} of {COUNT} have come"
        dealer.poll(100)
        received += dealer.receive()
    assert {len(envelope) for envelope in received} == {len(ENVELOPE)}
    dealer.close()
    here.term()
    there.term()
