"""`shardmq dead-letters`: list, redrive; the same as the endpoints of the management process, without it."""

import asyncio
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from shardmq.client.api.url import parse
from shardmq.cmd.messages.move import progress_bar
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import ANSWER_SECONDS
from shardmq.cmd.terminal.options import JSON, LIST, URL, all_of
from shardmq.cmd.terminal.output import print_json, warn
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import counted, duration
from shardmq.errors import AccessRefused, ShardmqError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.aio.connection import Connection
    from shardmq.management.dead_letters.chosen import Chosen
    from shardmq.management.dead_letters.redriving import Redrive

Done = TypeVar("Done")

SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Units of an age."""

ID_CHARACTERS_MAX: Final = 64


def _age(when: int | None) -> int | None:
    return None if when is None else max(0, round(time.time()) - when)


COLUMNS: Final = (
    *names("queue", "reason", "source"),
    *numbers("messages"),
    Column("oldest", lambda row: _age(row["oldest"]), is_number=True, text=duration),
    Column("newest", lambda row: _age(row["newest"]), is_number=True, text=duration),
)


class Age(click.ParamType[int]):
    """How long ago, as 90, 90s, 10m, 1h or 7d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """The number of seconds."""
        number = value.rstrip("smhd")
        if not (number.isascii() and number.isdecimal() and len(number) <= 9 and value[len(number) :] in SECONDS):
            raise click.BadParameter(f"'{value}' is no age; write it as 90s, 10m, 1h or 7d")
        return int(number) * SECONDS[value[len(number) :]]


_DEATHS: Final = (
    click.option("--reason", default="", help="Only those that died of this, as rejected, expired or maxlen."),
    click.option("--source", default="", metavar="QUEUE", help="Only those that died in this queue last."),
    click.option("--older-than", type=Age(), help="Only those that died so long ago or longer, as 10m, 1h or 7d."),
    click.option("--newer-than", type=Age(), help="Only those that died since."),
)


def _chosen(options: dict[str, Any]) -> "Chosen":
    """Which dead letters the options mean."""
    from shardmq.management.dead_letters.chosen import Ages, Chosen, Wanted

    content = Wanted(*(options.get(name, "") for name in ("key", "header", "text")))
    return Chosen(content, options["reason"], options["source"], Ages(options["older_than"], options["newer_than"]))


def _over(url: str, work: "Callable[[Connection], Coroutine[Any, Any, Done]]") -> Done:
    """Do something over a connection of its own."""
    from shardmq.client.aio.connection import connect

    async def over() -> Done:
        async with connect(url, timeout=ANSWER_SECONDS, recovery=None) as connection:
            return await work(connection)

    return asyncio.run(over())


@click.group("dead-letters")
def dead_letters() -> None:
    """Dead letters: list them by queue and reason, redrive them to where they died."""


@dead_letters.command("list")
@click.argument("queue", default="", shell_complete=completing("queues"))
@lambda command: all_of(command, _DEATHS)
@URL
@LIST
def dead_letters_list(*, queue: str, url: str, choice: RowChoice, as_json: bool, **options: Any) -> None:
    """Count the dead letters of QUEUE, or of all queues of the virtual host, by reason and by where they died.

    They are looked at where they are, and stay. Without QUEUE, the first 20,000 messages of each queue are looked at,
    and the first 200 where none of these died.
    """
    from shardmq.management.dead_letters.counting import Groups, count_all
    from shardmq.management.dead_letters.walking import Walk, portions

    chosen = _chosen(options)

    async def of_queue(connection: "Connection") -> list[Row]:
        groups = Groups(chosen)
        async for messages in portions(await connection.channel(), queue, looked_at_max=0):
            groups.count(queue, messages)
        return groups.rows()

    async def of_all(connection: "Connection") -> list[Row]:
        walk = Walk(await connection.channel(), await _queues(connection))
        groups = await count_all(walk, chosen)
        if walk.is_partial:
            warn(f"there are more messages than the {walk.looked_at:,} that were looked at; name a QUEUE")
        for missed in walk.missed:
            warn(f"queue '{missed['queue']}' was not looked at: {missed['reason']}")
        return groups.rows()

    rows = _over(url, of_queue if queue else of_all)
    print_list("dead letters", rows, COLUMNS, choice, as_json, "row")


async def _queues(connection: "Connection") -> list[Row]:
    """The queues that have something ready, but for streams, which keep what was consumed."""
    rows = await connection.topology("queues")
    return [row for row in rows if row.get("ready") != 0 and row["arguments"].get("x-queue-type") != "stream"]


@dead_letters.command("redrive")
@click.argument("queue", shell_complete=completing("queues"))
@lambda command: all_of(command, _DEATHS)
@click.option("--key", default="", metavar="TEXT", help="Only those with this in their routing key.")
@click.option("--header", default="", metavar="TEXT", help="Only those with this in a header, or NAME=VALUE of one.")
@click.option("--text", default="", help="Only those with this in their body.")
@click.option("--limit", type=click.IntRange(1), help="Redrive so many at most.  [default: all that are ready now]")
@click.option("--dry-run", is_flag=True, help="Say how many would go to which queue, and do nothing.")
@click.option("--id", "name", default="", metavar="NAME", help="The name of a redrive that broke off, to finish it.")
@URL
@JSON
def redrive(*, queue: str, dry_run: bool, name: str, url: str, as_json: bool, **options: Any) -> None:
    """Redrive the dead letters in QUEUE: each goes back to the queue that it died in last.

    They go in portions that appear whole or not at all. A redrive that breaks off loses nothing, and says how it is
    finished so that nothing goes twice. One that is finished does nothing under the same --id for an hour.
    """
    if len(name) > ID_CHARACTERS_MAX or not (name.isascii() and name.isprintable()):
        raise click.BadParameter(f"give at most {ID_CHARACTERS_MAX} characters of ASCII", param_hint="--id")
    run = _Run(queue, name or uuid.uuid4().hex[:16], options, url)
    try:
        _over(url, run.look if dry_run else partial(run.carry_out, as_json))
    except (ShardmqError, KeyboardInterrupt) as fault:
        is_refused = isinstance(fault, AccessRefused) and not run.redriven  # there is nothing to finish
        if not dry_run and run.is_begun and not is_refused:
            warn(f"{counted(run.redriven, 'message')} redriven so far; to finish it, nothing twice: {run.line()}")
        raise
    if as_json:
        facts = {"dry_run": dry_run, "redriven": run.work.count, "without_queue": run.work.homeless}
        print_json({**facts, "targets": run.work.targets, "id": run.name})
    else:
        click.echo(run.said("Would redrive" if dry_run else "Redrove"))


class _Run:
    """One redrive.

    Args:
        queue: with the dead letters.
        name: of the redrive.
        options: which messages are meant, and how many at most.
        url: of the broker.

    Attributes:
        work: what is to be done; there once it was begun.
        redriven: messages that went.
        is_begun: whether messages may be reserved.
    """

    def __init__(self, queue: str, name: str, options: dict[str, Any], url: str) -> None:
        self.name = name
        self.work: Redrive
        self.redriven = 0
        self.is_begun = False
        self._queue = queue
        self._options = options
        self._url = url
        self._was_done = False

    async def _begin(self, connection: "Connection") -> "Channel":
        from shardmq.management.dead_letters.redriving import Redrive

        queues = {row["name"] for row in await connection.topology("queues")} - {self._queue}
        self.work = Redrive(_chosen(self._options), queues, self._options["limit"] or sys.maxsize)
        return await connection.channel()

    async def look(self, connection: "Connection") -> None:
        """Find out what would go where."""
        from shardmq.management.dead_letters.walking import portions

        channel = await self._begin(connection)
        async for messages in portions(channel, self._queue, looked_at_max=0):
            self.work.choose(messages)

    async def carry_out(self, as_json: bool, connection: "Connection") -> None:
        """Redrive."""
        from shardmq.management.dead_letters.redriving import Redriving

        channel = await self._begin(connection)
        ready = (await channel.queue_declare(self._queue, passive=True)).messages
        redriving = Redriving(channel, self._queue, parse(self._url).user, f"redrive-{self.name}", 0)
        with progress_bar("redriving", min(self._options["limit"] or ready, ready), as_json) as progress:

            def moved() -> None:
                self.redriven = redriving.moved
                progress(redriving.moved)

            redriving.on_move = moved
            self.is_begun = True
            self._was_done = not await redriving.carry_out(self.work)

    def line(self) -> str:
        """The command line that goes on where this one ended."""
        options = dict(self._options)
        if options["limit"]:
            options["limit"] -= self.redriven
        given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value]
        words = [word for pair in [*given, ("--id", self.name)] for word in pair]
        ends = ["--"] if self._queue.startswith("-") else []
        return shlex.join(["shardmq", "dead-letters", "redrive", *words, *ends, self._queue])

    def said(self, verb: str) -> str:
        """What was done, or would be."""
        if self._was_done:
            return f"Redrove nothing: redrive '{self.name}' was done before; without --id another one begins"
        lines = [f"{verb} {counted(self.work.count, 'message')} from queue '{self._queue}'"]
        lines += [f"  {messages:,} to queue '{target}'" for target, messages in sorted(self.work.targets.items())]
        if self.work.homeless:
            stay = "stays, as the queue it" if self.work.homeless == 1 else "stay, as the queue they"
            lines.append(f"{counted(self.work.homeless, 'message')} {stay} died in is gone")
        return "\n".join(lines)
