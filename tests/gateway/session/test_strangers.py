"""Clients that were not let in yet: what nobody expected of them ends their connection alone."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.errors import ReplyCode
from shardmq.gateway.authentication.authenticator import Authenticator
from shardmq.protocol.amqp.encoder import method_frame
from shardmq.protocol.amqp.events import PROTOCOL_HEADER
from shardmq.protocol.amqp.methods.connection import ConnectionStartOk
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import ConnectionOpen
from tests.gateway.rawclient import Denied, RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]


def test_a_login_that_cannot_be_checked_is_refused(start_stage: StartStage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_given: Any) -> None:
        raise ZeroDivisionError("nobody thought of it")

    stage = start_stage([("q", 0, {})])
    with monkeypatch.context() as patch:
        patch.setattr(Authenticator, "_check_credentials", fail)
        with pytest.raises(Denied) as denied:
            RawClient(stage).open()
    assert denied.value.code == ReplyCode.INTERNAL_ERROR
    with RawClient(stage).open():
        pass


@pytest.mark.parametrize("front", ["native", "amqp"])
def test_a_stranger_who_says_what_cannot_be_dealt_with_is_dropped_alone(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, front: str
) -> None:
    def fail(*_given: Any) -> None:
        raise ZeroDivisionError("nobody thought of it")

    faults: list[Any] = []
    stage = start_stage([("q", 0, {})])
    loop = stage.loop._loop
    loop.call_soon_threadsafe(loop.set_exception_handler, lambda _, context: faults.append(context))
    with monkeypatch.context() as patch, socket.create_connection(("127.0.0.1", stage.port), 60) as stranger:
        patch.setattr(f"shardmq.gateway.{front}.handshake.Handshake.take", fail)
        hello = encode(ConnectionOpen(1, 1, "guest", "guest", "/", 0, {}))
        if front == "amqp":
            start = ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
            hello = PROTOCOL_HEADER + method_frame(0, start)
        stranger.sendall(hello)
        while stranger.recv(4096):
            pass
    with RawClient(stage).open():
        pass
    assert not faults
