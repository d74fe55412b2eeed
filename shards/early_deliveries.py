"""Deliveries that leave before the commit of their pass: of a small one, a consumer has its messages a flush earlier.

    apply ─► deliver ─┬───────────────────────► commit ─► answer, confirm, deliver
                      └► deliver what may ─────► commit ─► confirm

What a gateway forwarded (state/forwarding.py) has left before it came here at all, by the same rules.

Nothing promises that a message is on disk before a consumer has it, unless its publisher counts or commits it. What
goes out early and is not on disk when the shard ends was confirmed to nobody, and is gone; its consumer may have seen
it. What is promised stands:

* A number is handed out once. It is below its subqueue's mark, which is on disk: a pass that raises a mark waits for
  its commit, and a start numbers on from the mark.
* `redelivered` is True for whatever was handed out and is there after a crash, for the same reason.
* An ack comes in a later pass, and so behind the commit. After a crash it is one of an earlier session, and dropped.
* A message that is the same when it comes again (it has a producer and a number, as a dead letter has, or it lies
  elsewhere: staged, or waiting for a time) never leaves early: its consumer would have it twice, unmarked.
* What a commit of a channel publishes is seen when it is committed.

What was published without confirms need not be committed in its pass at all: `may_be_written_late`.

Where nobody waits for the confirm of what was delivered so, it comes with what is said next: to send it alone wakes the
gateway up once more for each message.
"""

from collections.abc import Sequence
from typing import Any, Final

from shardmq.bus.messages.columns import Acks, Deliveries, MayForward, Publishes, entries_of
from shardmq.bus.messages.groups import Starved
from shardmq.bus.messages.shard import Ack, Confirmed, Credit, Delivered, Publish, Spent, Wanted

EARLY_EVENTS: Final = 16
"""What a larger pass holds up is worth less than the second envelope costs: some 40 µs in shard and gateway."""

EARLY: Final = frozenset({Confirmed, Deliveries, Delivered, Spent, Wanted, Starved, MayForward})
"""What may leave; behind anything else, it waits with that. A confirm that is there before the commit is one of an
earlier pass."""

LATE: Final = frozenset({Confirmed})
"""What may wait for what is said next, for LATE_SECONDS."""

LATE_SECONDS: Final = 0.02
"""So long a confirm that nobody waits for waits for something to go with: what comes less often can afford to be woken
up twice."""

Events = Sequence[tuple[Any, Any]]

_SETTLING: Final = frozenset({Acks, Ack, Credit})

_PLAIN: Final = _SETTLING | {Publishes}
"""What holds up no deliveries; nor do publishes that nobody has numbered, delayed or staged."""


def may_leave_early(events: Events) -> bool:
    """Whether deliveries may leave before the commit, for all that came in the pass: few plain publishes and acks."""
    found = 0
    for _, message in events:
        kind = type(message)
        if kind is Publish:
            if message.producer or message.delay_ms or message.transaction:
                return False
        elif kind not in _PLAIN:
            return False
        found += entries_of(message)
        if found > EARLY_EVENTS:
            return False
    return found > 0


def may_be_written_late(events: Events) -> bool:
    """Whether nobody waits for the commit of what came in a pass: publishes without confirms, and acks."""
    for _, message in events:
        kind = type(message)
        if kind is Publish:
            if not message.unawaited or message.producer or message.delay_ms or message.transaction:
                return False
        elif kind is Publishes:
            if not message.unawaited:
                return False
        elif kind not in _SETTLING:
            return False
    return True


def may_be_confirmed_late(events: Events) -> bool:
    """Whether nobody waits for the confirm of what came: one publish, and acks.

    A gateway that has two to be confirmed gathers more until one of them is.
    """
    published = [message for _, message in events if type(message) in (Publish, Publishes)]
    return len(published) == 1 and type(published[0]) is Publish and published[0].unawaited
