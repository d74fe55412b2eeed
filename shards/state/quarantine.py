"""Queues that are out of service because something stored of them is damaged.

They are left exactly as they are on disk, and requests for them are refused with the reason; everything else on the
shard goes on.

    damaged row read ──▶ out of service ──(broker stopped; a copy restored, or `shardmq store repair`)──▶ in service

A damage that is found while the shard runs is noted in the store, as the next start would find it only when it reads
that row again. A damaged staged message of a transaction takes no queue out of service: that transaction alone cannot
be carried out. Nor does a damaged cursor: its group alone is out of service in that partition. As a damaged key may
name another group than was written, no group without a cursor begins there meanwhile. A reset gives it another cursor.
"""

import logging
from dataclasses import dataclass
from typing import Any

from shardmq.errors import RowDamaged
from shardmq.shards.storage.schema import group_of
from shardmq.topology.entities import Queue as Declared

_log = logging.getLogger(__name__)

_COUNTS = (
    "total",
    "valid",
    "ready",
    "unacked",
    "delayed",
    "dying",
    "reserved",
    "consumers",
    "bytes",
    "segments",
    "published",
    "delivered",
    "acked",
    "redelivered",
    "expired",
    "dropped",
    "dead_lettered",
    "producers",
)

WHAT_TO_DO = "stop the broker, run `shardmq store check`, then restore a copy or `shardmq store repair`"


@dataclass(slots=True)
class QueueOut:
    """A queue that is out of service.

    Attributes:
        number: its id.
        declared: what it is; None where that is what is damaged, and nobody has said it since.
        damage: what was found.
        counts: its row of the status, as it was last.
    """

    number: int
    declared: Declared | None
    damage: RowDamaged
    counts: dict[str, Any]

    @property
    def title(self) -> str:
        """As errors call it."""
        if self.declared is None:
            return f"queue {self.number}"
        return f"queue '{self.declared.name}' in vhost '{self.declared.vhost}'"

    @property
    def text(self) -> str:
        """Return the text of refusals. It is short: AMQP has room for 255 bytes."""
        damage = self.damage
        return f"{self.title} is out of service: {_row(damage)} is damaged; {WHAT_TO_DO}"

    def table(self) -> dict[str, Any]:
        """Its row of the status."""
        declared = self.declared
        return {
            **dict.fromkeys(_COUNTS, 0),
            **self.counts,
            "id": self.number,
            "vhost": declared.vhost if declared is not None else "",
            "name": declared.name if declared is not None else str(self.number),
            "durable": declared.durable if declared is not None else True,
            "consumers": 0,
            "consumer_list": [],
            "out_of_service": self.text,
        }

    def alarm(self) -> dict[str, Any]:
        """Its alarm, for machines."""
        damage = self.damage
        return {
            "queue": self.number,
            "vhost": self.declared.vhost if self.declared is not None else None,
            "name": self.declared.name if self.declared is not None else None,
            "file": str(damage.file),
            "database": damage.database,
            "key": damage.key.hex(),
            "what": damage.what,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class GroupOut:
    """A group that is out of service in a partition, as its cursor is damaged.

    Attributes:
        name: of the group.
        declared: the partition's queue.
        damage: what was found.
    """

    name: str
    declared: Declared
    damage: RowDamaged

    @property
    def title(self) -> str:
        """As errors call the partition."""
        return f"stream '{self.declared.name}' in vhost '{self.declared.vhost}'"

    @property
    def text(self) -> str:
        """Return the text of refusals."""
        return (
            f"group '{self.name}' is out of service in {self.title}: its cursor in {self.damage.file} is damaged; "
            f"reset the group, or {WHAT_TO_DO}"
        )

    def alarm(self) -> dict[str, Any]:
        """Its alarm, for machines."""
        return {
            "queue": self.declared.id,
            "vhost": self.declared.vhost,
            "name": self.declared.name,
            "group": self.name,
            "file": str(self.damage.file),
            "database": self.damage.database,
            "key": self.damage.key.hex(),
            "what": self.damage.what,
            "text": self.text,
        }


class Quarantine:
    """The queues of a shard that are out of service, groups in partitions, and transactions that cannot be carried out.

    Args:
        name: of the process.

    Attributes:
        queues: by id.
        groups: those that are out of service in a partition that is not, by its id and their names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.queues: dict[int, QueueOut] = {}
        self.groups: dict[int, dict[str, GroupOut]] = {}
        self._staged: dict[int, RowDamaged] = {}

    def __contains__(self, number: int) -> bool:
        return number in self.queues

    def add(self, number: int, declared: Declared | None, damage: RowDamaged, counts: dict[str, Any]) -> None:
        """Add a queue, and log it once."""
        out = self.queues[number] = QueueOut(number, declared, damage, counts)
        _log.error("%s: %s (%s)", self._name, out.text, damage.what)

    def learn(self, declared: Declared) -> None:
        """Note the declaration of a queue whose own row may be damaged."""
        out = self.queues[declared.id]
        out.declared = out.declared or declared

    def text(self, number: int) -> str:
        """Return the text of refusals for a queue, or for the first of its groups where only groups are out."""
        out = self.queues.get(number)
        return out.text if out is not None else next(iter(self.groups[number].values())).text

    def add_group(self, declared: Declared | None, damage: RowDamaged) -> bool:
        """Add a group whose cursor is damaged, and log it; returns whether the damage tells a partition's group."""
        name = group_of(damage)
        if not name or declared is None or declared.arguments.get("x-queue-type") != "stream":
            return False
        out = self.groups.setdefault(declared.id, {})[name] = GroupOut(name, declared, damage)
        _log.error("%s: %s (%s)", self._name, out.text, damage.what)
        return True

    def has_group(self, number: int, name: str) -> bool:
        """Whether a group is out of service in a partition."""
        return name in self.groups.get(number, ())

    def put_back(self, number: int, name: str) -> None:
        """Forget that a group is out of service in a partition: it has another cursor."""
        out = self.groups[number]
        _log.warning("%s: group '%s' was reset in %s, where it was out of service", self._name, name, out[name].title)
        del out[name]
        if not out:
            del self.groups[number]

    def group_text(self, number: int, name: str, begins: bool) -> str | None:
        """Return the text of refusals for a group without a cursor in a partition; None where it is not out of service.

        Args:
            number: the partition's id.
            name: of the group.
            begins: whether the group is to get a cursor.
        """
        out = self.groups.get(number)
        if out is None:
            return None
        if name in out:
            return out[name].text
        if not begins:
            return None
        other = next(iter(out.values()))
        return (
            f"group '{name}' cannot begin in {other.title}: {_row(other.damage)} is damaged, and may be its own; "
            f"{WHAT_TO_DO}"
        )

    def hold(self, transaction: int, damage: RowDamaged) -> str:
        """A message that a transaction has staged is damaged; returns what is to be said of that."""
        if transaction not in self._staged:
            self._staged[transaction] = damage
            _log.error("%s: %s (%s)", self._name, self.staged_text(transaction), damage.what)
        return self.staged_text(transaction)

    def staged_text(self, transaction: int) -> str:
        """Return the text of refusals for a transaction of which a message is damaged."""
        damage = self._staged[transaction]
        return f"transaction {transaction} cannot be carried out: {_row(damage)} is damaged; {WHAT_TO_DO}"

    def let_go(self, transaction: int) -> None:
        """Forget a transaction of which nothing is left."""
        self._staged.pop(transaction, None)

    def texts(self) -> list[str]:
        """A sentence for each alarm."""
        groups = [out.text for of_queue in self.groups.values() for out in of_queue.values()]
        return (
            [out.text for out in self.queues.values()] + groups + [self.staged_text(number) for number in self._staged]
        )

    def table(self) -> list[dict[str, Any]]:
        """The alarms, for machines."""
        alarms = [out.alarm() for out in self.queues.values()]
        alarms += [out.alarm() for of_queue in self.groups.values() for out in of_queue.values()]
        for number, damage in self._staged.items():
            alarms.append(
                {
                    "transaction": number,
                    "file": str(damage.file),
                    "database": damage.database,
                    "key": damage.key.hex(),
                    "what": damage.what,
                    "text": self.staged_text(number),
                }
            )
        return alarms


def _row(damage: RowDamaged) -> str:
    group = group_of(damage)
    if group is not None:
        return f"the cursor of group '{group}' in {damage.file}"
    return f"row {damage.key.hex()} of database {damage.database} in {damage.file}"
