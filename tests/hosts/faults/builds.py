"""Versions that hosts are upgraded to: copies of this code that say that they are later, and have other formats."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from shardmq.storage.versions import VERSION as FORMAT
from shardmq.version import VERSION
from tests.docs.document import ROOT

_VERSION: Final = re.compile(r'(?<=VERSION: Final = ")[^"]+')
_FORMAT: Final = re.compile(r"(?<=^VERSION: Final = )\d+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Build:
    """A tree of shardmq.

    Attributes:
        folder: that has it; None for the one that tests run in.
    """

    folder: Path | None

    @property
    def version(self) -> str:
        """What it says that it is."""
        return self._found(_VERSION, "version.py")

    @property
    def format(self) -> int:
        """Of its stores."""
        return int(self._found(_FORMAT, "storage/versions.py"))

    @property
    def variables(self) -> dict[str, str]:
        """What processes that run it have in their environment."""
        return {"PYTHONPATH": str(self.folder or ROOT)}

    def _found(self, pattern: re.Pattern[str], name: str) -> str:
        found = pattern.search(((self.folder or ROOT) / "shardmq" / name).read_text())
        assert found, f"{self.folder} is no tree of shardmq"
        return found[0]


def later(folder: Path, patches: int = 1, format: int = FORMAT) -> Build:
    """Copy this code as a later version: hosts of it find nothing of this tree.

    Args:
        folder: for the copy.
        patches: by how many patch versions it is later.
        format: of its stores; it reads those with a lower one, too.
    """
    tree = folder / "shardmq"
    shutil.copytree(ROOT / "shardmq", tree)  # with what is compiled, or first starts would take seconds
    release, _, patch = VERSION.rpartition(".")
    _change(tree / "version.py", f'"{VERSION}"', f'"{release}.{int(patch) + patches}"')
    if format != FORMAT:
        _change(tree / "storage" / "versions.py", f"\nVERSION: Final = {FORMAT}\n", f"\nVERSION: Final = {format}\n")
        known = [f'b"{number}": {number}' for number in range(FORMAT, format + 1)]
        _change(tree / "storage" / "lmdb_environment.py", known[0], ", ".join(known))
    return Build(folder)


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {old!r} once"
    file.write_text(text.replace(old, new))


def there_and_back(folder: Path) -> Iterator[Build]:
    """To the version in a folder, and back, by turns."""
    while True:
        yield Build(folder)
        yield Build(None)


def upgrades(folder: Path) -> Iterator[Build]:
    """Without end: to the next patch version, back, and to a version with the next format of stores.

    Args:
        folder: for their trees.
    """
    here = Build(None)
    for number in count(1):
        patch = later(folder / f"{number}-patch", 2 * number - 1, here.format)
        yield patch
        yield here
        before, here = here, later(folder / f"{number}-format", 2 * number, here.format + 1)
        yield here
        for build in (patch, before):
            if build.folder is not None:  # nothing of it runs any more
                shutil.rmtree(build.folder)
