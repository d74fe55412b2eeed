"""A broker on the three hosts as deploy/hosts has it: the unit's commands and settings, etcd with TLS and a user."""

import itertools
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from shardmq.cmd.run.invocation import command
from tests.deploy.hosts import MEMBERS_FOLDER, make_certificates, replaced, settings, unit_settings, unit_words
from tests.docs.document import ROOT
from tests.hosts.broker import SHARDS, HostsBroker
from tests.hosts.document import page_lines, typed
from tests.hosts.hosts import NAMES, Hosts
from tests.hosts.members import Etcd, Member, Process

PAGE = ROOT / "docs" / "operations" / "etcd.md"
QUICK = ("--logger", "zap", "--election-timeout", "500", "--bcrypt-cost", "4")
STOP_SECONDS = 60.0


class DeployedEtcd(Etcd):
    """Members with the settings of deploy/hosts, then the users that docs/operations/etcd.md tells to make.

    Args:
        members: each with an address of its own.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__(members, scheme="https")
        self.certificates = self.folder / "etcd"
        self._members_prefixes = [tuple(member.prefix) for member in members]

    def changes(self) -> dict[str, str]:
        """What stands in the files and on the page, and is something else here."""
        names = {f"etcd-{number}": member.host for number, member in enumerate(self.members, start=1)}
        addresses = {f"10.0.0.{number}": member.host for number, member in enumerate(self.members, start=11)}
        return {MEMBERS_FOLDER: str(self.certificates / "members")} | names | addresses

    def documented(self) -> None:
        """Make the users, line by line."""
        for line in page_lines(PAGE, "etcdctl"):
            if not {"--user", "restore"} & {*line.split()}:
                self._type(line)

    def looked_at(self) -> list[str]:
        """Look at it, and keep a snapshot, line by line; returns what was said."""
        lines = page_lines(PAGE, "etcdctl --user") + page_lines(PAGE, "ETCDCTL_ENDPOINTS=https://10.0.0.11:2379")
        return [self._type(line) for line in lines]

    def restored(self) -> None:
        """Lose the data of all members, and restore the snapshot on each."""
        [line] = page_lines(PAGE, "etcdctl snapshot restore")
        for member in self.members:
            member.kill()
        for member in self.members:
            shutil.rmtree(member.folder)
            here = line.replace("/var/lib/etcd/default", str(member.folder))
            done = subprocess.run(
                [*member.prefix, "sh", "-c", here], cwd=self.folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        typed.add(line)
        for member in self.members:
            member.start(QUICK)
        self.wait()

    def _type(self, line: str) -> str:
        """Run etcdctl as the page says; returns what it said."""
        lines = [*page_lines(PAGE, "export"), line]
        changes = self.changes() | {"etcd/ca.pem": str(self.certificates / "ca.pem")}
        *exports, here = [replaced({"": each}, changes)[""] for each in lines]
        variables = itertools.chain(*(shlex.split(export)[1:] for export in exports))
        done = subprocess.run(
            [*self._members_prefixes[0], "env", *variables, "sh", "-c", here],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        typed.update(lines)
        return done.stdout

    def _start(self, attempt: int) -> None:
        [line] = page_lines(PAGE, "deploy/hosts/certificates.sh")
        typed.add(line)
        names = replaced({"": line}, self.changes())[""].split()[2:]
        make_certificates(self.certificates, names)
        for number, (member, prefix) in enumerate(zip(self.members, self._members_prefixes, strict=True), start=1):
            own = settings("etcd-member.env")
            own = replaced(own, {own["ETCD_NAME"]: f"etcd-{number}"})
            values = replaced(settings("etcd.env") | own, self.changes() | {"0.0.0.0": member.host})
            member.folder = self.folder / f"{member.name}-{attempt}"
            values["ETCD_DATA_DIR"] = str(member.folder)
            member.prefix = (*prefix, "env", *(f"{name}={value}" for name, value in values.items()))
            member.start(QUICK)
        self.wait()
        self.documented()


class DeployedBroker(HostsBroker):
    """One broker on hosts a, b and c, each started and stopped as its unit says.

    Args:
        hosts: with a `DeployedEtcd`.
        prefix: of its folder.
    """

    def __init__(self, hosts: Hosts, prefix: str) -> None:
        super().__init__(hosts, prefix)
        self.join = self.settings(NAMES[0])["SHARDMQ_JOIN"]

    def settings(self, name: str) -> dict[str, str]:
        """What systemd gives the unit of a host."""
        etcd = self.hosts.etcd
        assert isinstance(etcd, DeployedEtcd)
        changes = {"/etc/shardmq/keys": str(self.folder / "keys" / name), "/var/lib/shardmq": str(self.folder / name)}
        return replaced(unit_settings(), changes | etcd.changes()) | {
            "SHARDMQ_HOST_NAME": name,
            "SHARDMQ_HOST_ADDRESS": self.hosts[name].address,
            "SHARDMQ_UP_SHARDS": str(SHARDS),
            "SHARDMQ_UP_MEMORY_WATERMARK": "1GiB",
            "SHARDMQ_MANAGEMENT_PORT": "off",
        }

    def data_dir(self, name: str) -> Path:
        """Where a host keeps its stores."""
        return Path(self.settings(name)["SHARDMQ_DATA_DIR"])

    def stop(self, name: str) -> None:
        """Stop a host as systemd does: ExecStop, then SIGTERM."""
        done = self.on(name, *command(*unit_words("ExecStop")))
        assert done.returncode == 0, done.stderr
        assert "may stop" in done.stdout
        up = self.ups[name]
        up.signal(signal.SIGTERM)
        self.wait_for(lambda: up.has_ended, f"{name} stops")

    def on(self, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on a host, or on the client's, with the unit's settings."""
        return subprocess.run(
            [*self.hosts[name].prefix, *self._variables(name), *words],
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        )

    def spawn(self, name: str, *words: str) -> Process:
        """Start a command on a host, or on the client's, with the unit's settings."""
        self._runs["spawned"] += 1
        log = self.folder / f"spawned-{self._runs['spawned']}.log"
        return self.hosts[name].spawn([*self._variables(name), *words], log)

    def _command(self, name: str) -> list[str]:
        """What the unit starts, with events for the test."""
        return [*self._variables(name), *command(*unit_words("ExecStart")), "--json"]

    def _variables(self, name: str) -> list[str]:
        return ["env", *(f"{key}={value}" for key, value in self.settings(name).items())]
