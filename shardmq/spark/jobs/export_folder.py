"""The folder of an export until its messages are acknowledged, so that a crash at any moment leaves no row twice.

    make TO/_shardmq-export/ID/ ─► reserve ─► write to it ─► move its files to TO ─► acknowledge ─► remove ID/
                                              until it is     those that are          all that was
                                              complete        still there             reserved
                                              (_SUCCESS)

ID is the reservation's name. The next export of the queue to that folder finds ID/ and finishes it. Spark and other
readers of Parquet skip names that begin with "_".
"""

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_shardmq-export"
COMPLETE: Final = "_SUCCESS"
"""The file that Spark writes last."""


class Folder:
    """A folder on any file system that Spark knows.

    Args:
        spark: the session.
        path: as Spark takes it.
    """

    def __init__(self, spark: "SparkSession", path: str) -> None:
        # pyspark has no types for Java objects.
        java: Any = spark._jvm
        self._path = java.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        self._spark = spark
        self.path = path

    def at(self, name: str) -> "Folder":
        """A folder inside this one."""
        return Folder(self._spark, f"{self.path.rstrip('/')}/{name}")

    def make(self) -> None:
        """Make the folder, and those above it, where there is none.

        Raises:
            ShardmqError: it cannot be made.
        """
        if not self._files.mkdirs(self._path):
            raise ShardmqError(f"folder {self.path} cannot be made; export to one that you may write to")

    def exists(self) -> bool:
        """Whether the folder exists."""
        return bool(self._files.exists(self._path))

    def names(self) -> list[str]:
        """The names of what is inside, sorted; none where the folder does not exist."""
        if not self.exists():
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path))

    def remove(self) -> None:
        """Remove the folder with all that is inside."""
        self._files.delete(self._path, True)

    def move_into(self, target: "Folder") -> int:
        """Move all files, those of inner folders included, to the same places in another folder.

        Args:
            target: the other folder.

        Returns:
            How many files were moved.

        Raises:
            ShardmqError: a file cannot be moved; another try moves the rest.
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
                raise ShardmqError(
                    f"{self.path}/{name} cannot be moved to {target.path}; make room for it there and export again"
                )
            moved += 1
        return moved


def prefix_of(queue: str) -> str:
    """The beginning of the names of a queue's exports."""
    return f"export-{hashlib.sha256(queue.encode()).hexdigest()[:16]}-"


def new_id(queue: str) -> str:
    """A name for a new export."""
    return f"{prefix_of(queue)}{uuid.uuid4().hex[:12]}"


def unfinished(target: Folder, queue: str) -> list[str]:
    """The names of a queue's exports to a folder that broke off."""
    return [name for name in target.at(FOLDER).names() if name.startswith(prefix_of(queue))]


def clear(target: Folder, name: str) -> None:
    """Remove the folder of an export that is finished."""
    target.at(FOLDER).at(name).remove()
    if not target.at(FOLDER).names():
        target.at(FOLDER).remove()
