"""Reading all stores of a stopped broker's data directory, and printing what was found."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import StoreDamaged, StoreRefused

if TYPE_CHECKING:
    from rich.console import Console

    from shardmq.coordinator.storage.check import Known
    from shardmq.shards.check.queues import Registry
    from shardmq.storage.repair.findings import Finding
    from shardmq.storage.repair.rebuild import IsWell
    from shardmq.topology.entities import Queue

FOLDER: Final = click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
"""The data directory."""

COORDINATOR: Final = "coordinator"
SHARD: Final = re.compile(r"shard-(\d+)")
"""Names of stores' folders."""

REBUILDS: Final = "makes a new file with"
"""The repair of a whole file begins with these words; that of rows does not."""

ROWS_AT_ONCE: Final = 256
"""Rows between two updates of the progress bar."""

Begun = Callable[[str, int], Callable[[], None]]
"""Called with a store's name and its approximate number of rows; returns a function to call for every row."""


@dataclass(slots=True)
class Looked:
    """What was found in all stores.

    Attributes:
        findings: damage, and what is worth knowing.
        stores: names of the stores.
        rows: number of rows read.
    """

    findings: list["Finding"] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    rows: int = 0

    @property
    def damage(self) -> list["Finding"]:
        """The findings that are damage."""
        return [finding for finding in self.findings if finding.is_damage]


def shard_folders(data_dir: Path) -> list[tuple[int, Path]]:
    """Numbers and folders of the shards in a data directory, in order."""
    matches = [(SHARD.fullmatch(path.name), path) for path in data_dir.glob("shard-*") if path.is_dir()]
    return sorted((int(match[1]), path) for match, path in matches if match)


def stores_in(data_dir: Path) -> list[Path]:
    """The folders of all stores in a data directory, the coordinator's first."""
    folders = [data_dir / COORDINATOR, *(folder for _, folder in shard_folders(data_dir))]
    return [folder for folder in folders if (folder / "data.mdb").exists()]


@contextmanager
def held(folder: Path) -> Iterator[list[Path]]:
    """Lock the folders of all stores, and return them, the coordinator's first.

    Raises:
        StoreRefused: there are none, or a process has one open.
    """
    from shardmq.storage.folder_lock import hold_folder

    stores = stores_in(folder)
    if not stores:
        raise StoreRefused(f"{folder} has no store of a coordinator or a shard; name a broker's data directory")
    with ExitStack() as holds:
        for locked in (folder, *stores):  # `shardmq up` holds the whole directory, whatever its processes do
            holds.enter_context(hold_folder(locked))
        yield stores


def look_through(stores: list[Path], console: "Console") -> Looked:
    """Read every row of every store; a terminal shows a progress bar.

    Args:
        stores: their folders, locked.
        console: where the bar is shown.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    looked = Looked()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def begun(name: str, entries: int) -> Callable[[], None]:
            task = progress.add_task(name, total=entries)

            def seen() -> None:
                looked.rows += 1
                if not looked.rows % ROWS_AT_ONCE:
                    progress.advance(task, ROWS_AT_ONCE)

            return seen

        known: Known | None = None
        queues: dict[bytes, Queue] = {}
        for store in stores:
            looked.stores.append(store.name)
            try:
                if store.name == COORDINATOR:
                    known = _look_at_coordinator(store, begun, looked)
                else:
                    _look_at_shard(store, begun, looked, known, queues)
            except StoreDamaged as damage:
                looked.findings.append(_whole_file(store, damage))
    _take_from_shards(looked, queues)
    return looked


def _look_at_coordinator(folder: Path, begun: Begun, looked: Looked) -> "Known":
    from shardmq.coordinator.storage.check import ClosedCoordinatorStore

    registry = ClosedCoordinatorStore(folder)
    try:
        looked.findings += registry.check(begun(folder.name, registry.entries()))
    finally:
        registry.close()
    return registry.known


def _look_at_shard(
    folder: Path, begun: Begun, looked: Looked, known: "Known | None", queues: "dict[bytes, Queue]"
) -> None:
    from shardmq.coordinator.storage.check import queue_key
    from shardmq.shards.check.check import check_shard
    from shardmq.shards.check.closed_store import ClosedStore

    store = ClosedStore(folder)
    try:
        registry = None if known is None else _registry(folder.name, known)
        seen = begun(folder.name, store.entries())

        def declared(queue: "Queue") -> None:
            queues[queue_key(queue)] = queue

        looked.findings += check_shard(folder.name, store, registry, seen, declared)
    finally:
        store.close()


def _take_from_shards(looked: Looked, queues: "dict[bytes, Queue]") -> None:
    """Complete findings about queues that the coordinator lost with what the shards know of them."""
    from shardmq.coordinator.storage.check import taken_from_shard

    looked.findings[:] = [
        taken_from_shard(each, queues) if each.store == COORDINATOR else each for each in looked.findings
    ]


def _registry(name: str, known: "Known") -> "Registry":
    """The coordinator's knowledge of a shard."""
    from shardmq.shards.check.queues import Registry
    from shardmq.shards.storage.identity import StoreIdentity

    number = int(name.removeprefix("shard-"))
    queues = {queue.id: queue for queue in known.queues if queue.shard == number}
    member = known.members.get(number)
    identity: StoreIdentity | None = None
    if known.broker and member is not None and member.store:
        identity = StoreIdentity(member.store, number, known.broker, member.told, max(queues, default=0))
    return Registry(
        queues,
        frozenset(known.deleted),
        known.decisions,
        frozenset(known.undecided),
        known.next_transaction,
        identity,
    )


def _whole_file(store: Path, damage: StoreDamaged) -> "Finding":
    """The finding for a store that cannot be read row by row, with the number of rows that are lost."""
    from shardmq.storage.repair.findings import Finding
    from shardmq.storage.repair.rebuild import reachable, shortfall

    mend = ""
    if damage.file == store / "data.mdb":
        _, databases, is_well = kind_of(store)
        found = reachable(damage.file, databases, is_well)
        if found is not None:
            mend = f"{REBUILDS} all rows that can be reached and read; rows lost: {shortfall(found)}"
    return Finding(store=store.name, file=str(damage.file), database=damage.database or "", what=damage.what, mend=mend)


def kind_of(store: Path) -> "tuple[bytes, tuple[bytes, ...], IsWell]":
    """The format of a store, its databases, and the check that a row is what was written."""
    if store.name == COORDINATOR:
        from shardmq.coordinator.storage import check as checkup
        from shardmq.coordinator.storage.schema import DATABASES, FORMAT

        return FORMAT, DATABASES, checkup.is_well
    from shardmq.shards.check import closed_store as closed
    from shardmq.shards.storage import schema as layout

    return layout.FORMAT, layout.DATABASES, closed.is_well


def print_findings(findings: list["Finding"]) -> None:
    """Print a table of what was found."""
    Table("found", FINDING_COLUMNS, [finding.table() for finding in findings]).print()


def _what(row: Row) -> str:
    return f"{row['title']}: {row['what']}" if row["title"] else str(row["what"])


def _repair(row: Row) -> str:
    return str(row["repair"]) or ("none; restore a copy" if row["damage"] else "leaves it")


def _place(row: Row) -> str:
    if row["key"]:
        return f"database {row['database']}, key {row['key']}"
    return str(row["file"]).rpartition(f"/{row['store']}/")[2]


FINDING_COLUMNS: Final = (
    Column("store"),
    Column("what is wrong", _what, is_wrapped=True),
    Column("repair", _repair, is_wrapped=True),
    Column("place", _place, is_wrapped=True),
)
"""The place comes last: it is the longest, and JSON has it too."""
