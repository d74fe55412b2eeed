"""Brokers with one guard removed: what a harness that is to find losses must report."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of the code that removes a guard.

    Attributes:
        guard: what is removed.
        file: in which file.
        old: the code, which must be there once.
        new: what stands in its place.
        breaks: the promises that may be broken without it, as `Verdict` calls them; or which files are no longer safe.
        aim: what in these files is no longer safe.
    """

    guard: str
    file: str
    old: str
    new: str
    breaks: tuple[str, ...]
    aim: Literal["rows", "bodies"] | None = None

    def applied(self) -> str:
        """The file with the change."""
        text = (ROOT / self.file).read_text()
        assert text.count(self.old) == 1, f"{self.file} does not have this once; name the guard's successor: {self.old}"
        return text.replace(self.old, self.new)

    def variables(self, folder: Path) -> dict[str, str]:
        """Make a copy of the code with the change; returns the environment of processes that are to run it."""
        for room in ("shardmq", "gateway", "shards", "cmd"):
            shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / self.file).write_text(self.applied())
        return {"PYTHONPATH": str(folder)}


POWER = (
    Mutant(
        "a confirm leaves after the commit",
        "shards/answers.py",
        "        self._buffer.commit()\n        has_sent = self._confirm(may_be_late)\n",
        "        has_sent = self._confirm(may_be_late)\n        __import__('time').sleep(0.01)\n"
        "        self._buffer.commit()\n",
        ("lost", "unmarked"),
    ),
    Mutant(
        "the redo log is written synchronously",
        "shardmq/storage/redo/log.py",
        "os.O_WRONLY | os.O_DSYNC | os.O_CLOEXEC",
        "os.O_WRONLY | os.O_CLOEXEC",
        ("lost", "unmarked", "torn"),
    ),
    Mutant(
        "LMDB syncs its commits",
        "shardmq/storage/lmdb_environment.py",
        "metasync=True,\n        sync=True",
        "metasync=False,\n        sync=False",
        ("lost", "unmarked", "torn"),
    ),
    Mutant(
        "the mark is raised before what is under it goes out",
        "shards/queues/ready_messages.py",
        "        self._buffer.mark(self.id, self.number, mark)\n",
        "",
        ("unmarked",),
    ),
    Mutant(
        "a transaction's decision is on disk before it is told",
        "shardmq/coordinator/storage/changes.py",
        "        self._transactions.end(batch, change, self.shards)\n",
        "",
        ("torn",),
    ),
)
"""What a power loss shows."""

UNSYNCED = Mutant(
    "what is found is synced before it is built upon",
    "shardmq/storage/lmdb_environment.py",
    "            _sync(folder)\n",
    "",
    ("lost",),
)
"""What a power loss shows after a process was killed in the middle of a commit."""

NUMBERED = Mutant(
    "a dead letter is published under its number",
    "gateway/handlers/dead_letters.py",
    "replace(batch), pending.producer, pending.first)",
    "replace(batch), 0, pending.first)",
    ("unmarked",),
)
"""What kills show while messages die."""

FENCED = Mutant(
    "a member that lost a partition commits nothing in it",
    "shards/handlers/partitions/staged_offsets.py",
    "if each.epoch < group.epoch:",
    "if False:",
    ("not exactly once",),
)
"""What transactions with offsets show while members come and go."""

FLIPS = (
    Mutant(
        "rows are compared with their checksums",
        "shardmq/storage/checksums.py",
        "    if value[:CHECKSUM_BYTES] != xxh3_64_digest(content, xxh3_64_intdigest(key, database)):\n"
        "        return None\n",
        "",
        ("data.mdb",),
        "rows",
    ),
    Mutant(
        "bodies are compared with their checksums",
        "shardmq/storage/checksums.py",
        "        return value[:CHECKSUM_BYTES] == xxh3_64_digest(content, xxh3_64_intdigest(key, database))\n",
        "        return True\n",
        ("data.mdb",),
        "bodies",
    ),
    Mutant(
        "a damaged entry of the redo log is not its end",
        "shardmq/storage/redo/log.py",
        "                entry = content.mended(self._position, self.last + 1)\n"
        "                if entry is None:\n"
        "                    self._check_end(content)\n"
        "                    return\n",
        "                return\n",
        ("redo",),
    ),
)
"""What flipped bits show; they break stores' files, not promises."""
