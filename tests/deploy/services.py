"""Services of a machine with systemd: installed and used as pages say, line by line."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from tests.deploy.machine import Machine
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_units import PROGRAM
from tests.docs.document import Document

README: Final = Document(DEPLOY / "README.md")
VENV: Final = PROGRAM.partition("/bin/")[0]
SCRIPT: Final = "#!/opt/shardmq/bin/python\nimport sys\n\nfrom shardmq.cmd.main import main\n\nsys.exit(main())\n"
FOLDER: Final = "/srv/operator"
"""Where lines are typed: as a clone it has `deploy`, and can be written to."""


def lines(page: Document, section: str, words: str) -> list[str]:
    """Lines of a section that begin with some words; backquotes are no part of them."""
    text = page.section(section)
    found = [
        line for line in re.findall(r"^[a-z/][^`]*?$|(?<=`)[^`\n]+(?=`)", text, re.MULTILINE) if line.startswith(words)
    ]
    assert found, f"'{section}' has no `{words}`"
    return [line.rstrip() for line in found]


def typed(machine: Machine, *commands: str) -> str:
    """Have one shell read lines of a page, each of which must end well; returns what was said."""
    return machine.type("\n".join([f"cd {FOLDER}", f"PATH=$PATH:{VENV}/bin", *commands]))


def edited(machine: Machine, path: str, changes: Mapping[str, str]) -> None:
    """Edit a file there."""
    text = machine.type(f"cat {path}") + "\n"
    for old, new in changes.items():
        assert old in text, f"{path} has no {old!r}"
        text = text.replace(old, new)
    machine.write(path, text)


@contextmanager
def logged(machine: Machine, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine for all tests of a file; what it logged is printed where one of them failed."""
    with machine:
        machine.type(f"install -d {FOLDER} && ln -s /srv/shardmq/deploy {FOLDER}/deploy")
        failed = request.session.testsfailed
        yield machine
        if request.session.testsfailed > failed:
            print(machine.run("journalctl", "--no-pager", "--lines=300").stdout)


def install(machine: Machine, *sections: str) -> None:
    """What tests/install/test_wheel.py does with a wheel, and then the README's lines."""
    machine.type(f"python3 -m venv --without-pip {VENV}")
    for folder in ("/srv/shardmq", "/opt/packages"):
        machine.type(f"echo {folder} >> $(echo {VENV}/lib/python3.*/site-packages)/shardmq.pth")
    machine.write(PROGRAM, SCRIPT)
    machine.type(f"chmod 755 {PROGRAM}")
    for section in ("Install", *sections):
        typed(machine, *lines(README, section, "install"))


def serves(machine: Machine, unit: str) -> None:
    """Wait until `systemctl status` shows that a unit is active and nothing is wrong with it."""
    machine.wait_for(lambda: 'Status: "serving"' in machine.said("systemctl", "status", unit), f"{unit} serves")


def started_again(machine: Machine, unit: str, restarts: int) -> None:
    """Wait until systemd has started a unit anew for so many times in all, and it serves."""
    machine.wait_for(lambda: int(machine.property(unit, "NRestarts")) == restarts, f"{unit} is started again")
    machine.wait_for(lambda: machine.property(unit, "ActiveState") == "active", f"{unit} serves again")


def stopped(machine: Machine, unit: str) -> None:
    """Check that a unit has ended in order, with all of its processes."""
    assert machine.property(unit, "ActiveState") == "inactive"
    assert machine.property(unit, "Result") == "success"
    assert machine.property(unit, "ExecMainStatus") == "0"
    assert machine.processes(unit) == set()


def refused(machine: Machine, unit: str, wrong: str, status: str) -> None:
    """Check that a unit ends with an exit code where one of its settings is wrong, and is not started again."""
    drop_in = f"/etc/systemd/system/{unit}.service.d/wrong.conf"
    machine.write("/etc/shardmq/wrong.env", wrong)
    machine.write(drop_in, "[Service]\nEnvironmentFile=/etc/shardmq/wrong.env\n")
    machine.type("systemctl daemon-reload")
    assert machine.run("systemctl", "start", unit).returncode != 0
    found = [machine.property(unit, name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")]
    assert found == ["failed", status, "0"], machine.run("journalctl", "--no-pager", "--lines=20").stdout
    machine.type(f"rm {drop_in} && systemctl daemon-reload && systemctl reset-failed {unit}")
