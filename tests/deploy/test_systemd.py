"""The units under a real systemd, installed and used as deploy/README.md says, line by line."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.deploy.machine import Machine
from tests.deploy.manifests import DEPLOY
from tests.deploy.probe import ACTS
from tests.deploy.test_units import PROGRAM, UNITS, setting
from tests.docs.document import Document
from tests.running import without

README: Final = Document(DEPLOY / "README.md")
WHOLE: Final = DEPLOY / "shardmq.service"
ROLES: Final = ("shardmq-coordinator", *(f"shardmq-shard@{index}" for index in range(4)), "shardmq-gateway@0")
SCRIPT: Final = "#!/opt/shardmq/bin/python\nimport sys\n\nfrom shardmq.cmd.main import main\n\nsys.exit(main())\n"
PERMITTED: Final = {"IPAddressAllow"}
DROP_IN: Final = "/etc/systemd/system/shardmq.service.d/override.conf"


def lines(section: str, words: str) -> list[str]:
    """Lines of a section of the README that begin with some words; backquotes are no part of them."""
    text = README.section(section)
    found = [
        line for line in re.findall(r"^[a-z/][^`]*?$|(?<=`)[^`\n]+(?=`)", text, re.MULTILINE) if line.startswith(words)
    ]
    assert found, f"'{section}' has no `{words}`"
    return [line.rstrip() for line in found]


def install(machine: Machine) -> None:
    """What tests/install/test_wheel.py does with a wheel, and then the README's lines."""
    machine.type(f"python3 -m venv --without-pip {PROGRAM.partition('/bin/')[0]}")
    machine.type(f"echo /srv/shardmq > $(echo {PROGRAM.partition('/bin/')[0]}/lib/python3.*/site-packages)/shardmq.pth")
    machine.type(
        f"echo /opt/packages >> $(echo {PROGRAM.partition('/bin/')[0]}/lib/python3.*/site-packages)/shardmq.pth"
    )
    machine.write(PROGRAM, SCRIPT)
    machine.type(f"chmod 755 {PROGRAM}")
    for section in ("Install", "One machine", "Separate processes"):
        for line in lines(section, "install"):
            machine.type(line)


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine on which the units are installed and none is started; what it logged is printed where a test failed."""
    try:
        found = Machine()
    except Absent as reason:
        without(reason)
    with found:
        install(found)
        failed = request.session.testsfailed
        yield found
        if request.session.testsfailed > failed:
            print(found.run("journalctl", "--no-pager", "--lines=300").stdout)


def publish(machine: Machine, queue: str, *bodies: str) -> None:
    machine.said(PROGRAM, "queue", "declare", queue)
    for body in bodies:
        machine.said(PROGRAM, "publish", "--mandatory", queue, body)


def kept(machine: Machine, queue: str) -> list[str]:
    """The messages of a queue, which stay in it."""
    return machine.said(PROGRAM, "consume", queue, "--no-ack", "--wait", "0.1").splitlines()


def serves(machine: Machine, unit: str) -> None:
    """Wait until `systemctl status` shows that a unit is active and nothing is wrong with it."""
    machine.wait_for(lambda: 'Status: "serving"' in machine.said("systemctl", "status", unit), f"{unit} serves")


def started_again(machine: Machine, unit: str, restarts: int) -> None:
    """Wait until systemd has started a unit anew for so many times in all, and it serves."""
    machine.wait_for(lambda: int(machine.property(unit, "NRestarts")) == restarts, f"{unit} is started again")
    machine.wait_for(lambda: machine.property(unit, "ActiveState") == "active", f"{unit} serves again")


def stopped(machine: Machine, unit: str) -> None:
    assert machine.property(unit, "ActiveState") == "inactive"
    assert machine.property(unit, "Result") == "success"
    assert machine.property(unit, "ExecMainStatus") == "0"
    assert machine.processes(unit) == set()


def test_a_broker_is_a_service_that_keeps_its_messages_whatever_ends_its_processes(machine: Machine) -> None:
    for line in [*lines("One machine", "systemctl"), *lines("One machine", PROGRAM)]:
        machine.type(line)
    serves(machine, "shardmq")
    assert machine.said("systemctl", "is-enabled", "shardmq") == "enabled"
    publish(machine, "orders", "first")

    first = machine.pid("shardmq")
    machine.write(DROP_IN, "[Service]\nWatchdogSec=6\n")  # as `systemctl edit` does
    machine.type("systemctl daemon-reload && systemctl restart shardmq")
    assert machine.pid("shardmq") != first
    assert kept(machine, "orders") == ["first"]

    main, before = machine.pid("shardmq"), machine.processes("shardmq")
    shards = {int(pid) for pid in machine.said("pgrep", "--full", "main shard --index").split()}
    assert len(shards) == 4
    machine.said("kill", "-KILL", *(str(pid) for pid in shards))
    machine.wait_for(lambda: len(machine.processes("shardmq") - shards) == len(before), "shards are started again")
    machine.wait_for(lambda: machine.run(PROGRAM, "status").returncode == 0, "the broker serves again")
    assert kept(machine, "orders") == ["first"]
    assert (machine.pid("shardmq"), machine.property("shardmq", "NRestarts")) == (main, "0")

    machine.said("kill", "-KILL", str(main))
    started_again(machine, "shardmq", restarts=1)
    machine.said("kill", "-STOP", str(machine.pid("shardmq")))
    started_again(machine, "shardmq", restarts=2)
    assert "Watchdog timeout (limit 6s)" in machine.said("journalctl", "--no-pager", "--unit=shardmq")
    assert kept(machine, "orders") == ["first"]

    since = time.monotonic()
    machine.type("systemctl stop shardmq")
    assert time.monotonic() - since < float(setting(WHOLE, "TimeoutStopSec"))
    stopped(machine, "shardmq")
    machine.type(f"rm {DROP_IN} && systemctl daemon-reload")


@pytest.mark.parametrize(("wrong", "status"), [("SHARDMQ_PORT=amqp", "2"), ("SHARDMQ_DATA_DIR=/dev/null", "78")])
def test_what_the_broker_refuses_is_not_tried_again(machine: Machine, wrong: str, status: str) -> None:
    machine.write("/etc/shardmq/wrong.env", wrong)
    machine.write(DROP_IN, "[Service]\nEnvironmentFile=/etc/shardmq/wrong.env\n")
    machine.type("systemctl daemon-reload")
    assert machine.run("systemctl", "start", "shardmq").returncode != 0
    found = [machine.property("shardmq", name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")]
    assert found == ["failed", status, "0"], machine.run("journalctl", "--no-pager", "--lines=20").stdout
    machine.type(f"rm {DROP_IN} && systemctl daemon-reload && systemctl reset-failed shardmq")


def test_units_of_roles_take_the_place_of_the_whole_and_go_on_with_its_messages(machine: Machine) -> None:
    machine.type("systemctl start shardmq")
    publish(machine, "moved", "first")
    [all_here] = [line for line in lines("Separate processes", "systemctl enable") if "{0..3}" in line]
    machine.type(all_here)
    stopped(machine, "shardmq")
    for unit in ROLES:
        serves(machine, unit)
    assert kept(machine, "moved") == ["first"]

    for unit in ROLES:
        machine.said("kill", "-KILL", str(machine.pid(unit)))
    for unit in ROLES:
        started_again(machine, unit, restarts=1)
    machine.wait_for(lambda: machine.run(PROGRAM, "status").returncode == 0, "the broker serves again")
    assert kept(machine, "moved") == ["first"]

    [stop] = lines("Separate processes", "systemctl stop")
    machine.type(stop)
    for unit in ROLES:
        stopped(machine, unit)


def probed(machine: Machine, name: str, unit: str) -> dict[str, str]:
    """What tests/deploy/probe.py writes as a service with the options of a unit."""
    command = f"/opt/shardmq/bin/python /srv/shardmq/tests/deploy/probe.py /var/lib/shardmq/{name}"
    unit = re.sub(r"^(ExecStart|ExecStop|Type|Restart|EnvironmentFile)=.*\n", "", unit, flags=re.MULTILINE)
    unit = unit.replace("Conflicts=shardmq.service\n", "").replace(
        "[Service]\n", f"[Service]\nType=oneshot\nExecStart={command}\n"
    )
    machine.write(f"/etc/systemd/system/probe-{name}.service", unit)
    machine.type(f"systemctl daemon-reload && systemctl start probe-{name}")
    return dict(json.loads(machine.type(f"cat /var/lib/shardmq/{name}")))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_a_unit_forbids_is_forbidden_and_would_be_possible_without_it(machine: Machine, unit: Path) -> None:
    machine.type("install -d -m 1777 /srv/open && install -d -o shardmq /var/lib/shardmq")
    machine.type("for file in /home/secret /tmp/open /dev/open; do install -m 644 /dev/null $file; done")
    text = unit.read_text()
    done = probed(machine, "control", "[Service]\nUser=shardmq\n")
    assert [name for name, fault in done.items() if name in ACTS and fault] == []

    found = probed(machine, "hardened", text)
    forbidden = {name for name in ACTS if re.search(rf"^{name}=", text, re.MULTILINE)} - PERMITTED
    assert {name for name in ACTS if found[name]} == forbidden
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    assert {int(found[name], 16) for name in ("CapEff", "CapBnd", "CapAmb")} == {0}
