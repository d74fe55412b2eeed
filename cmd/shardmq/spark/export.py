"""`shardmq spark export`: a queue to Parquet, by date."""

from pathlib import Path
from typing import Literal

import click

from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.errors import InvalidRequest


@click.command()
@click.option("--queue", required=True, help="Which.")
@click.option("--to", required=True, metavar="DIR", help="Where to, as Spark takes it: also s3a://… or hdfs://….")
@click.option("--drain", is_flag=True, help="Take the messages out: they are acknowledged when all is written.")
@click.option(
    "--by", type=click.Choice(("date", "hour")), default="date", show_default=True, help="Folders, by time of arrival."
)
@click.option("--append", is_flag=True, help="To what is in DIR; with --drain that is always so.")
@click.option("--max-records", type=click.IntRange(0), default=0, help="Only the first so many.  [default: all]")
@click.option("--partitions", type=click.IntRange(0), default=0, help="About so many files.  [default: Spark's]")
@URL
@spark_options
@JSON
def export(
    *,
    queue: str,
    to: str,
    drain: bool,
    by: Literal["date", "hour"],
    append: bool,
    max_records: int,
    partitions: int,
    url: str,
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
) -> None:
    """Write a queue's messages to Parquet, in folders date=YYYY-MM-DD, by when the broker took them (UTC).

    The queue stays as it is, unless --drain. One that broke off is finished by the next --drain of the same queue to
    the same DIR, and no message is written twice.
    """
    check_installed()
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import files
    from shardmq.spark.jobs import preconditions as targets
    from shardmq.spark.jobs.export import export as job

    if is_local(master_of(master)) and not (drain or append) and files.is_local(to) and Path(to).exists():
        raise InvalidRequest(f"'{to}' is there already; name another folder, or --append to it")
    targets.ready(url, queue)
    with watch("exporting", as_json) as watching, spark_for(watching, "export", master, settings, log) as spark:
        summary = job(
            spark,
            queue,
            to,
            url=url,
            drain=drain,
            by=by,
            append=append,
            max_records=max_records,
            partitions=partitions,
            say=watching.say,
        )
    if as_json:
        print_json(summary.as_table())
    else:
        print_summary(summary, f"queue '{queue}' exported to {to}")
