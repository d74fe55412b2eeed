"""A client that publishes while something befalls the hosts, and what must be true of what it saw."""

import itertools
import signal
import time
from typing import Final

from tests.hosts.broker import HostsBroker, confirmed, lines_of, sent_again
from tests.hosts.members import Process

PAUSE_SECONDS: Final = 10.0
"""Publishing stands still for no longer when a host is killed: 3 s, and what a machine adds that runs other tests."""


def publishing(broker: HostsBroker) -> Process:
    """Start a publisher, and wait until a good many messages are confirmed."""
    publisher = broker.client("publish")
    broker.wait_for(lambda: len(confirmed(publisher)) > 50, "messages are confirmed")
    return publisher


def goes_on(broker: HostsBroker, publisher: Process) -> None:
    """Wait until a good many messages more are confirmed."""
    known = len(confirmed(publisher))
    broker.wait_for(lambda: len(confirmed(publisher)) > known + 200, "publishing goes on")


def end(broker: HostsBroker, publisher: Process) -> None:
    """End the publisher."""
    if not publisher.has_ended:
        publisher.signal(signal.SIGTERM)
    broker.wait_for(lambda: publisher.has_ended, "the publisher ends")


def check(broker: HostsBroker, publisher: Process) -> None:
    """End the publisher; nothing is lost, nothing came from nowhere, and it never stood still for long."""
    end(broker, publisher)
    assert lines_of(publisher)[-1] == ["done"], publisher.last_words()
    times = [at for _, at in confirmed(publisher)]
    sent = {number for number, _ in confirmed(publisher)}
    found = broker.drained(sent_again(publisher))
    assert sent <= found, f"{len(sent - found)} confirmed messages are lost"
    assert found <= {*range(max(sent) + 2)}
    pause, began = max((later - before, before) for before, later in itertools.pairwise(times))
    when = time.strftime("%T", time.gmtime(began))
    assert pause < PAUSE_SECONDS, f"it stood still for {pause:.1f} s from {when} on"
