"""What was handed out is settled once, whatever other threads settle at the same moment."""

import threading
from functools import partial

from shardmq.client.core.groups import handed_out
from shardmq.client.core.groups.handed_out import HandedOut
from tests.client.stepping import Step


class Channel:
    """The channel's settler: keeps what it is told."""

    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack_one(self, tag: int) -> None:
        self.acked.append(tag)

    def ack(self, first: int, last: int) -> None:
        self.acked += range(first, last + 1)

    def nack(self, *_: object, **__: object) -> None:
        raise AssertionError

    renew = nack


def test_the_newest_message_is_acked_while_another_thread_settles_an_earlier_one_again() -> None:
    line = 0
    while True:
        line += 1
        channel, guard = Channel(), threading.Lock()
        handed = HandedOut(channel, guard)
        handed.hand_out(1)
        handed.ack(1, 1)
        handed.hand_out(2)
        step = Step([handed_out], [guard], line, partial(handed.ack, 1, 1))
        with step.tracing():
            handed.ack_all()
        assert channel.acked == [1, 2], f"before line {line}"
        if not step.has_acted:
            break
    assert line > 2
