"""`shardmq spark export`: a queue to Parquet, by date."""

from pathlib import Path
from typing import Any

import click

from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.errors import InvalidRequest


@click.command()
@click.option("--queue", required=True, help="The queue.")
@click.option("--to", required=True, metavar="DIR", help="The folder, as Spark takes it: also s3a://… or hdfs://….")
@click.option("--drain", is_flag=True, help="Take the messages out: they are acknowledged when all is written.")
@click.option(
    "--by",
    type=click.Choice(("date", "hour")),
    default="date",
    show_default=True,
    help="What a folder holds: a day, or an hour of arrivals.",
)
@click.option("--append", is_flag=True, help="Add to what is in DIR; with --drain that is always so.")
@click.option(
    "--max-records", type=click.IntRange(0), default=0, help="Only the first so many messages.  [default: all]"
)
@click.option(
    "--partitions", type=click.IntRange(0), default=0, help="Write about so many files at once.  [default: Spark's]"
)
@URL
@spark_options
@JSON
def export(
    *,
    queue: str,
    to: str,
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a queue's messages to Parquet, in folders date=YYYY-MM-DD, by when the broker took them (UTC).

    The queue stays as it is, unless --drain is given. The next --drain of the same queue to the same DIR finishes one
    that broke off, and no message is written twice.
    """
    check_installed()
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import files, preconditions
    from shardmq.spark.jobs.export import export as job

    may_exist = options["drain"] or options["append"]
    if is_local(master_of(master)) and not may_exist and files.is_local(to) and Path(to).exists():
        raise InvalidRequest(f"folder '{to}' exists; name another one, or --append to it")
    preconditions.ready(options["url"], queue)
    with watch("exporting", as_json) as watching, spark_for(watching, "export", master, settings, log) as spark:
        summary = job(spark, queue, to, **options, say=watching.say)
    if as_json:
        print_json(summary.as_table())
    else:
        print_summary(summary, f"queue '{queue}' exported to {to}")
