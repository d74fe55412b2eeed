"""`shardmq dead-letters`: list, redrive; the same as the endpoints of the management process, without it."""

import contextlib
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.client.api.url import parse
from shardmq.cmd.messages.move import progress_bar
from shardmq.cmd.messages.search import CONTENT, filters_of
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import over
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, LIST, URL, all_of
from shardmq.cmd.terminal.output import print_json, warn
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, names, numbers
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import counted, duration
from shardmq.errors import AccessRefused, ShardmqError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.aio.connection import Connection
    from shardmq.management.dead_letters.redriving import Redriving
    from shardmq.search.filters import SearchFilters

SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Units of an age."""

ID_CHARACTERS_MAX: Final = 64

PIECE: Final = 100_000
"""Messages that are moved before the search goes on."""


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


def _chosen(options: dict[str, Any]) -> "SearchFilters":
    """Which dead letters the options mean."""
    from shardmq.management.dead_letters.finding import died

    death = died(options["reason"], options["source"], options["older_than"], options["newer_than"])
    return filters_of(options, death)


@click.group("dead-letters")
def dead_letters() -> None:
    """Dead letters: list them by queue and reason, redrive them to where they died."""


@dead_letters.command("list")
@click.argument("queue", default="", shell_complete=completing("queues"))
@lambda command: all_of(command, (*_DEATHS, *CONTENT))
@URL
@LIST
def dead_letters_list(*, queue: str, url: str, choice: RowChoice, as_json: bool, **options: Any) -> None:
    """Count the dead letters of QUEUE, or of all queues of the virtual host, by reason and by where they died.

    The broker searches for them, and they stay. Without QUEUE, the first 200,000 messages of each queue are searched,
    and queues are passed over where none of the first ones died.
    """
    from shardmq.management.dead_letters.counting import Groups, count_all
    from shardmq.management.dead_letters.walking import Walk

    filters = _chosen(options)

    async def of_queue(connection: "Connection") -> list[Row]:
        groups = Groups()
        following: int | None = 0
        channel = await connection.channel()
        while following is not None:
            page = await channel.deaths_search(queue, filters, following)
            groups.count(queue, page)
            following = page.next
        return groups.rows()

    async def of_all(connection: "Connection") -> list[Row]:
        walk = Walk(await connection.channel(), await _queues(connection))
        groups = await count_all(walk, filters)
        if walk.is_partial:
            warn(f"there are more messages than the {walk.looked_at:,} that were looked at; name a QUEUE")
        for missed in walk.missed:
            warn(f"queue '{missed['queue']}' was not looked at: {missed['reason']}")
        return groups.rows()

    rows = over(url, of_queue if queue else of_all)
    print_list("dead letters", rows, COLUMNS, choice, as_json, "row")


async def _queues(connection: "Connection") -> list[Row]:
    """The queues that have something ready, but for streams, which keep what was consumed."""
    rows = await connection.topology("queues")
    return [row for row in rows if row.get("ready") != 0 and row["arguments"].get("x-queue-type") != "stream"]


@dead_letters.command("redrive")
@click.argument("queue", shell_complete=completing("queues"))
@lambda command: all_of(command, (*_DEATHS, *CONTENT))
@click.option("--message-id", default="", help="Only the one with this id, the publisher's or the broker's.")
@click.option("--limit", type=WholeNumber(1), help="Redrive so many at most.  [default: all that are ready now]")
@click.option("--dry-run", is_flag=True, help="Say how many would go to which queue, and do nothing.")
@click.option(
    "--shown", "file", type=click.File(), metavar="FILE", help="Exactly those that --dry-run --json has printed there."
)
@click.option("--id", "name", default="", metavar="NAME", help="The name of a redrive that broke off, to finish it.")
@URL
@JSON
def redrive(*, queue: str, dry_run: bool, file: Any, name: str, url: str, as_json: bool, **options: Any) -> None:
    """Redrive the dead letters in QUEUE: each goes back to the queue that it died in last.

    The broker searches for them: all conditions have to hold. They go in portions that appear whole or not at all; to
    end it by Ctrl-C leaves the rest where it is. Where a redrive is killed, what was under way is out of sight, and
    goes no second time, if the same user redrives from QUEUE again within an hour. One with an --id that is finished
    does nothing under the same --id for seven days.
    """
    if len(name) > ID_CHARACTERS_MAX or not (name.isascii() and name.isprintable()):
        raise click.BadParameter(f"give at most {ID_CHARACTERS_MAX} characters of ASCII", param_hint="--id")
    shown = _shown(file, queue, dry_run)
    run = Run(queue, name, {**options, "shown": file.name if file is not None else ""}, shown, url)
    try:
        over(url, run.look if dry_run else partial(run.carry_out, as_json))
    except (ShardmqError, KeyboardInterrupt) as fault:
        is_refused = isinstance(fault, AccessRefused) and not run.redriven  # there is nothing to finish
        if not dry_run and run.is_begun and not is_refused:
            warn(f"{counted(run.redriven, 'message')} redriven so far; to finish it, nothing twice: {run.line()}")
        raise
    if as_json:
        facts = {"dry_run": dry_run, "redriven": run.redriven, "without_queue": run.homeless, "targets": run.targets}
        print_json({**facts, **({"queue": queue, "ranges": run.ranges} if dry_run else {"id": name} if name else {})})
    else:
        click.echo(run.said("Would redrive" if dry_run else "Redrove"))


def _shown(file: Any, queue: str, dry_run: bool) -> list[tuple[int, int]] | None:
    """The messages that a dry run has shown."""
    if file is None:
        return None
    if dry_run:
        raise click.UsageError("--shown is what --dry-run has printed; leave one of the two out")
    try:
        printed = json.load(file)
        ranges = [(int(first), int(end)) for first, end in printed["ranges"]]
        of_queue = printed["queue"]
    except (ValueError, KeyError, TypeError) as fault:
        raise click.BadParameter(f"{file.name} is not what --dry-run --json prints", param_hint="--shown") from fault
    if of_queue != queue:
        raise click.BadParameter(f"{file.name} has messages of queue '{of_queue}'", param_hint="--shown")
    return sorted(ranges)


class Run:
    """One redrive: found and moved piece by piece, each piece under a reservation of its own.

    Args:
        queue: with the dead letters.
        name: of the redrive; "" for none.
        options: which messages are meant, and how many at most.
        shown: the positions of exactly those; None to search.
        url: of the broker.

    Attributes:
        ranges: positions of what a dry run has found.
        redriven: messages that went, or would go.
        homeless: dead letters whose queue is gone.
        targets: what went, or would go, by queue.
        is_begun: whether messages may be reserved.
    """

    def __init__(
        self, queue: str, name: str, options: dict[str, Any], shown: list[tuple[int, int]] | None, url: str
    ) -> None:
        self.name = name
        self.ranges: list[tuple[int, int]] = []
        self.redriven = self.homeless = 0
        self.targets: dict[str, int] = {}
        self.is_begun = False
        self._queue = queue
        self._queues: set[str] = set()
        self._options = options
        self._filters = _chosen(options)
        self._shown = shown
        self._url = url
        self._was_done = False

    async def _begin(self, connection: "Connection") -> "Channel":
        self._queues = {row["name"] for row in await connection.topology("queues")} - {self._queue}
        return await connection.channel()

    async def look(self, connection: "Connection") -> None:
        """Find out what would go where."""
        from shardmq.management.dead_letters.finding import Selection

        channel = await self._begin(connection)
        ready = (await channel.queue_declare(self._queue, passive=True)).messages
        found = Selection(self._queues, self._options["limit"] or sys.maxsize, ranges_max=sys.maxsize)
        with progress_bar("searching", ready, as_json=False) as progress:
            found.on_look = lambda: progress(found.looked_at)
            await found.search(channel, self._queue, self._filters)
        self.ranges, self.redriven, self.homeless, self.targets = (
            found.ranges,
            found.count,
            found.homeless,
            found.targets,
        )

    async def carry_out(self, as_json: bool, connection: "Connection") -> None:
        """Redrive."""
        from shardmq.management.dead_letters.redriving import LEASE_MS

        channel = await self._begin(connection)
        ready = (await channel.queue_declare(self._queue, passive=True)).messages
        mark = f"redrive-{self.name}"  # holds nothing; acknowledged, it says that all is done
        with progress_bar("redriving", min(self._options["limit"] or ready, ready), as_json) as progress:
            self.is_begun = True
            if not self.name:
                await self._carry_out_unnamed(channel, progress)
                return
            if (await channel.queue_reserve(self._queue, mark, 0, LEASE_MS, [])).is_acknowledged:
                self._was_done = True
                return
            number = await self._finish(channel, progress)
            async for ranges in self._pieces(channel):
                await self._move(channel, number, ranges, progress)
                number += 1
            await channel.queue_reserve(self._queue, mark, 0, LEASE_MS, [])
            await channel.reservation_end(self._queue, mark, acknowledge=True)

    async def _carry_out_unnamed(self, channel: "Channel", progress: Callable[[int], None]) -> None:
        """Redrive under the user's own reservation, once what a killed one has left there is settled."""
        await self._redriving(channel, 0).settle()
        try:
            async for ranges in self._pieces(channel):
                await self._move(channel, 0, ranges, progress)
        except BaseException:
            with contextlib.suppress(ShardmqError):  # the next redrive does so, and what failed is told
                await self._redriving(channel, 0).settle()
            raise

    async def _finish(self, channel: "Channel", progress: Callable[[int], None]) -> int:
        """Finish the piece at which a redrive of this name broke off; returns the number of the next one."""
        number = 0
        while await self._move(channel, number, [], progress):
            number += 1
        return number

    async def _pieces(self, channel: "Channel") -> AsyncIterator[list[tuple[int, int]]]:
        """Positions of what is to go, in pieces for one reservation each."""
        from shardmq.limits import RANGES_MAX
        from shardmq.management.dead_letters.finding import Selection

        if self._shown is not None:
            for place in range(0, len(self._shown), RANGES_MAX):
                yield self._shown[place : place + RANGES_MAX]
            return
        following: int | None = 0
        limit = self._options["limit"] or sys.maxsize
        while following is not None and self.redriven < limit:
            found = Selection(self._queues, min(limit - self.redriven, PIECE), following)
            await found.search(channel, self._queue, self._filters)
            self.homeless += found.homeless
            following = found.following
            if found.ranges:
                yield found.ranges

    async def _move(
        self, channel: "Channel", number: int, ranges: list[tuple[int, int]], progress: Callable[[int], None]
    ) -> bool:
        """Move a piece; returns whether there was one."""
        before, redriving = self.redriven, self._redriving(channel, number)

        def moved() -> None:
            self.redriven = before + redriving.moved
            progress(self.redriven)

        redriving.on_move = moved
        was_open = await redriving.carry_out(ranges)
        self.homeless += redriving.homeless
        for target, messages in redriving.targets.items():
            self.targets[target] = self.targets.get(target, 0) + messages
        return not was_open or redriving.moved > 0

    def _redriving(self, channel: "Channel", number: int) -> "Redriving":
        from shardmq.management.dead_letters.redriving import Redriving

        name = f"redrive-{self.name}.{number}" if self.name else None
        return Redriving(channel, self._queue, parse(self._url).user, name, self._queues)

    def line(self) -> str:
        """The command line that goes on where this one ended."""
        options = dict(self._options)
        if options["limit"]:
            options["limit"] -= self.redriven
        words = ["--id", self.name] if self.name else []
        for name, value in options.items():
            option = f"--{name.replace('_', '-')}"
            for each in value if isinstance(value, tuple) else (value,):
                words += [option, str(each)] if each else []
        ends = ["--"] if self._queue.startswith("-") else []
        return shlex.join(["shardmq", "dead-letters", "redrive", *words, *ends, self._queue])

    def said(self, verb: str) -> str:
        """What was done, or would be."""
        if self._was_done:
            return f"Redrove nothing: redrive '{self.name}' was done before; without --id another one begins"
        lines = [f"{verb} {counted(self.redriven, 'message')} from queue '{self._queue}'"]
        lines += [f"  {messages:,} to queue '{target}'" for target, messages in sorted(self.targets.items())]
        if self.homeless:
            stay = "stays, as the queue it" if self.homeless == 1 else "stay, as the queue they"
            lines.append(f"{counted(self.homeless, 'message')} {stay} died in is gone")
        return "\n".join(lines)
