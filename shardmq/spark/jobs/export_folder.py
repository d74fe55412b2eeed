"""The folder of an export until its messages are acknowledged, so that a crash at any moment leaves no row twice.

    make TO/_shardmq-export/ID/ ─► reserve ─► write to it ─► count ─► move its files ─► acknowledge ─► remove ID/
                                              until it is     as many  to TO, those      all that was
                                              complete        as are   that are still    reserved
                                              (_SUCCESS)      reserved there
                                                              (_COUNTED)

ID is the reservation's name, which tells queues, virtual hosts and brokers apart. The next export of the queue to that
folder finds ID/ and finishes it, unless its driver runs. Spark and other readers of Parquet skip names that begin with
"_".
"""

import hashlib
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_shardmq-export"
COMPLETE: Final = "_SUCCESS"
"""The file that Spark writes last."""

COUNTED: Final = "_COUNTED"
"""The file that says that as many messages were written as were reserved, and that files may have been moved."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where exported messages come from.

    Attributes:
        broker: the broker's id; "" of a broker that does not tell it, as older ones do not.
        vhost: the virtual host.
        name: of the queue or topic.
    """

    broker: str
    vhost: str
    name: str

    @property
    def digest(self) -> str:
        """What names of folders have of it."""
        return _digest(json.dumps([self.broker, self.vhost, self.name])) if self.broker else self.name_digest

    @property
    def name_digest(self) -> str:
        """What names of folders had of it in earlier versions, whatever the broker and the virtual host."""
        return _digest(self.name)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
        """Whether there is such a folder, or file."""
        return bool(self._files.exists(self._path))

    def names(self) -> list[str]:
        """The names of what is inside, sorted; none where the folder does not exist."""
        if not self.exists():
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path))

    def remove(self) -> None:
        """Remove the folder with all that is inside."""
        self._files.delete(self._path, True)

    def remove_empty(self) -> None:
        """Remove the folder, unless something is inside."""
        from py4j.protocol import Py4JJavaError

        try:
            self._files.delete(self._path, False)
        except Py4JJavaError:
            if not self.names():
                raise

    def note(self, name: str) -> None:
        """Make an empty file in the folder, where there is none of that name."""
        self._files.createNewFile(self.at(name)._path)

    def rows(self) -> int:
        """How many rows the Parquet files have that are inside, those of inner folders included."""
        return self._spark.read.schema("position bigint").parquet(self.path).count()

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


def new_id(origin: Origin) -> str:
    """A name for a new export."""
    return f"{_prefix(origin.digest)}{uuid.uuid4().hex[:12]}"


def is_of(name: str, origin: Origin) -> bool:
    """Whether an export is of exactly that origin; not where its name tells no broker, as those of before do not."""
    return bool(origin.broker) and name.startswith(_prefix(origin.digest))


def unfinished(target: Folder, origin: Origin) -> list[str]:
    """The names of exports to a folder that are not done, and of those that may be of another origin of that name."""
    prefixes = _prefix(origin.digest), _prefix(origin.name_digest)
    return [name for name in target.at(FOLDER).names() if name.startswith(prefixes)]


def clear(target: Folder, name: str) -> None:
    """Remove the folder of an export that is finished."""
    target.at(FOLDER).at(name).remove()
    target.at(FOLDER).remove_empty()


def _prefix(digest: str) -> str:
    return f"export-{digest}-"
