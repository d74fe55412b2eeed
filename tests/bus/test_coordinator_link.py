"""A gateway's requests to the coordinator, when the link between them breaks before the answer."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from shardmq.bus.coordinator_link import CoordinatorLink
from shardmq.bus.dialer import Dialer
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Call
from shardmq.bus.messages.coordinator import Changes, FromCoordinator, ToCoordinator, TopologyApplied
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.errors import Unavailable
from shardmq.topology.topology import Topology

PATIENCE_SECONDS = 60.0


class Ends:
    """A gateway's link, and a coordinator's listener that can go away and come back."""

    def __init__(self, folder: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address = f"ipc://{folder}/c"
        self.heard: list[Any] = []
        self.applied: list[int] = []
        self.listen()
        dialer: Dialer[Any] = Dialer(self.context, self.address, "gateway", "gateway-0", FromCoordinator)
        self.link = CoordinatorLink(dialer, Topology(), lambda: None, lambda: None, dict)

    def listen(self) -> None:
        self.listener: Listener[Any] = Listener(self.context, self.address, "coordinator", "coordinator", ToCoordinator)

    def restart_listener(self) -> None:
        self.listener.close()
        self.heard.clear()
        self.listen()

    def turn_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, self.heard
            self.listener.tick(time.monotonic())
            self.link.tick(time.monotonic())
            self.link.flush()
            self.link.dialer.socket.poll(5)
            self.link.receive()
            for _, event in self.listener.receive():
                self.heard += [event.message] if isinstance(event, Call) else []
                self.applied += [event.version] if isinstance(event, TopologyApplied) else []

    def close(self) -> None:
        self.link.dialer.close()
        self.listener.close()
        self.context.term()


@pytest.fixture
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    ends = Ends(tmp_path_factory.mktemp("l"))
    ends.turn_until(lambda: ends.link.dialer.is_open)
    yield ends
    ends.close()


def test_the_beginning_of_a_backup_is_not_asked_twice_and_looking_at_it_is(ends: Ends) -> None:
    begun: list[Any] = []
    ends.link.begin_backup("/backup", 1, begun.append)
    ends.link.look_backup(lambda _: None)
    ends.turn_until(lambda: ends.heard == [BeginBackup("/backup", 1), LookBackup()])
    ends.restart_listener()
    ends.turn_until(lambda: ends.heard == [LookBackup()])
    [refusal] = begun
    assert isinstance(refusal, Unavailable)
    assert "went away before it answered" in refusal.text


def test_a_version_that_nobody_waits_for_is_told_with_what_is_said_next(ends: Ends) -> None:
    [peer] = ends.listener.peers
    for version, is_awaited in ((1, False), (2, True), (3, False)):
        peer.post(Changes(version, [], is_awaited=is_awaited))
    ends.listener.flush()
    while ends.link._topology.version < 3:
        ends.link.dialer.socket.poll(100)
        ends.link.receive()
    ends.link.flush()
    ends.listener.socket.poll(1000)
    assert [event for _, event in ends.listener.receive()] == [TopologyApplied(2)]
    ends.link.look_backup(lambda _: None)
    ends.link.flush()
    ends.listener.socket.poll(1000)
    [(_, applied), (_, asked)] = ends.listener.receive()
    assert (applied, asked.message) == (TopologyApplied(3), LookBackup())


def test_what_was_under_way_each_time_that_the_coordinator_went_away_is_asked_once_more_alone(ends: Ends) -> None:
    outcomes: list[Any] = []
    ends.link.look_backup(outcomes.append)
    ends.turn_until(lambda: ends.heard == [LookBackup()])
    ends.restart_listener()
    ends.turn_until(lambda: ends.heard == [LookBackup()])
    assert not outcomes
    ends.restart_listener()
    ends.turn_until(lambda: bool(outcomes))
    (refusal,) = outcomes
    assert isinstance(refusal, Unavailable)
    assert "went away twice" in refusal.text
    ends.turn_until(lambda: ends.link.dialer.is_open)
    assert not ends.heard
