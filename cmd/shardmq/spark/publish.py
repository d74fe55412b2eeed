"""`shardmq spark publish`: CSV, JSON or Parquet files to an exchange."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL, named_texts
from shardmq.cmd.terminal.output import print_json


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS…")
@click.option("--exchange", required=True, help='Where to; "" with a queue\'s name as --routing-key is that queue.')
@click.option(
    "--format",
    type=click.Choice(("csv", "tsv", "json", "parquet")),
    help="Of the files; JSON has a line for each row.  [default: by their names]",
)
@click.option(
    "--read-option",
    "read_options",
    callback=named_texts,
    multiple=True,
    metavar="NAME=VALUE",
    help="One of Spark's for reading the files, as inferSchema=true, sep=; or header=false; multiLine=true where texts "
    "have line breaks, or a JSON file is one array.",
)
@click.option("--key", metavar="COLUMN|TEMPLATE", help="Routing key: a column, or as '{carrier}.{origin}'.")
@click.option("--routing-key", help="The same routing key for all rows.")
@click.option("--value", metavar="COLUMN", help="The body.  [default: the whole row as a JSON object]")
@click.option(
    "--header",
    "headers",
    callback=named_texts,
    multiple=True,
    metavar="NAME=TEMPLATE",
    help="A header, as origin={origin} or source=nightly.",
)
@click.option("--message-id", metavar="COLUMN|TEMPLATE", help="Message id.  [default: the broker gives one]")
@click.option(
    "--property",
    "properties",
    callback=named_texts,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of all messages, as content_type=text/csv, priority=3 or delivery_mode=1.",
)
@click.option("--partitions", type=WholeNumber(1), help="Publish with so many.  [default: as the files lie]")
@click.option(
    "--txn-id", default="", metavar="NAME", help="Of the transaction: run again under it, nothing is published twice."
)
@click.option(
    "--delivery",
    type=click.Choice(("exactly-once", "at-least-once")),
    default="exactly-once",
    show_default=True,
    help="at-least-once is visible at once, and again with each retry of a task.",
)
@click.option(
    "--mandatory/--optional", default=True, show_default=True, help="Whether a row that no queue takes fails the job."
)
@URL
@spark_options
@JSON
def publish(
    *,
    paths: tuple[str, ...],
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish the rows of files to an exchange, every partition in parallel, all of them or none.

    PATHS are files, folders or patterns: .csv (with a line of names), .tsv, .json, .jsonl, .parquet, also compressed.
    """
    check_installed()
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs.publish import publish as job

    exchange = options["exchange"]
    check(paths, is_local(master_of(master)), options)
    with watch("publishing", as_json) as watching, spark_for(watching, "publish", master, settings, log) as spark:
        summary = job(spark, paths, **options, say=watching.say)
    if as_json:
        print_json(summary.as_table())
    else:
        target = f"exchange '{exchange}'" if exchange else "the default exchange"
        print_summary(summary, f"published to {target}")


def check(paths: tuple[str, ...], is_local: bool, options: Mapping[str, Any]) -> None:
    """Refuse what can be seen to be wrong before Spark starts, which takes seconds.

    Args:
        paths: what to publish.
        is_local: whether Spark has this machine's files.
        options: of the job.

    Raises:
        UsageError: options contradict one another.
        InvalidRequest: a file does not exist, its format is unknown, or a template is malformed.
        NotFound: the exchange does not exist.
    """
    from shardmq.spark.jobs import files, preconditions, templates

    if options["key"] is not None and options["routing_key"] is not None:
        raise click.UsageError("--key and --routing-key both say how rows are routed; give one of them")
    if is_local:
        files.check_there(paths)
    if options["format"] is None:
        files.format_of(paths)
    for template in (options["key"], options["message_id"], *options["headers"].values()):
        templates.parse(template or "")
    preconditions.check_exchange(options["url"], options["exchange"])
