"""Where an export stands until its messages are acknowledged, so that a crash at any moment leaves no row twice.

    reserve ─► write to TO/_shardmq-export/ID/ ─► move its files to TO ─► acknowledge ─► remove ID/
               again from the start, until         those that are          all that was
               it is complete (_SUCCESS)           still there             reserved

ID is the name of the reservation. Whoever exports that queue to that folder again finds ID/, and goes on where it was.
Spark and all that reads Parquet pass over names that begin with "_".
"""

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_shardmq-export"
COMPLETE: Final = "_SUCCESS"
"""What Spark writes last."""


class Folder:
    """A folder on whatever file system Spark finds it.

    Args:
        spark: the session.
        path: as Spark takes it.
    """

    def __init__(self, spark: "SparkSession", path: str) -> None:
        # pyspark has no types for what lies behind it in Java.
        java: Any = spark._jvm
        self._path = java.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._spark = spark
        self.path = path

    def at(self, name: str) -> "Folder":
        """A folder in it."""
        return Folder(self._spark, f"{self.path.rstrip('/')}/{name}")

    def exists(self) -> bool:
        """Whether it is there."""
        return bool(self._files.exists(self._path))

    def names(self) -> list[str]:
        """What lies in it."""
        if not self.exists():
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path))

    def remove(self) -> None:
        """Remove it, with all that is in it."""
        self._files.delete(self._path, True)

    def move_into(self, target: "Folder") -> int:
        """Move all files in it, and in its folders, to the same places in another; returns how many it were.

        Raises:
            ShardmqError: one cannot be moved; whoever tries again goes on with the rest.
        """
        moved = 0
        for status in self._files.listStatus(self._path):
            name = status.getPath().getName()
            if name.startswith(("_", ".")):
                continue
            if status.isDirectory():
                moved += self.at(name).move_into(target.at(name))
                continue
            self._files.mkdirs(target._path)
            if not self._files.rename(status.getPath(), target.at(name)._path):
                raise ShardmqError(f"{self.path}/{name} cannot be moved to {target.path}; see to it and export again")
            moved += 1
        return moved


def prefix_of(queue: str) -> str:
    """How the names of a queue's exports begin."""
    return f"export-{hashlib.sha256(queue.encode()).hexdigest()[:16]}-"


def new_id(queue: str) -> str:
    """A name for an export that begins."""
    return f"{prefix_of(queue)}{uuid.uuid4().hex[:12]}"


def unfinished(target: Folder, queue: str) -> list[str]:
    """The exports of a queue to a folder that broke off."""
    return [name for name in target.at(FOLDER).names() if name.startswith(prefix_of(queue))]


def clear(target: Folder, name: str) -> None:
    """Remove what is left of an export that is done."""
    target.at(FOLDER).at(name).remove()
    if not target.at(FOLDER).names():
        target.at(FOLDER).remove()
