"""`shardmq spark deadletters`: dead letters counted; chosen ones published again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardmq.cmd.spark.session import check_installed, spark_options
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import narrator, print_json
from shardmq.cmd.terminal.rows import Column, names, numbers
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from shardmq.spark.jobs.dead_letters import Report


def moment(_context: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    """Read a date or time in ISO 8601, UTC unless it names another zone.

    Raises:
        BadParameter: the text is neither.
    """
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' is no time; write it as 2026-11-20 or 2026-11-20T18:30Z") from None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


@click.command()
@click.option("--queue", required=True, help="The queue with the dead letters.")
@click.option("--reason", help="Only those that died of this: rejected, expired, maxlen, delivery_limit, ack_timeout.")
@click.option("--from-queue", help="Only those that died in this queue.")
@click.option("--from-exchange", help="Only those that had been published to this exchange.")
@click.option("--since", callback=moment, metavar="TIME", help="Only those that died then or later, as 2026-11-20T18Z.")
@click.option("--until", callback=moment, metavar="TIME", help="Only those that died before.")
@click.option(
    "--republish", is_flag=True, help="Publish them to the exchange they came from, and take them off the queue."
)
@click.option("--limit", type=WholeNumber(1), help="Republish so many at most.  [default: all of them]")
@click.option("--keep", is_flag=True, help="Republish, but leave them in the queue, too.")
@click.option("--dry-run", is_flag=True, help="With --republish: show which, and do nothing.")
@click.option("--txn-id", default="", metavar="NAME", help="The name of a --republish that broke off, to finish it.")
@URL
@spark_options
@JSON
def deadletters(
    *,
    queue: str,
    master: str | None,
    settings: dict[str, str],
    log: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Count a queue's dead letters by reason, queue, exchange and hour of their latest death (the first of x-death).

    With --republish they go, all or none, to the exchange and routing keys that they had then. They keep x-death.
    """
    check_installed()
    republish, dry_run = options["republish"], options["dry_run"]
    if not republish and (options["limit"] is not None or options["keep"] or dry_run or options["txn_id"]):
        raise click.UsageError("--limit, --keep, --dry-run and --txn-id go together with --republish")
    from shardmq.cmd.spark.progress import print_summary, spark_for, watch
    from shardmq.spark.jobs import preconditions
    from shardmq.spark.jobs.dead_letters import deadletters as job

    preconditions.ready(options["url"], queue)
    doing = "republishing" if republish and not dry_run else "counting"
    with watch(doing, as_json) as watching, spark_for(watching, "deadletters", master, settings, log) as spark:
        # Beside JSON as well: nobody can finish a republishing that is killed without the name that is said here.
        report = job(spark, queue, **options, say=narrator(as_json=False) if as_json else watching.say)
    if as_json:
        print_json(report.as_table())
        return
    title = f"dead letters of queue '{queue}'"
    if republish:
        title += ", would be republished" if dry_run else ", republished"
    print_summary(report.summary, title, lambda: print_groups(report, queue))


def print_groups(report: "Report", queue: str) -> None:
    """Print the table of reasons, queues, exchanges and hours."""
    from shardmq.cmd.terminal.values import duration

    now = datetime.now(UTC)

    def age(came: datetime) -> str:
        return duration(max(0.0, (now - came).total_seconds()))

    columns = (
        *names("reason", "queue", "exchange"),
        *numbers("messages"),
        Column("hour (UTC)", is_number=True),
        Column("oldest", is_number=True, text=age),
        Column("newest", is_number=True, text=age),
    )
    rows = [
        {
            "reason": group.reason or "no x-death",
            "queue": group.queue,
            "exchange": group.exchange,
            "messages": group.count,
            "hour (UTC)": None if group.hour is None else f"{group.hour:%Y-%m-%d %H}h",
            "oldest": group.oldest.replace(microsecond=0),
            "newest": group.newest.replace(microsecond=0),
        }
        for group in report.groups
    ]
    count = counted(sum(group.count for group in report.groups), "message")
    click.echo(f"dead letters in queue '{queue}': {count}")
    Table("", columns, rows).print()
