"""What is on disk for certain: seen from the system calls that a start makes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardmq.storage.files import make_folder

OPEN = (
    "import sys; from pathlib import Path; from shardmq.shards.storage.store import Store; "
    "Store.open(Path(sys.argv[1])).close()"
)


def synced(folder: Path) -> list[str]:
    """Paths that opening a store there syncs, before LMDB's first write of its own."""
    traced = subprocess.run(
        ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync", sys.executable, "-c", OPEN, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split("<", 1)[1].split(">", 1)[0] for line in traced.stderr.splitlines() if "sync(" in line]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_start_syncs_the_data_file_and_every_folder_before_it_believes_them(tmp_path: Path) -> None:
    home = tmp_path / "data" / "shard-0"
    made = synced(home)
    assert {str(tmp_path), str(tmp_path / "data"), str(home)} <= set(made)
    assert synced(home)[:3] == [str(tmp_path / "data"), str(home / "data.mdb"), str(home)]


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
