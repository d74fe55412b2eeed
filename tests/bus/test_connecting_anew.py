"""A dialer whose connection is cut or breaks: it makes another one, in which it is heard."""

import time

import pytest

from shardmq.bus.dialer import UNANSWERED_SECONDS
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Purge
from shardmq.limits import LINK_SILENCE_SECONDS
from tests.bus.cable import Cable
from tests.bus.test_redirect import PATIENCE_SECONDS, Hosts, free_address

BUSY_SECONDS = 1.0


def test_after_a_cut_it_connects_anew_and_waits_for_no_connection_that_hangs() -> None:
    hosts = Hosts([free_address(), free_address()], "")
    cable = Cable(hosts.listeners["a"].address)
    try:
        hosts.dialer.redirect(cable.address, "a.shard-0")
        hosts.turn_until(lambda: hosts.dialer.is_open)
        cable.cut()
        now = time.monotonic()
        until = now + LINK_SILENCE_SECONDS + 1
        while hosts.dialer.is_open and now < until:
            now += 0.1
            hosts.events += hosts.dialer.tick(now)
        assert [type(event) for event in hosts.events] == [LinkOpened, LinkLost]
        hosts.until_heard("a", 4)
    finally:
        hosts.close()
        cable.close()


def test_where_calls_go_unanswered_it_connects_anew() -> None:
    """As libzmq may go on sending to a listener that is frozen, when it was told to leave it."""
    hosts = Hosts([free_address(), free_address()], "")
    cable = Cable(hosts.listeners["a"].address)
    try:
        hosts.frozen = "a"
        hosts.dialer.redirect(cable.address, "a.shard-0")
        hosts.turn_until(lambda: cable.connections >= 2)
        hosts.frozen = ""
        hosts.turn_until(lambda: hosts.dialer.is_open)
    finally:
        hosts.close()
        cable.close()


@pytest.mark.parametrize("breaks", [1, 3])
def test_a_listener_that_was_busy_when_the_connection_broke_hears_the_next_one(breaks: int) -> None:
    """libzmq makes the next one by itself. What came by the last one is yet to be read, and that is there still."""
    hosts = Hosts([free_address(), free_address()], "")
    cable = Cable(hosts.listeners["a"].address)
    try:
        hosts.dialer.redirect(cable.address, "a.shard-0")
        hosts.turn_until(lambda: hosts.dialer.is_open)
        hosts.frozen = "a"
        hosts.say(1)
        for _ in range(breaks):
            hosts.turn_for(BUSY_SECONDS)
            cable.break_off()
        hosts.turn_for(BUSY_SECONDS)
        hosts.frozen = ""
        hosts.until_heard("a", 2)
    finally:
        hosts.close()
        cable.close()


def test_no_session_opens_by_an_answer_that_came_by_the_connection_before() -> None:
    """The listener knows no session by the new connection yet: what was said in it would be lost."""
    hosts = Hosts([free_address(), free_address()], "")
    listener = hosts.listeners["a"]
    try:
        hosts.dialer.redirect(listener.address, "a.shard-0")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not listener.peers:  # and the dialer, which is busy, does not read the answer
            assert time.monotonic() < deadline
            hosts.dialer.tick(time.monotonic())
            listener.receive()
        assert hosts.dialer.socket.poll(1000 * int(PATIENCE_SECONDS))
        assert hosts.dialer.tick(time.monotonic() + UNANSWERED_SECONDS) == []
        hosts.turn_until(lambda: hosts.dialer.is_open)
        hosts.say(1)
        hosts.turn_until(lambda: Call(1, Purge(1)) in hosts.heard["a"])
        assert [type(event) for event in hosts.events] == [LinkOpened]
    finally:
        hosts.close()
