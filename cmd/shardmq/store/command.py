"""The group of the commands that work on stores."""

import click

from shardmq.cmd.store.compact import compact


@click.group()
def store() -> None:
    """Work on the stores in a data directory while no broker runs on it."""


for _command in (compact,):
    store.add_command(_command)
