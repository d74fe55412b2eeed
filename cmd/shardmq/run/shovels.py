"""`shardmq shovels`: the process that runs the shovels of a broker on this host or another."""

from typing import Final

import click

from shardmq.cmd.terminal.options import URL
from shardmq.cmd.terminal.process_options import log_options
from shardmq.runtime import notify
from shardmq.runtime.logs import LogOptions

NAME: Final = "shovels"


@click.command(short_help="Run the shovels of a broker.")
@URL
@log_options
def shovels(*, url: str, log: LogOptions) -> None:
    """Run the shovels of a broker. `shardmq up` does so by itself, while there are any.

    The URL's user is an administrator; by their rights shovels work at their ends that are at this broker.
    """
    log.begin(NAME)
    notify.die_with_parent()
    from shardmq.shovels.process import ShovelsOptions, run

    run(ShovelsOptions(url))
