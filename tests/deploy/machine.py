"""A machine with a systemd of its own as process 1: namespaces, this machine's disk under one in memory, a cgroup."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.docs.document import ROOT
from tests.hosts.members import temporary_folder
from tests.running import NotAllowed

SYSTEMD: Final = "lib/systemd/systemd"
NEEDED: Final = ("ip", "unshare", "nsenter", "setpriv", "systemd-analyze")
NAMESPACES: Final = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup")
BOOT: Final = Path(__file__).parent / "boot.sh"
INTO_CGROUP: Final = 'echo 0 > "$1/cgroup.procs" && shift && exec "$@"'
PROBE: Final = """
mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/disk && cd /mnt &&
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay disk && mount -t proc proc disk/proc &&
mount -t cgroup2 cgroup2 disk/sys && mkdir disk/sys/probe && rmdir disk/sys/probe
"""
ENVIRONMENT: Final = {
    "container": "other",  # systemd leaves alone then what is the kernel's
    "SYSTEMD_UNIT_PATH": "/etc/systemd/system:/opt/units",
    "SYSTEMD_GENERATOR_PATH": "/nonexistent",
    "SYSTEMD_PAGER": "",
    "LANG": "C.UTF-8",
    "PATH": "/opt/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
SECONDS: Final = 60.0


def cgroup() -> Path:
    """The folder of this process's cgroup, of version 2.

    Raises:
        NotAllowed: the machine has none.
    """
    [name] = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")] or [""]
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and name and (Path(place) / name.lstrip("/")).is_dir():
            return Path(place) / name.lstrip("/")
    raise NotAllowed("there are no cgroups of version 2 here for systemd to run units in")


def peers() -> Path | None:
    """The folder that has systemd unpacked; None where the machine has its own.

    Raises:
        Absent: it is nowhere.
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise Absent(f"{', '.join(missing)} is not installed (Debian: systemd, iproute2, util-linux)")
    if (Path("/") / SYSTEMD).exists() and shutil.which("systemd-sysusers"):
        return None
    folder = Path(shutil.which("systemd-analyze") or "").parent.parent
    if not (folder / SYSTEMD).exists():
        raise Absent("there is no systemd on this machine (Debian: systemd)")
    return folder


class Machine:
    """A machine that runs while a block does; this one's own process 1, units, disk and network are left alone.

    Raises:
        Absent: it cannot be had here; the text says why.
    """

    def __init__(self) -> None:
        self._peers = peers()
        parent = cgroup()
        remove_leftovers(parent)
        self._cgroup = parent / f"shardmq-machine-{os.getpid()}"
        self._check_means()
        self._folder = temporary_folder("machine")
        self._process: subprocess.Popen[str] | None = None
        self._inside: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command there, as root, in the tree."""
        return subprocess.run(
            [*self._inside, *command],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def said(self, *command: str) -> str:
        """Run a command there, which must end well; returns what it said."""
        done = self.run(*command)
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def type(self, line: str) -> str:
        """Have a shell read a line of a page, which must end well; returns what was said."""
        return self.said("bash", "-ec", line)

    def write(self, path: str, text: str) -> None:
        """Write a file there."""
        self.said("sh", "-ec", 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"', "sh", path, text)

    def copy(self, program: Path, path: str) -> None:
        """Copy a program of this machine there."""
        with program.open("rb") as content:
            words = (*self._inside, "sh", "-ec", 'cat > "$1" && chmod 755 "$1"', "sh", path)
            subprocess.run(words, env=ENVIRONMENT, stdin=content, timeout=SECONDS, check=True)

    def property(self, unit: str, name: str) -> str:
        """What systemd knows of a unit."""
        return self.said("systemctl", "show", "--value", f"--property={name}", unit)

    def pid(self, unit: str) -> int:
        """The unit's main process, as it is numbered there."""
        return int(self.property(unit, "MainPID"))

    def processes(self, unit: str) -> set[int]:
        """All processes of a unit, as they are numbered there."""
        folder = self._cgroup / self.property(unit, "ControlGroup").lstrip("/")
        outside = (folder / "cgroup.procs").read_text().split() if self.property(unit, "ControlGroup") else []
        inside = set()
        for pid in outside:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text()
                inside |= {int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:")}
        return inside

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.05)

    def close(self) -> None:
        """End all of its processes, with which its disk and network go."""
        if self._process is not None:
            self._process.kill()  # `unshare` has the kernel kill process 1 then, and that all others
            self._process.wait()
        remove(self._cgroup)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_means(self) -> None:
        if os.geteuid() != 0:
            raise NotAllowed("a machine of its own for systemd needs root")
        probe = ("unshare", *NAMESPACES, "--fork", "sh", "-ec", PROBE)
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotAllowed(f"namespaces, mounts or cgroups for systemd are not allowed here: {done.stderr.strip()}")
        try:
            self._cgroup.mkdir()
        except OSError as fault:
            raise NotAllowed(f"no cgroup for systemd can be made here: {fault}") from fault

    def _boot(self) -> None:
        (self._folder / "root").mkdir()
        boot = (BOOT, self._folder / "root", ROOT, sysconfig.get_path("purelib"), sys.base_prefix, self._peers or "")
        unshare = ("unshare", *NAMESPACES, "--fork", "--kill-child", "sh", *(str(word) for word in boot))
        log = self._folder / "log"
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "sh", "-ec", INTO_CGROUP, "sh", str(self._cgroup), *unshare],
                env=os.environ | ENVIRONMENT | {"PATH": os.environ["PATH"]},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
            )
        self.wait_for(lambda: self._is_up(log), "systemd is up")

    def _is_up(self, log: Path) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, log.read_text()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        if not children or "systemd" not in Path(f"/proc/{children[0]}/comm").read_text():
            return False
        self._inside = ("nsenter", "--target", children[0], "--all", "env", "--chdir=/srv/shardmq")
        return self.run("systemctl", "is-system-running").stdout.strip() == "running"


def remove(folder: Path) -> None:
    """Remove a cgroup, whose processes have been told to end."""
    deadline = time.monotonic() + SECONDS
    while folder.is_dir():
        with contextlib.suppress(OSError):
            for each in sorted(folder.rglob("*/"), reverse=True):
                if each.is_dir():
                    each.rmdir()
            folder.rmdir()
        assert time.monotonic() < deadline, f"{folder} has processes that do not end"
        time.sleep(0.01)


def remove_leftovers(parent: Path) -> None:
    """Remove cgroups of test runs that were killed, whose machines have ended with them."""
    for folder in parent.glob("shardmq-machine-*"):
        if not Path(f"/proc/{folder.name.rpartition('-')[2]}").exists():
            remove(folder)
