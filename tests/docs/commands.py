"""Command lines of the documents, read as `shardmq` reads them."""

import shlex

import click

from shardmq.cmd.main import cli


def parse(line: str) -> None:
    """Read a command line of `shardmq`, and do nothing.

    Raises:
        click.UsageError: the command line is wrong.
    """
    _, *words = shlex.split(line, comments=True)
    command: click.Command = cli
    with click.Context(cli) as context:
        while isinstance(command, click.Group) and not words[0].startswith("-"):  # `shardmq shard --index 0`
            found = command.get_command(context, words[0])
            assert found is not None, f"there is no command '{words[0]}': {line}"
            command = found
            del words[0]
        command.make_context("shardmq", words, parent=context)
