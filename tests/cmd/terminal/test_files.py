"""Files of the user that commands write."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shardmq.cmd.terminal.files import USUAL, write_anew

WRITE = """
import sys
from pathlib import Path
from shardmq.cmd.terminal.files import write_anew
write_anew(Path(sys.argv[1]), b"new")
"""


@pytest.mark.parametrize("was_there", [True, False])
def test_a_file_is_written_anew_with_its_permissions(tmp_path: Path, was_there: bool) -> None:
    file = tmp_path / "definitions.json"
    if was_there:
        file.write_bytes(b"what was there is longer")
        file.chmod(0o644)
    write_anew(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    write_anew(file, b"newer", USUAL)
    assert [entry.name for entry in tmp_path.iterdir()] == ["definitions.json"]


def test_a_file_that_is_mounted_by_itself_is_written_in_place(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_bytes(b"what was there is longer")
    mounted = ("unshare", "--mount", "sh", "-ec", 'mount --bind "$0" "$0"; exec "$@"', str(file))
    if subprocess.run([*mounted, "true"], check=False).returncode:
        pytest.skip("mounts are not allowed here")
    subprocess.run([*mounted, sys.executable, "-c", WRITE, str(file)], check=True)
    assert file.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["definitions.json"]
