"""What befalls whom, when and for how long: all of it drawn from a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from tests.hosts.hosts import MEMBERS, NAMES

GROUPS: Final = ("coordinator", "shard-0", "shard-1")
BEGIN_SECONDS: Final = 1.5
"""Faults of a round begin within this time."""

SHORT, LONG, VERY_LONG = (0.2, 0.6), (1.0, 4.0), (8.0, 14.0)
"""Below what a follower waits for; above it; above what a supervisor waits for."""

KINDS: Final[dict[str, tuple[int, tuple[tuple[float, float], ...]]]] = {
    "kill process": (4, (SHORT,)),
    "kill gateway": (2, (SHORT,)),
    "kill host": (4, (SHORT, LONG)),
    "stop host": (2, (LONG,)),
    "power loss": (5, (SHORT, LONG)),
    "power loss of all": (1, (SHORT,)),
    "freeze process": (4, (SHORT, LONG, LONG, VERY_LONG)),
    "freeze host": (3, (SHORT, LONG, LONG)),
    "cut": (4, (SHORT, LONG)),
    "one-way cut": (4, (SHORT, LONG)),
    "isolate": (3, (SHORT, LONG)),
    "cut from etcd": (3, (LONG, VERY_LONG)),
    "one-way cut from etcd": (2, (LONG,)),
    "loss": (3, (LONG,)),
    "delay": (3, (LONG,)),
    "clock rate": (4, (LONG, VERY_LONG)),
    "full disk": (4, (LONG, LONG, VERY_LONG)),
    "unwritable disk": (2, (SHORT, LONG)),
    "stalled disk": (4, (SHORT, LONG, LONG, VERY_LONG)),
    "etcd member frozen": (2, (SHORT, LONG)),
    "etcd member killed": (2, (SHORT, LONG)),
    "etcd majority frozen": (2, (LONG,)),
    "transfer": (4, (SHORT,)),
    "move": (1, (SHORT,)),
    "rolling restart": (1, (SHORT,)),
    "drain": (0, (LONG, VERY_LONG)),
    "shard add": (0, (SHORT,)),
    "rolling upgrade": (0, (SHORT,)),
}
"""How often a kind is drawn among others, and how long it may last. Those that never are come by the round."""

GROWTHS: Final = (1, 7)
"""Rounds in which a shard is added, amid the faults of that round."""

DRAIN_SHARE, UPGRADE_SHARE, NEW_SHARE = 0.15, 0.08, 0.5
"""Of the rounds: a host is drained; an upgrade comes before it. Of faults of shards: they befall an added one."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: of it, a key of KINDS.
        after: seconds from the beginning of its round.
        seconds: how long it lasts.
        host: whom it befalls, or who sends what does not arrive.
        other: the other host.
        group: whose replica it befalls, where it is one process.
        role: which of the group's replicas; `primary`, `follower`, or `any`, which is that on `host` if there is one.
        members: of etcd, the first of which it befalls, or a majority.
        amount: of what is lost, a share; of a delay, seconds; of a clock, its rate.
        seed: of what becomes of unsynced writes.
    """

    kind: str
    after: float
    seconds: float
    host: str
    other: str
    group: str
    role: str
    members: tuple[str, ...]
    amount: float
    seed: int

    @property
    def whom(self) -> str:
        """For people."""
        if self.kind in ("kill process", "freeze process", "unwritable disk"):
            return f"{self.group}, {self.host if self.role == 'any' else self.role}"
        if self.kind.startswith("etcd"):
            return ", ".join(self.members)
        if self.kind in ("cut", "one-way cut", "loss", "delay"):
            return f"{self.host} to {self.other}"
        if self.kind in ("transfer", "move"):
            return self.group
        return "" if self.kind in OF_ALL else self.host


OF_ALL: Final = ("rolling restart", "rolling upgrade", "power loss of all", "shard add")


def draw(dice: random.Random, only: str = "") -> Fault:
    """Draw one, or one of a kind. Every value is drawn whatever the kind is."""
    kind = only or dice.choices([*KINDS], [weight for weight, _ in KINDS.values()])[0]
    lengths = dice.choice(KINDS[kind][1])
    after, seconds = round(dice.uniform(0, BEGIN_SECONDS), 2), round(dice.uniform(*lengths), 2)
    host, other = dice.sample(NAMES, 2)
    group = dice.choice(GROUPS)
    role = dice.choice(("primary", "primary", "follower", "any"))
    members = tuple(dice.sample(MEMBERS, 2))[: 2 if "majority" in kind else 1]
    share, late, rate = dice.choice((0.05, 0.2, 0.5)), dice.choice((0.02, 0.1, 0.3, 0.6)), dice.choice(RATES)
    amount = {"loss": share, "delay": late, "clock rate": rate}.get(kind, 0.0)
    return Fault(kind, after, seconds, host, other, group, role, members, amount, dice.getrandbits(32))


RATES: Final = (0.5, 0.8, 1.25, 2.0)
"""Leases stand clocks of which one is half as fast again as another; what was confirmed stands any."""


def options(seed: int) -> tuple[str, ...]:
    """What `shardmq up` is told beside what is documented: of every third broker, all hosts have all."""
    return ("--replicas", "3", "--min-in-sync", "2") if seed % 3 == 0 else ()


def rounds(seed: int) -> Iterator[list[Fault]]:
    """Rounds without end: one to four faults each, and what operators do meanwhile.

    A rolling restart or upgrade is a round of its own.
    """
    dice, operators = random.Random(seed), random.Random(f"operators {seed}")
    added: list[str] = []
    for number in count():
        faults = [draw(dice) for _ in range(dice.choice((1, 2, 2, 3, 3, 4)))]
        faults = [_moved(fault, added, operators) for fault in faults]
        if number > GROWTHS[0] and operators.random() < UPGRADE_SHARE:
            yield [draw(operators, "rolling upgrade")]
        rolling = [fault for fault in faults if fault.kind == "rolling restart"]
        if number in GROWTHS:
            faults.append(draw(operators, "shard add"))
        elif number > GROWTHS[0] and operators.random() < DRAIN_SHARE:
            faults.append(draw(operators, "drain"))
        if rolling and number in GROWTHS:
            yield rolling[:1]
            faults, rolling = [fault for fault in faults if fault not in rolling], []
        yield rolling[:1] or sorted(faults, key=lambda fault: fault.after)
        if number in GROWTHS:
            added.append(f"shard-{len(GROUPS) - 1 + len(added)}")


def _moved(fault: Fault, added: list[str], dice: random.Random) -> Fault:
    """The same fault, of an added shard now and then."""
    if added and fault.group != "coordinator" and dice.random() < NEW_SHARE:
        return replace(fault, group=dice.choice(added))
    return fault
