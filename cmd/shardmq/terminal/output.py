"""What commands say: JSON, sentences, questions, failures."""

import sys
from collections.abc import Callable
from typing import Any

import click

from shardmq.cmd.terminal.exit_codes import EXIT_FAILED


class CommandFailed(click.ClickException):
    """A command that could not do what it was told, as this program found out by itself.

    Its text says what happened, to which named thing, and what to do.
    """

    exit_code = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Print the text to stderr."""
        click.secho(f"Error: {self.message}", fg="red", err=True, file=file)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, at once."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def print_done(sentence: str, as_json: bool, **facts: Any) -> None:
    """Say what was done.

    Args:
        sentence: for people.
        as_json: for machines: `{"ok":true}` and the facts.
        facts: what machines want to know of it.
    """
    if as_json:
        print_json({"ok": True, **facts})
    else:
        click.echo(sentence)


Say = Callable[[str], None]
"""Says a sentence about what goes on."""


def narrator(as_json: bool) -> Say:
    """A function that prints sentences to stderr while a command works; for machines it prints nothing."""
    return lambda sentence: None if as_json else click.echo(sentence, err=True)


def note(sentence: str) -> None:
    """Print to stderr what should be known beside an error."""
    click.echo(f"Note: {sentence}", err=True)


def warn(sentence: str) -> None:
    """Print a warning to stderr."""
    click.secho(f"Warning: {sentence}", fg="yellow", err=True)


def confirm(question: str, loss: str, yes: bool) -> None:
    """Ask on a terminal whether to go on.

    Args:
        question: what is about to be done.
        loss: what it takes along, for where nobody can be asked.
        yes: whether --yes was given: nobody is asked.

    Raises:
        UsageError: nobody can be asked.
        Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{loss}, and nobody can be asked here: give --yes")
    click.confirm(question, abort=True, err=True)
