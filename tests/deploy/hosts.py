"""What deploy/hosts has: settings, commands of the unit, certificates; all as they are to be used."""

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.deploy.manifests import DEPLOY

HOSTS = DEPLOY / "hosts"
UNIT = HOSTS / "shardmq-host.service"
PROGRAM = "/opt/shardmq/bin/shardmq"
MEMBERS_FOLDER = "/etc/shardmq/etcd"


def settings(*files: str) -> dict[str, str]:
    """Settings of files that systemd and compose read."""
    lines = "\n".join((HOSTS / file).read_text() for file in files)
    return dict(re.findall(r"^(\w+)=(.*)$", lines, re.MULTILINE))


def replaced(values: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Settings with names and folders of a test in them, which are not looked at again."""
    old = re.compile("|".join(re.escape(each) for each in sorted(changes, key=len, reverse=True)))
    return {name: old.sub(lambda found: changes[found[0]], value) for name, value in values.items()}


def unit_settings() -> dict[str, str]:
    """All that systemd gives the unit."""
    files = re.findall(r"^EnvironmentFile=/etc/shardmq/(.*)$", UNIT.read_text(), re.MULTILINE)
    return settings(*files)


def unit_words(name: str) -> list[str]:
    """The words behind `shardmq` of the unit's ExecStart or ExecStop."""
    [line] = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    words = shlex.split(line)
    if words[0] == "/bin/sh":
        words = shlex.split(words[2])[words[2].split().index(PROGRAM) :]
    assert words[0] == PROGRAM
    return words[1:]


def make_certificates(folder: Path, names: Sequence[str]) -> None:
    """Run the script that makes an authority and the members' certificate."""
    done = subprocess.run(
        [HOSTS / "certificates.sh", folder, *names], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
