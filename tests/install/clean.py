"""A clone of the tree, and virtual environments with nothing but shardmq's dependencies; all of it offline."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def clone(folder: Path) -> Path:
    """Copy what git knows of the tree, changes that are not committed included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this tree is no git checkout: nobody says which files belong to it")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


class Environment:
    """A virtual environment that finds what is installed beside the running Python, and no shardmq.

    Args:
        folder: where it is made.
    """

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        [self.site] = folder.glob("lib/python*/site-packages")
        # .pth files in these folders are not read again: an editable shardmq there stays unknown here.
        installed = [path for path in sys.path if path.endswith("-packages")]
        (self.site / "dependencies.pth").write_text("\n".join(installed))

    def pip(self, *arguments: str | Path) -> None:
        """Run pip in it, without asking an index."""
        self.run("-m", "pip", *arguments)

    def run(self, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run its Python, which must end well; returns what it printed."""
        ran = subprocess.run(
            [self.python, *arguments],
            cwd=cwd or self.bin,
            env=offline(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def offline() -> dict[str, str]:
    """The environment of programs that install, with pip's options for doing it offline."""
    said = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | said
