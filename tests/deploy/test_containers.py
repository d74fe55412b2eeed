"""Containers: their files are what their tools take, and what they start needs nothing writable but its mounts."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest

import shardmq
from shardmq.cmd.main import cli
from shardmq.cmd.run import invocation
from tests.ports import free_ports

from .manifests import (
    COMPOSE,
    CONTAINERFILE,
    DEPLOY,
    KUBERNETES,
    compose_service,
    compose_settings,
    image_settings,
    kubernetes_objects,
    kubernetes_settings,
    pod,
)
from .test_units import known

PROGRAMS = Path(sys.executable).parent
SECONDS = 60.0
DEFINITIONS = re.compile(r"^cat > deploy/definitions\.json <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)

CONFINED = """\
set -e
mount -t tmpfs none /mnt && mkdir /mnt/stores /mnt/definitions /mnt/tmp
mount --bind "$1" /mnt/stores && mount --bind "$2" /mnt/definitions
mount -o remount,bind,ro / && mount -o remount,bind,ro /mnt/definitions
shift 2
cd / && exec "$@"
"""
"""A container's view of the disk, on this machine's: all is read-only but the mounts."""


def linted(*command: object) -> tuple[int, str]:
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.skipif(not (PROGRAMS / "hadolint").exists(), reason="hadolint has no package for this processor")
def test_the_linter_of_containers_finds_nothing() -> None:
    assert linted(PROGRAMS / "hadolint", "--no-color", CONTAINERFILE) == (0, "")


def test_the_compose_file_is_what_the_specification_says() -> None:
    schema = ("--builtin-schema", "vendor.compose-spec")
    code, said = linted(sys.executable, "-m", "check_jsonschema", *schema, COMPOSE)
    assert code == 0, said


@pytest.mark.parametrize("version", ["1.29.0", kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_object(version: str) -> None:
    for each in kubernetes_objects():
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
def test_kubectl_puts_the_objects_together() -> None:
    code, said = linted("kubectl", "kustomize", KUBERNETES)
    assert code == 0, said
    assert said.count("kind: ") == len(kubernetes_objects())


def test_the_image_runs_a_command_with_settings_that_exist() -> None:
    text = CONTAINERFILE.read_text()
    assert re.findall(r'^(?:ENTRYPOINT|CMD) \["(\w+)"\]', text, re.MULTILINE) == ["shardmq", "up"]
    with click.Context(cli) as context:
        command = cli.get_command(context, "up")
    assert command is not None
    assert {*image_settings(), *compose_settings(), *kubernetes_settings()} <= known(command)


def test_what_is_mounted_is_where_the_broker_looks() -> None:
    service, [container] = compose_service(), pod()["containers"]
    data_dir = image_settings()["SHARDMQ_DATA_DIR"]
    assert service["volumes"] == [f"stores:{data_dir}"]
    assert compose_settings()["SHARDMQ_DEFINITIONS"] == f"/run/secrets/{service['secrets'][0]['target']}"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {
        "stores": data_dir,
        "sockets": "/tmp",
        "definitions": kubernetes_settings()["SHARDMQ_DEFINITIONS"],
    }
    [uid] = re.findall(r"^USER (\d+):\1$", CONTAINERFILE.read_text(), re.MULTILINE)
    assert pod()["securityContext"]["runAsUser"] == pod()["securityContext"]["fsGroup"] == int(uid)


def test_services_reach_the_ports_of_the_pod() -> None:
    [container] = pod()["containers"]
    ports = {port["name"] for port in container["ports"]}
    for each in kubernetes_objects():
        if each["kind"] == "Service":
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports


def readme_definitions() -> str:
    """The definitions that the README has people write, with the password they choose."""
    [found] = DEFINITIONS.findall((DEPLOY / "README.md").read_text())
    return str(found).replace("a password", "of-a-test")


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as fault:
        return fault.code
    except OSError:
        return 0


def await_ready(process: "subprocess.Popen[bytes]", log: Path, management: int) -> None:
    """Ask as Kubernetes does: whether it has started, then whether it is ready."""
    [container] = pod()["containers"]
    deadline = time.monotonic() + SECONDS
    for probe in ("startupProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        while status(f"http://127.0.0.1:{management}{path}") != 200:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def confined() -> tuple[str, ...]:
    """The words before a command that has no disk but its mounts."""
    words = ("unshare", "--mount", "sh", "-c", CONFINED, "sh")
    code, said = linted(*words, DEPLOY, DEPLOY, "true")
    if code:
        pytest.skip(f"mounts are not allowed here: {said.strip()}")
    return words


@pytest.mark.parametrize("settings", [compose_settings(), kubernetes_settings()], ids=["compose", "kubernetes"])
def test_what_it_starts_serves_and_stops_in_order(
    settings: dict[str, Any], confined: tuple[str, ...], tmp_path: Path
) -> None:
    stores, definitions = tmp_path / "stores", tmp_path / "definitions"
    stores.mkdir()
    definitions.mkdir()
    (definitions / "definitions.json").write_text(readme_definitions())
    port, management = free_ports(2)
    given = Path(settings["SHARDMQ_DEFINITIONS"])
    settings = settings | {
        "SHARDMQ_DATA_DIR": "/mnt/stores",
        "SHARDMQ_DEFINITIONS": "/mnt/definitions" + (f"/{given.name}" if given.suffix else ""),
        "SHARDMQ_PORT": str(port),
        "SHARDMQ_MANAGEMENT_PORT": str(management),
        "TMPDIR": "/mnt/tmp",
    }
    log = tmp_path / "log"
    command = [*confined, str(stores), str(definitions), *invocation.command("up")]
    with log.open("wb") as written:
        process = subprocess.Popen(command, env=invocation.environment(**settings), stdout=written, stderr=written)
    try:
        await_ready(process, log, management)
        [user] = [each["name"] for each in json.loads(readme_definitions())["users"]]
        with shardmq.connect(f"shardmq://{user}:of-a-test@127.0.0.1:{port}/") as connection:
            channel = connection.channel()
            channel.queue_declare("kept", durable=True)
            channel.basic_publish("", "kept", b"kept")
        process.send_signal(signal.SIGTERM)
        assert process.wait(pod()["terminationGracePeriodSeconds"]) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert (stores / "shard-0").is_dir()
