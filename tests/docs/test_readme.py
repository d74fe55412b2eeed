"""What the README says is so: it is short, the commands and targets it names exist."""

import re

import click
import pytest

from shardmq.cmd.main import COMMANDS, cli
from tests.docs.document import ROOT, Document, documents

README = Document(ROOT / "README.md")
COMMANDS_PAGE = Document(ROOT / "docs/operations/commands.md")
LINES_MAX = 150
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
EXAMPLE_LINES_MAX = 20


def named(pattern: str) -> list[str]:
    """Every match of a pattern in the README, once."""
    found = sorted(set(re.findall(pattern, README.text, re.MULTILINE)))
    assert found, f"nothing in the README looks like {pattern}"
    return found


def test_it_is_short() -> None:
    assert len(README.text.splitlines()) <= LINES_MAX


def test_the_example_has_twenty_lines() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", README.section("In twenty lines"), re.M | re.S)
    assert len([line for line in example.splitlines() if line.strip()]) <= EXAMPLE_LINES_MAX


@pytest.mark.parametrize("target", named(r"(?:^|[`(])make ([a-z-]+)"))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_commands_that_documents_name_exist() -> None:
    text = "".join(document.text for document in documents())
    assert set(re.findall(r"`shardmq ([a-z]+)[ `]", text)) <= set(COMMANDS)


def test_the_page_of_commands_has_all_there_are_and_no_others() -> None:
    assert set(re.findall(r"^\| `shardmq ([a-z-]+)` \|", COMMANDS_PAGE.text, re.M)) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"gateway", "shard", "coordinator", "management", "shovels"}))
def test_every_command_but_a_process_speaks_json(name: str) -> None:
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
    assert command is not None
    for one in leaves(command):
        assert any("--json" in parameter.opts for parameter in one.params), one.name


def leaves(command: click.Command) -> list[click.Command]:
    """A command, or all commands below it."""
    if not isinstance(command, click.Group):
        return [command]
    return [leaf for below in command.commands.values() for leaf in leaves(below)]


def options(command: click.Command) -> set[str]:
    """All options of a command and of those below it."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*(options(one) for one in below))


OTHERS_OPTIONS = {"--enable-grpc-gateway", "--name", "--py-files", "--master", "--version", "--help", "--pool", "--app"}
OTHERS_OPTIONS |= {"--spark", "--build"}
"""Of etcd, Spark, Celery and systemd's units, `make hosts-faults`, or click's own."""


def test_options_that_documents_name_exist() -> None:
    with click.Context(cli) as context:
        known = OTHERS_OPTIONS.union(*(options(cli.get_command(context, name) or cli) for name in COMMANDS))
    for document in documents():
        if document.name.startswith(("README.md", "docs/")):
            named = {found for words in re.findall(r"`([^`\n]+)`", document.prose) for found in OPTION.findall(words)}
            assert named <= known, document.name
