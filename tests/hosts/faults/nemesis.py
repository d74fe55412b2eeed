"""Does to hosts, processes, network, etcd, disks and clocks what a schedule says, and takes it back."""

import contextlib
import errno
import os
import random
import resource
import signal
from pathlib import Path
from typing import Final

from shardmq.replication.core.group import Group
from tests.faults.power.disk import LUCKS
from tests.hosts.broker import HostsBroker
from tests.hosts.faults.clocks import Clock, Rates
from tests.hosts.faults.network import Weather
from tests.hosts.faults.operators import End, Operators, nothing
from tests.hosts.faults.preloading import library
from tests.hosts.faults.primaries.answers import AnswerNotes
from tests.hosts.faults.schedule import KINDS, Fault
from tests.hosts.faults.unsynced import Disk, lose_unsynced
from tests.hosts.hosts import CLIENT, MEMBERS, NAMES, Hosts
from tests.hosts.members import Member
from tests.hosts.network import run

UNWRITABLE_BYTES: Final = 4096
"""A limit below every place where a store or its redo log is written."""

SYNC_MICROSECONDS: Final = 2000
"""What disks of servers take, so that hosts lose their power in the middle of it."""

DISK_BYTES: Final = 512 << 20
LEFT_BYTES: Final = 256 << 10


class Nemesis:
    """Applies faults.

    Args:
        hosts: and their etcd.
        broker: on them, not started yet.
        build: folder with another version's code, which hosts are upgraded to; None for versions made of this one.

    Attributes:
        operators: of the broker.
        answers: what its processes note as they answer.
        rates: of the hosts' clocks.
    """

    def __init__(self, hosts: Hosts, broker: HostsBroker, build: Path | None = None) -> None:
        self.hosts, self.broker = hosts, broker
        self.weather = Weather(hosts)
        self._folder = folder = hosts.folder / "preloaded"
        folder.mkdir()
        self.operators = Operators(broker, build)
        self.answers = AnswerNotes(folder / "answers")
        clocks = {name: Clock(folder / f"clock-{name}") for name in NAMES}
        self.rates = Rates(clocks)
        self._disks = {name: Disk(folder / f"disk-{name}") for name in NAMES}
        self._members = {member.name: member for member in hosts.etcd.members}
        self._begin = self.operators.acts | {
            kind: getattr(self, f"_{kind.replace(' ', '_').replace('-', '_')}")
            for kind in KINDS.keys() - self.operators.acts.keys()
        }
        libraries = [str(library(name, folder)) for name in ("clocks", "unsynced")]
        for name in NAMES:
            logs = folder / f"unsynced-{name}"
            logs.mkdir()
            self._mount(broker.folder / name)
            broker.variables[name] = self.answers.variables | {
                "LD_PRELOAD": ":".join(libraries),
                "CLOCK_RATE": str(clocks[name].file),
                "UNSYNCED_LOG": str(logs),
                "UNSYNCED_MICROSECONDS": str(SYNC_MICROSECONDS),
                "UNSYNCED_ROOT": str(broker.folder / name),
                "UNSYNCED_STALL": str(self._disks[name].file),
            }

    def begin(self, fault: Fault) -> tuple[str, End]:
        """Apply a fault; returns what was done, where the schedule does not say it, and how to take it back."""
        said, end = self._begin[fault.kind](fault)
        return said, end

    def heal(self) -> None:
        """Nothing that was done lasts: all hosts and members run. They may be starting yet."""
        self.weather.clear()
        for name in NAMES:
            self.rates.run(name, 1.0)
        for disk in self._disks.values():
            disk.go_on()
        for name in NAMES:
            (self.broker.folder / name / "ballast").unlink(missing_ok=True)
            self.hosts[name].thaw()
            if self.broker.ups[name].has_ended:
                self._start(name)
        for member in self._members.values():
            self._revive(member)
        self.operators.heal()

    def has_healed(self) -> bool:
        """Whether all hosts are up, and operators have done what they began."""
        return all(map(self.broker.is_up, NAMES)) and self.operators.have_done()

    def close(self) -> None:
        """End all that is under way."""
        self.operators.close()
        for name in NAMES:
            self.hosts[name].kill()
            run("umount", "--lazy", str(self.broker.folder / name))
        self.rates.close()

    @staticmethod
    def _mount(folder: Path) -> None:
        """Give a host a disk of its own, which can be full."""
        folder.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder))

    # Processes and hosts

    def _kill_process(self, fault: Fault) -> tuple[str, End]:
        name, pid = self._process_of(fault)
        if pid is not None:
            self._signal(pid, signal.SIGKILL)
        return f"on {name}" if pid else f"none on {name}", nothing

    def _kill_gateway(self, fault: Fault) -> tuple[str, End]:
        pid = self._pid(fault.host, "gateway")
        if pid is not None:
            self._signal(pid, signal.SIGKILL)
        return "" if pid else "none there", nothing

    def _freeze_process(self, fault: Fault) -> tuple[str, End]:
        name, pid = self._process_of(fault)
        if pid is None:
            return f"none on {name}", nothing
        self._signal(pid, signal.SIGSTOP)
        return f"on {name}", lambda: self._signal(pid, signal.SIGCONT)

    def _full_disk(self, fault: Fault) -> tuple[str, End]:
        ballast = self.broker.folder / fault.host / "ballast"
        size = 0
        with ballast.open("ab") as file:
            while (free := os.statvfs(ballast.parent)).f_bavail * free.f_frsize > LEFT_BYTES:
                size = free.f_bavail * free.f_frsize - LEFT_BYTES
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as full:
                    if full.errno != errno.ENOSPC:
                        raise
                else:  # or the host has written meanwhile: there is less room than there was
                    break

        def end() -> str:
            ballast.unlink(missing_ok=True)  # another one has ended before
            return ""

        return f"{size >> 20} MiB of ballast", end

    def _unwritable_disk(self, fault: Fault) -> tuple[str, End]:
        name, pid = self._process_of(fault)
        if pid is None:
            return f"none on {name}", nothing
        self._limit_files(pid, UNWRITABLE_BYTES)
        return f"on {name}", lambda: self._limit_files(pid, resource.RLIM_INFINITY)

    def _stalled_disk(self, fault: Fault) -> tuple[str, End]:
        disk = self._disks[fault.host]
        disk.stall()
        return "", lambda: disk.go_on() or ""

    def _kill_host(self, fault: Fault) -> tuple[str, End]:
        self.broker.kill(fault.host)
        return "", lambda: self._start(fault.host)

    def _stop_host(self, fault: Fault) -> tuple[str, End]:
        if self.broker.ups[fault.host].has_ended:
            return "not running", nothing
        self.broker.ups[fault.host].signal(signal.SIGTERM)

        def end() -> str:
            said = "" if self.broker.ups[fault.host].has_ended else "still stopping: killed"
            self.broker.kill(fault.host)
            self._start(fault.host)
            return said

        return "", end

    def _power_loss(self, fault: Fault) -> tuple[str, End]:
        self.broker.kill(fault.host)
        return self._lose_unsynced(fault.host, fault.seed), lambda: self._start(fault.host)

    def _power_loss_of_all(self, fault: Fault) -> tuple[str, End]:
        for name in NAMES:
            self.broker.kill(name)
        said = [self._lose_unsynced(name, fault.seed + place) for place, name in enumerate(NAMES)]
        return "; ".join(said), lambda: "".join(map(self._start, NAMES))

    def _lose_unsynced(self, name: str, seed: int) -> str:
        luck = random.Random(seed).choice([*LUCKS])
        logs = self._folder / f"unsynced-{name}"
        lost = lose_unsynced(self.broker.folder / name, logs, LUCKS[luck], seed)
        return f"of {lost} unsynced writes, {luck}"

    def _freeze_host(self, fault: Fault) -> tuple[str, End]:
        self.hosts[fault.host].freeze()

        def end() -> str:
            self.hosts[fault.host].thaw()
            return ""

        return "", end

    # The network

    def _cut(self, fault: Fault) -> tuple[str, End]:
        return self._between((fault.host, fault.other), (fault.other, fault.host))

    def _one_way_cut(self, fault: Fault) -> tuple[str, End]:
        return self._between((fault.host, fault.other))

    def _isolate(self, fault: Fault) -> tuple[str, End]:
        others = [name for name in (*NAMES, *MEMBERS, CLIENT) if name != fault.host]
        return self._between(*((fault.host, other) for other in others), *((other, fault.host) for other in others))

    def _cut_from_etcd(self, fault: Fault) -> tuple[str, End]:
        here = fault.host
        return self._between(*((here, member) for member in MEMBERS), *((member, here) for member in MEMBERS))

    def _one_way_cut_from_etcd(self, fault: Fault) -> tuple[str, End]:
        return self._between(*((member, fault.host) for member in MEMBERS))

    def _between(self, *ways: tuple[str, str]) -> tuple[str, End]:
        self.weather.cut(*ways)
        return "", lambda: self.weather.mend(*ways) or ""

    def _loss(self, fault: Fault) -> tuple[str, End]:
        way = fault.host, fault.other
        self.weather.lose(way, fault.amount)
        return f"{fault.amount:.0%}", lambda: self.weather.keep(way, fault.amount) or ""

    def _delay(self, fault: Fault) -> tuple[str, End]:
        way = fault.host, fault.other
        self.weather.delay(way, fault.amount)
        return f"{fault.amount} s", lambda: self.weather.hasten(way, fault.amount) or ""

    def _clock_rate(self, fault: Fault) -> tuple[str, End]:
        self.rates.run(fault.host, fault.amount)
        return f"x {fault.amount}", lambda: self.rates.run(fault.host, 1.0) or ""

    # etcd

    def _etcd_member_frozen(self, fault: Fault) -> tuple[str, End]:
        members = [self._members[name] for name in fault.members]
        for member in members:
            if not member.running.has_ended:
                member.freeze()

        def end() -> str:
            for member in members:
                self._revive(member)
            return ""

        return "", end

    _etcd_majority_frozen = _etcd_member_frozen

    def _etcd_member_killed(self, fault: Fault) -> tuple[str, End]:
        member = self._members[fault.members[0]]
        member.kill()
        return "", lambda: self._revive(member) or ""

    @staticmethod
    def _revive(member: Member) -> None:
        if member.running.has_ended:
            member.start()
        else:
            member.thaw()

    # Means

    @property
    def _groups(self) -> dict[str, Group]:
        return self.operators.groups

    def _process_of(self, fault: Fault) -> tuple[str, int | None]:
        """The host of a replica, and its process, if there is one just now."""
        group = self._groups[fault.group]
        followers = sorted({*group.replicas} - {group.primary}) or [group.primary]
        name = group.primary
        if fault.role == "follower":
            name = followers[fault.seed % len(followers)]
        elif fault.role == "any" and fault.host in group.replicas:
            name = fault.host
        return name, self._pid(name, *fault.group.split("-"))

    def _pid(self, host: str, role: str, index: str = "") -> int | None:
        """The process of a role on a host; of a shard, of that index."""
        for pid in self.hosts.network.namespaces[host].pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").split()
                if role in words and "up" not in words and (not index or words[words.index("--index") + 1] == index):
                    return pid
        return None

    @staticmethod
    def _signal(pid: int, number: int) -> str:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return ""
        return "it has ended"

    @staticmethod
    def _limit_files(pid: int, size: int) -> str:
        with contextlib.suppress(ProcessLookupError):
            _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
            return ""
        return "it has ended"

    def _start(self, name: str) -> str:
        """Start a host, if it does not run."""
        if self.broker.ups[name].has_ended:
            self.broker.launch(name)
        return ""
