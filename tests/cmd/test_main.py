"""The program: its list of commands, how fast it is there, how commands end."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardmq.cmd.main import COMMANDS, cli, run
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import ShardmqError


def shardmq(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=30, check=False
    )


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        for inner, below in command.commands.items():
            yield from commands(f"{name} {inner}", below)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    with click.Context(cli) as context:
        found = cli.get_command(context, name)
    assert found is not None
    for full, part in commands(name, found):
        assert part.help, f"{full} has no help"
        for parameter in part.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{full} {parameter.name} has no help"


@pytest.mark.parametrize(
    "noun",
    [
        "user",
        "vhost",
        "permission",
        "queue",
        "exchange",
        "binding",
        "connection",
        "channel",
        "consumer",
        "definitions",
        "keys",
    ],
)
def test_every_command_about_a_noun_speaks_json(noun: str) -> None:
    with click.Context(cli) as context:
        group = cli.get_command(context, noun)
    assert isinstance(group, click.Group)
    for full, part in commands(noun, group):
        names = {parameter.name for parameter in part.params}
        assert isinstance(part, click.Group) or "as_json" in names, f"{full} has no --json"


def test_help_names_all_commands_and_is_there_at_once() -> None:
    started_at = time.process_time()
    shown = shardmq("--help")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in COMMANDS)
    assert time.process_time() - started_at < 1


def test_roles_and_help_import_neither_tables_nor_the_broker() -> None:
    script = (
        "import sys; from shardmq.cmd.main import run; run(['--help']); run(['shard', '--help']); "
        "print(sorted({'rich', 'lmdb', 'zmq', 'uvloop', 'pandas', 'asyncio'} & set(sys.modules)), file=sys.stderr)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=30, check=True
    )
    heavy = shown.stderr.strip()
    assert heavy in ("[]", "['asyncio']"), heavy


def test_a_failure_is_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", "list", "--url", "shardmq://127.0.0.1:1/"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Error: no broker answers at 127.0.0.1:1")


@click.command()
@click.option("--interrupted", is_flag=True)
def failing(*, interrupted: bool) -> None:
    fault = KeyboardInterrupt() if interrupted else ShardmqError("it failed")
    fault.add_note("messages are still reserved: run it again")
    raise fault


@pytest.mark.parametrize(("options", "code", "last"), [((), 1, "Error: it failed"), (("--interrupted",), 130, "")])
def test_what_a_failure_leaves_behind_is_told_above_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, last: str
) -> None:
    monkeypatch.setitem(COMMANDS, "failing", f"{__name__}:failing")
    assert run(["failing", *options]) == code
    told = ["Note: messages are still reserved: run it again", last]
    assert capsys.readouterr().err.split("\n") == ([*told, ""] if last else ["", *told])


def test_a_wrong_command_line_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--shards", "0"]) == 2
    assert "--shards" in capsys.readouterr().err


def test_a_role_that_refuses_its_configuration_exits_with_78(tmp_path: Path) -> None:
    (tmp_path / "shard-0").write_text("in the way")
    refused = shardmq("shard", "--index", "0", "--data-dir", str(tmp_path), "--listen", f"ipc://{tmp_path}/bus")
    assert refused.returncode == 78, refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "url", ["http://guest:guest@localhost/", "localhost:5672", "shardmq://h:1:2/", "shardmq://h:99999/"]
)
def test_a_url_that_cannot_be_read_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", "list", "--url", url]) == 2
    assert "shardmq://user:password@host:port/vhost" in capsys.readouterr().err


def test_the_package_runs_as_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "shardmq", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("shardmq, version")
