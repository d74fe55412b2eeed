"""`shardmq spark export`: a queue or a topic to Parquet, by date."""

from pathlib import Path
from typing import Any

import click

from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.errors import InvalidRequest


@click.command()
@click.option("--queue", help="The queue.")
@click.option("--topic", help="Or the topic, or stream: run again, the same export adds what came since.")
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
@click.option("--max-records", type=WholeNumber(0), default=0, help="Only the first so many messages.  [default: all]")
@click.option(
    "--partitions", type=WholeNumber(0), default=0, help="Write about so many files at once.  [default: Spark's]"
)
@URL
@spark_options
@JSON
def export(
    *,
    queue: str | None,
    topic: str | None,
    to: str,
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a queue's or a topic's messages to Parquet, in folders date=YYYY-MM-DD, by when they arrived (UTC).

    The queue stays as it is, unless --drain is given. The next --drain of the same queue to the same DIR finishes one
    that broke off, and no message is written twice. The same --topic to the same DIR goes on where the export before
    it ended.
    """
    if (queue is None) == (topic is None):
        raise click.UsageError("give --queue NAME or --topic NAME, one of the two")
    of_queues = [name for name in ("drain", "append", "max_records") if options[name]]
    if topic is not None and of_queues:
        raise click.UsageError(
            f"--{of_queues[0].replace('_', '-')} is for queues; a topic keeps its messages, and the "
            "next export adds what came since"
        )
    check_installed()
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import files, preconditions
    from shardmq.spark.jobs.export import export as export_queue
    from shardmq.spark.jobs.topics.export import export_topic

    may_exist = topic is not None or options["drain"] or options["append"]
    if is_local(master_of(master)) and not may_exist and files.is_local(to) and Path(to).exists():
        raise InvalidRequest(f"folder '{to}' exists; name another one, or --append to it")
    if queue is not None:
        preconditions.ready(options["url"], queue)
    else:
        preconditions.check_topic(options["url"], topic or "")
    with watch("exporting", as_json) as watching, spark_for(watching, "export", master, settings, log) as spark:
        if queue is not None:
            summary = export_queue(spark, queue, to, **options, say=watching.say)
        else:
            chosen = {name: options[name] for name in ("url", "by", "partitions")}
            summary = export_topic(spark, topic or "", to, **chosen)
    if as_json:
        print_json(summary.as_table())
    else:
        print_summary(summary, f"{'topic' if queue is None else 'queue'} '{queue or topic}' exported to {to}")
