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
from tests.deploy.services import (
    README,
    edited,
    install,
    lines,
    logged,
    refused,
    serves,
    started_again,
    stopped,
    typed,
)
from tests.deploy.test_units import PROGRAM, UNITS, setting
from tests.running import without

WHOLE: Final = DEPLOY / "shardmq.service"
ROLES: Final = ("shardmq-coordinator", *(f"shardmq-shard@{index}" for index in range(4)), "shardmq-gateway@0")
PERMITTED: Final = {"IPAddressAllow"}
DROP_IN: Final = "/etc/systemd/system/shardmq.service.d/override.conf"


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine on which the units are installed and none is started."""
    try:
        found = Machine()
    except Absent as reason:
        without(reason)
    with logged(found, request):
        install(found, "One machine", "Separate processes")
        yield found


def publish(machine: Machine, queue: str, *bodies: str) -> None:
    machine.said(PROGRAM, "queue", "declare", queue)
    for body in bodies:
        machine.said(PROGRAM, "publish", "--mandatory", queue, body)


def kept(machine: Machine, queue: str) -> list[str]:
    """The messages of a queue, which stay in it."""
    return machine.said(PROGRAM, "consume", queue, "--no-ack", "--wait", "0.1").splitlines()


def start_roles(machine: Machine) -> None:
    [all_here] = [line for line in lines(README, "Separate processes", "systemctl enable") if "{0..3}" in line]
    typed(machine, all_here)
    for unit in ROLES:
        serves(machine, unit)


def stop_roles(machine: Machine) -> None:
    typed(machine, *lines(README, "Separate processes", "systemctl stop"))
    for unit in ROLES:
        stopped(machine, unit)


def test_a_broker_is_a_service_that_keeps_its_messages_whatever_ends_its_processes(machine: Machine) -> None:
    typed(machine, *lines(README, "One machine", "systemctl"), *lines(README, "One machine", PROGRAM))
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
    refused(machine, "shardmq", wrong, status)


def test_units_of_roles_take_the_place_of_the_whole_and_go_on_with_its_messages(machine: Machine) -> None:
    machine.type("systemctl start shardmq")
    publish(machine, "moved", "first")
    start_roles(machine)
    stopped(machine, "shardmq")
    assert kept(machine, "moved") == ["first"]

    for unit in ROLES:
        machine.said("kill", "-KILL", str(machine.pid(unit)))
    for unit in ROLES:
        started_again(machine, unit, restarts=1)
    machine.wait_for(lambda: machine.run(PROGRAM, "status").returncode == 0, "the broker serves again")
    assert kept(machine, "moved") == ["first"]

    stop_roles(machine)


def test_units_of_roles_speak_over_tcp_with_keys(machine: Machine) -> None:
    changes = {f"#SHARDMQ_{name}=": f"SHARDMQ_{name}=" for name in ("COORDINATOR", "SHARDS", "KEYS")}
    edited(machine, "/etc/shardmq/roles.env", changes)
    section = "Several machines: keys"
    keys = "\n".join([*lines(README, section, "shardmq keys"), *lines(README, section, "install")])
    typed(machine, keys.replace("keys/shard-0.key_secret keys/shard-1.key_secret", "keys/*.key_secret"))
    start_roles(machine)
    machine.type("exec 3<> /dev/tcp/10.0.0.1/5679")
    publish(machine, "apart", "first")
    assert kept(machine, "apart") == ["first"]
    stop_roles(machine)


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
