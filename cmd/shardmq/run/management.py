"""`shardmq management`: RabbitMQ's HTTP API alone, for a broker on this host or another."""

from typing import Final

import click

from shardmq.cmd.terminal.options import URL
from shardmq.cmd.terminal.process_options import ManagementChoice, log_options, management_options
from shardmq.runtime import notify
from shardmq.runtime.logs import LogOptions

NAME: Final = "management"


@click.command(short_help="Serve RabbitMQ's HTTP API for a broker.")
@URL
@management_options
@log_options
def management(*, url: str, management: ManagementChoice, log: LogOptions) -> None:
    """Serve RabbitMQ's HTTP API for a broker. `shardmq up` does so by itself.

    Callers log in by their own users and passwords, which the broker checks.
    """
    if management.port is None:
        raise click.UsageError("--management-port is off, so there is nothing to serve; give a port")
    log.begin(NAME)
    notify.die_with_parent()
    from shardmq.management.process import ManagementOptions, run
    from shardmq.runtime.tls import TlsOptions

    tls = None
    if management.certificate is not None and management.key is not None:
        tls = TlsOptions(management.port, management.certificate, management.key)
    metrics = None if management.metrics_port is None else (management.metrics_host, management.metrics_port)
    run(ManagementOptions(url, management.host, management.port, tls, metrics))
