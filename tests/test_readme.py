"""What the README says is so: its example runs, the commands and rooms it names exist."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from shardmq.cmd.main import COMMANDS, cli
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import environment

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DEFAULT_PORT = "127.0.0.1:5672"


def section(title: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the README has no section '{title}'"
    return found[1]


def named(pattern: str) -> list[str]:
    """Every match of a pattern in the README, once."""
    found = sorted(set(re.findall(pattern, README, re.MULTILINE)))
    assert found, f"nothing in the README looks like {pattern}"
    return found


def code(title: str) -> str:
    found = re.search(r"^```python\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    assert found is not None, f"section '{title}' has no Python in it"
    return found[1]


def test_the_example_runs_as_written(broker: Broker) -> None:
    example = code("In twenty lines")
    assert example.count(DEFAULT_PORT) == 1
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.replace(DEFAULT_PORT, f"127.0.0.1:{broker.port}")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    shown = [line.split()[:2] for line in ran.stdout.splitlines()]
    assert shown == [["UA.EWR.late", f"b'{body}'"] for body in ("one", "two", "three", "four")]


def test_the_example_has_twenty_lines() -> None:
    assert len([line for line in code("In twenty lines").splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("target", named(r"(?:^|[`(])make ([a-z]+)"))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


@pytest.mark.parametrize("name", named(r"`shardmq ([a-z]+)"))
def test_commands_exist(name: str) -> None:
    assert name in COMMANDS


def test_the_commands_listed_together_exist_and_speak_json() -> None:
    listed = re.search(r"On the command line: (.*?); each", README, re.DOTALL)
    assert listed is not None
    names = re.findall(r"`(?:shardmq )?([a-z]+)`", listed[1])
    assert len(names) > 5
    with click.Context(cli) as context:
        for name in names:
            command = cli.get_command(context, name)
            assert command is not None, name
            every = list(command.commands.values()) if isinstance(command, click.Group) else [command]
            assert all(any("--json" in parameter.opts for parameter in one.params) for one in every), name


@pytest.mark.parametrize("room", re.findall(r"^\| `([^`]+)` \|", section("How it is built"), re.MULTILINE))
def test_rooms_exist(room: str) -> None:
    assert (ROOT / room).is_dir() if room.endswith("/") else (ROOT / room).is_file()


def test_every_room_of_the_tree_is_in_the_table() -> None:
    rooms = set(re.findall(r"^\| `([^`]+)` \|", section("How it is built"), re.MULTILINE))
    inner = {
        f"shardmq/{path.parent.name}/"
        for path in (ROOT / "shardmq").glob("*/__init__.py")
        if not path.parent.is_symlink()
    }
    assert inner <= rooms


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
