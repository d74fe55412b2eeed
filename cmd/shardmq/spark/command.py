"""The group of the commands that work with Spark."""

import click

from shardmq.cmd.spark.dead_letters import deadletters
from shardmq.cmd.spark.export import export
from shardmq.cmd.spark.publish import publish
from shardmq.cmd.spark.replay import replay


@click.group()
def spark() -> None:
    """Whole jobs with Spark: files to an exchange, queues to Parquet and back, dead letters.

    Each starts a Spark session of its own: on this machine, or with --master on a cluster, whose executors need Python
    and pyarrow, and get the rest from here.
    """


for _command in (publish, export, replay, deadletters):
    spark.add_command(_command)
