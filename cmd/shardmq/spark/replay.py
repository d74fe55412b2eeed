"""`shardmq spark replay`: Parquet, as exported, back to exchanges."""

from pathlib import Path
from typing import Any

import click

from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS…")
@click.option("--exchange", help="The exchange for all messages; routing keys are kept.")
@click.option("--keep-exchange", is_flag=True, help="Each message to the exchange it was published to.")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="ROWS/S",
    help="Rows a second at most.  [default: no limit]",
)
@click.option(
    "--txn-id", default="", metavar="NAME", help="The replay's name.  [default: made of the files and the target]"
)
@click.option(
    "--mandatory/--optional", default=True, show_default=True, help="Whether a row that no queue takes fails its chunk."
)
@URL
@spark_options
@JSON
def replay(
    *,
    paths: tuple[str, ...],
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish what `export` has written again, with routing keys, ids, properties and headers as they were.

    It goes in chunks, each a transaction "NAME/number". Run again, also after a crash, it goes on where it was: what is
    published is not published twice. The broker remembers that for seven days.
    """
    check_installed()
    exchange = options["exchange"]
    if (exchange is None) != options["keep_exchange"]:
        raise click.UsageError("give --exchange NAME or --keep-exchange, one of the two")
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import files, preconditions
    from shardmq.spark.jobs.replay import replay as job

    if is_local(master_of(master)):
        files.check_there(paths)
    preconditions.check_exchange(options["url"], exchange)
    with watch("replaying", as_json) as watching, spark_for(watching, "replay", master, settings, log) as spark:
        summary = job(spark, paths, **options, say=watching.say, progress=watching.progress)
    if as_json:
        print_json(summary.as_table())
    else:
        print_summary(summary, "replayed" if exchange is None else f"replayed to exchange '{exchange}'")
