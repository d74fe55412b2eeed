"""A member of etcd on a machine: Debian's package, set up as docs/operations/etcd.md says, line by line."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.deploy.machine import Machine
from tests.deploy.services import edited, lines, typed
from tests.docs.document import ROOT, Document
from tests.hosts.members import program

PAGE: Final = Document(ROOT / "docs" / "operations" / "etcd.md")
FOLDER: Final = "/usr/local/bin"
USER: Final = "u etcd - - /var/lib/etcd\n"
ADDRESS: Final = "10.0.0.11"
OTHER_MEMBERS: Final = ",etcd-2=https://etcd-2:2380,etcd-3=https://etcd-3:2380"
OTHER_ENDPOINTS: Final = ",https://10.0.0.12:2379,https://10.0.0.13:2379"
"""What the page has beside the one member that there is."""


@dataclass(frozen=True)
class EtcdPackage:
    """What a machine gets of Debian's packages etcd-server and etcd-client.

    Attributes:
        programs: etcd and etcdctl.
        unit: etcd's.
    """

    programs: tuple[Path, ...]
    unit: Path

    @classmethod
    def found(cls) -> Self:
        """Look for it on this machine.

        Raises:
            Absent: it is not there, or nothing makes certificates.
        """
        if shutil.which("openssl") is None:
            raise Absent("openssl is not installed (Debian: openssl)")
        programs = tuple(unpacked(name) for name in ("etcd", "etcdctl"))
        unit = programs[0].parents[2] / "lib" / "systemd" / "system" / "etcd.service"
        if not unit.exists():
            raise Absent(f"{programs[0]} is there without {unit} (Debian: etcd-server)")
        return cls(programs, unit)

    def install(self, machine: Machine) -> None:
        """Do what the packages do when they are installed."""
        for path in self.programs:
            machine.copy(path, f"{FOLDER}/{path.name}")
        machine.write("/opt/units/etcd.service", self.unit.read_text().replace("/usr/bin", FOLDER))
        machine.write("/etc/sysusers.d/etcd.conf", USER)
        machine.type("systemd-sysusers && install -d -o etcd -g etcd -m 700 /var/lib/etcd")


def unpacked(name: str) -> Path:
    """Where a program is; what was fetched for tests is called by a script that lies elsewhere."""
    found = Path(program(name)).resolve()
    fetched = found.parents[1] / "usr" / "bin" / name
    return fetched if fetched.exists() else found


def start_etcd(machine: Machine) -> None:
    """Make certificates, a member and its users; its folder `etcd` is among what the operator has."""
    machine.type(f"echo {ADDRESS} etcd-1 >> /etc/hosts")
    typed(machine, *lines(PAGE, "Certificates", "deploy/hosts/certificates.sh"), *lines(PAGE, "Members", "install"))
    edited(machine, "/etc/shardmq/etcd.env", {OTHER_MEMBERS: ""})
    typed(machine, *lines(PAGE, "Members", "systemctl daemon-reload"))
    machine.said("systemctl", "start", "etcd")  # returns when the start that goes on has ended
    users = "\n".join([*lines(PAGE, "Users", "export"), *lines(PAGE, "Users", "etcdctl")])
    assert OTHER_ENDPOINTS in users
    typed(machine, users.replace(OTHER_ENDPOINTS, ""))
