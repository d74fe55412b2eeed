"""The thread that serves the socket: where two threads meet."""

import threading
from operator import call

from shardmq.client.api.defaults import UNSENT_BYTES_MAX
from shardmq.client.api.url import parse
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.sync.reconnect import Reconnect
from shardmq.client.sync.transport import Transport


def test_who_waits_for_room_that_is_made_meanwhile_is_told_once() -> None:
    address = parse("shardmq://127.0.0.1/")
    transport = Transport(ConnectionCore(address, 0), Reconnect([address], None, None, 1, call), 1, {})
    transport._unsent_bytes = UNSENT_BYTES_MAX + 1
    with transport.lock:  # the I/O thread, writing
        publishing = threading.Thread(target=transport.make_room, args=(10,))
        publishing.start()
        publishing.join(0.1)
        transport._unsent_bytes = 0
    publishing.join(10)
    assert not publishing.is_alive()
    transport._close_all()  # settles whoever waits; twice is an error
