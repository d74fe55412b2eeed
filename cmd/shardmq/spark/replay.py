"""`shardmq spark replay`: Parquet, as exported, or messages of a topic, back to exchanges."""

from pathlib import Path
from typing import Any, Final

import click

from shardmq.cmd.spark.dead_letters import moment
from shardmq.cmd.spark.session import check_installed, is_local, master_of, spark_options
from shardmq.cmd.terminal.numbers import Number
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import print_json

OF_TOPICS: Final = ("since", "until", "starting_offsets", "ending_offsets")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATHS…]")
@click.option("--topic", help="Messages of a topic or stream, in place of files.")
@click.option("--since", callback=moment, metavar="TIME", help="Of a topic: what came then or later, as 2026-11-20.")
@click.option("--until", callback=moment, metavar="TIME", help="Of a topic: what came before.")
@click.option("--starting-offsets", metavar="JSON", help='Of a topic: {"orders": {"0": 23}}.  [default: earliest]')
@click.option("--ending-offsets", metavar="JSON", help="Of a topic, likewise.  [default: latest]")
@click.option("--exchange", help="The exchange for all messages; routing keys are kept.")
@click.option("--keep-exchange", is_flag=True, help="Each message to the exchange it was published to.")
@click.option(
    "--rate",
    type=Number(0, min_open=True),
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
    topic: str | None,
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish what `export` has written, or a topic's messages, again: keys, ids and properties as they were.

    It goes in chunks, each a transaction "NAME/number". Run again, also after a crash, it goes on where it was: what is
    published is not published twice. The broker remembers that for seven days.
    """
    if bool(paths) == (topic is not None):
        raise click.UsageError("give PATHS of files or --topic NAME, one of the two")
    of_topics = {name: value for name in OF_TOPICS if (value := options.pop(name)) is not None}
    if paths and of_topics:
        raise click.UsageError(f"--{next(iter(of_topics)).replace('_', '-')} is for --topic; files are replayed whole")
    check_installed()
    exchange = options["exchange"]
    if (exchange is None) != options["keep_exchange"]:
        raise click.UsageError("give --exchange NAME or --keep-exchange, one of the two")
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import files, preconditions
    from shardmq.spark.jobs.replay import replay as replay_files
    from shardmq.spark.jobs.topics.replay import replay_topic

    if paths and is_local(master_of(master)):
        files.check_there(paths)
    preconditions.check_exchange(options["url"], exchange)
    if topic is not None:
        preconditions.check_topic(options["url"], topic)
    with watch("replaying", as_json) as watching, spark_for(watching, "replay", master, settings, log) as spark:
        told: dict[str, Any] = {"say": watching.say, "progress": watching.progress}
        if topic is None:
            summary = replay_files(spark, paths, **options, **told)
        else:
            summary = replay_topic(spark, topic, **options, **of_topics, **told)
    if as_json:
        print_json(summary.as_table())
    else:
        print_summary(summary, "replayed" if exchange is None else f"replayed to exchange '{exchange}'")
