"""The group of the commands that work on stores."""

import click

from shardmq.cmd.store.adopt import adopt
from shardmq.cmd.store.check import check
from shardmq.cmd.store.compact import compact
from shardmq.cmd.store.repair import repair


@click.group()
def store() -> None:
    """Work on the stores in a data directory while no broker runs on it: check, repair, adopt, compact."""


for _command in (check, repair, adopt, compact):
    store.add_command(_command)
