"""The commands of the units, with the settings beside them, start brokers: whole, in roles, and over TCP with keys."""

import contextlib
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import shardmq
from shardmq.cmd.main import cli
from shardmq.cmd.run import invocation
from shardmq.cmd.run.locks import private_directory
from shardmq.runtime import notify
from tests.ports import free_ports

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("hosts/*.service")])
SECONDS = 60.0
PROGRAM = "/opt/shardmq/bin/shardmq"


def setting(unit: Path, name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)
    return str(value)


def words(unit: Path, instance: str = "0") -> tuple[str, ...]:
    """The unit's command without the program, with its specifiers filled in."""
    program, *arguments = shlex.split(setting(unit, "ExecStart").replace("%i", instance).replace("%H", "alpha"))
    assert program == PROGRAM
    return tuple(arguments)


def variables(file: Path, is_distributed: bool = False) -> dict[str, str]:
    """What a file of settings says: as it is, or with its example for several machines instead."""
    text = file.read_text()
    if is_distributed:
        text = re.sub(r"^#(SHARDMQ_(?:COORDINATOR|SHARDS|KEYS)=)", r"\1", text, flags=re.MULTILINE)
    return dict(re.findall(r"^(SHARDMQ_\w+)=(.*)$", text, re.MULTILINE))


def known(command: click.Command) -> set[str]:
    return {parameter.envvar for parameter in command.params if isinstance(parameter.envvar, str)}


@contextlib.contextmanager
def started(folder: Path, settings: dict[str, str], *units: tuple[str, ...]) -> Iterator[None]:
    """Run commands until the block ends, which begins when each has said that it serves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears, (folder / "journal").open("ab") as journal:
        hears.bind(str(folder / "notify"))
        hears.settimeout(SECONDS)
        given = {**settings, notify.NOTIFY_SOCKET: str(folder / "notify")}
        processes = [invocation.spawn(unit, given, journal.fileno(), journal.fileno()) for unit in units]
        try:
            for _ in units:
                while hears.recv(4096) != b"READY=1":
                    pass
            yield
        except TimeoutError:
            pytest.fail((folder / "journal").read_text())
        finally:
            for process in reversed(processes):
                process.terminate()
            ends = [process.wait(SECONDS) for process in reversed(processes)]
            (folder / "notify").unlink()
    assert ends == [0] * len(units), (folder / "journal").read_text()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path short enough for sockets, which nobody else can enter."""
    with private_directory() as folder:
        yield folder


def use(port: str, queues: int = 8) -> None:
    """Declare queues, which come to lie on all shards, and have a message through each."""
    with shardmq.connect(f"shardmq://guest:guest@127.0.0.1:{port}/") as connection, connection.channel() as channel:
        for number in range(queues):
            name = f"queue-{number}"
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, b"kept")
            assert channel.queue_declare(name, passive=True).messages >= 1


def roles(shards: int) -> tuple[tuple[str, ...], ...]:
    return (
        words(DEPLOY / "shardmq-coordinator.service"),
        *(words(DEPLOY / "shardmq-shard@.service", str(index)) for index in range(shards)),
        words(DEPLOY / "shardmq-gateway@.service"),
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_settings_of_a_unit_are_all_known_to_its_command(unit: Path) -> None:
    name, *_ = words(unit)
    files = re.findall(r"^EnvironmentFile=/etc/shardmq/(.*)$", unit.read_text(), re.MULTILINE)
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
        assert command is not None
        every = (
            {command}
            if name == "up"
            else {cli.get_command(context, role) for role in ("coordinator", "shard", "gateway")}
        )
    text = "".join((unit.parent / file).read_text() for file in files)
    mentioned = set(re.findall(r"^#?(SHARDMQ_\w+)=", text, re.MULTILINE))
    assert mentioned
    assert mentioned <= set().union(*(known(command) for command in every if command is not None))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    here = tmp_path / unit.name.replace("@", "@0")
    here.write_text(unit.read_text().replace(PROGRAM, shutil.which("true") or "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", here], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert [line for line in ran.stderr.splitlines() if unit.name.partition("@")[0] in line] == []


def test_one_unit_is_a_broker_and_the_units_of_roles_go_on_with_its_stores(short_path: Path, tmp_path: Path) -> None:
    [port] = free_ports(1)
    more = {"SHARDMQ_DATA_DIR": str(tmp_path / "data"), "SHARDMQ_PORT": str(port)}
    settings = variables(DEPLOY / "shardmq.env") | more
    with started(short_path, settings, words(DEPLOY / "shardmq.service")):
        use(more["SHARDMQ_PORT"])

    settings = variables(DEPLOY / "roles.env") | more
    for name in ("SHARDMQ_COORDINATOR", "SHARDMQ_SHARDS"):
        settings[name] = settings[name].replace("/run/shardmq", str(short_path))
    with (
        started(short_path, settings, *roles(len(settings["SHARDMQ_SHARDS"].split()))),
        shardmq.connect(f"shardmq://guest:guest@127.0.0.1:{port}/") as connection,
        connection.channel() as channel,
    ):
        assert [channel.queue_purge(f"queue-{number}") for number in range(8)] == [1] * 8


def test_the_example_for_several_machines_is_a_broker_over_tcp_with_keys(short_path: Path, tmp_path: Path) -> None:
    settings = variables(DEPLOY / "roles.env", is_distributed=True)
    keys = tmp_path / "keys"
    shards = settings["SHARDMQ_SHARDS"].split()
    names = ["coordinator", *(f"shard-{index}" for index in range(len(shards))), "gateway-alpha-0"]
    subprocess.run(invocation.command("keys", "create", *names, "--dir", str(keys)), check=True, capture_output=True)
    # Other addresses of the loopback are the other machines: the addresses stay different, and so may the ports.
    ports = iter(free_ports(len(shards) + 2))

    def here(address: str) -> str:
        return re.sub(r"10\.0\.0\.(\d):\d+", lambda found: f"127.0.0.{found[1]}:{next(ports)}", address)

    settings |= {name: here(settings[name]) for name in ("SHARDMQ_COORDINATOR", "SHARDMQ_SHARDS")}
    assert len({*shards, settings["SHARDMQ_COORDINATOR"]}) == len(shards) + 1
    settings |= {
        "SHARDMQ_KEYS": str(keys),
        "SHARDMQ_DATA_DIR": str(tmp_path / "data"),
        "SHARDMQ_PORT": str(next(ports)),
    }
    with started(short_path, settings, *roles(len(shards))):
        use(settings["SHARDMQ_PORT"])


def test_a_shard_without_an_address_says_where_to_add_one() -> None:
    ran = subprocess.run(
        invocation.command(*words(DEPLOY / "shardmq-shard@.service", "4")),
        env=invocation.environment(**variables(DEPLOY / "roles.env")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "shard 4 has no address among the 4 of --shard (SHARDMQ_SHARDS): add it at the end there" in ran.stderr


def test_units_that_would_share_the_stores_exclude_one_another() -> None:
    for unit in UNITS:
        if unit.name != "shardmq.service":
            assert setting(unit, "Conflicts") == "shardmq.service"
            assert "shardmq.service" in setting(unit, "After").split()  # or one starts while the other still stops


def test_the_readme_says_of_every_file_where_it_goes() -> None:
    table = (DEPLOY / "README.md").read_text().partition("\n\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == {
        path.name for path in DEPLOY.iterdir() if path.name != "README.md"
    }
