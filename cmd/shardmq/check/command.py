"""`shardmq check`: its options, and one check a function."""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.client.api.url import parse
from shardmq.cmd.check.formats import FORMATS
from shardmq.cmd.check.result import Limits, Measure, Result, Status, judged
from shardmq.cmd.check.tls import NotTrusted, days_left
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import URL
from shardmq.cmd.terminal.output import CommandFailed
from shardmq.cmd.terminal.values import counted, size
from shardmq.errors import NotFound, ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

PROBE: Final = b"shardmq check alive"


class Pair(click.ParamType[Limits]):
    """WARNING,CRITICAL.

    Args:
        is_least: whether numbers below them are bad.
    """

    name = "pair"

    def __init__(self, is_least: bool = False) -> None:
        self._is_least = is_least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Limits:
        """The limits."""
        if isinstance(value, Limits):
            return value
        try:
            warning, critical = (float(number) for number in value.split(","))
        except ValueError:
            self.fail(f"'{value}' is no pair of numbers; write it as WARNING,CRITICAL", param, ctx)
        if not (0 <= warning < float("inf") and 0 <= critical < float("inf")):
            self.fail(f"'{value}' has a number that is negative or no number; write it as 10,100", param, ctx)
        if (warning < critical) if self._is_least else (warning > critical):
            order = "at least" if self._is_least else "at most"
            self.fail(f"'{value}': the warning has to be {order} the critical number", param, ctx)
        return Limits(warning, critical, self._is_least)


def _limits(flag: str, of: str, default: str | None = None, is_least: bool = False) -> Callable[..., Any]:
    """An option for a pair of limits."""
    when = "fewer" if is_least else "so many or more"
    help_text = f"{of}: {when} are a warning, or critical."
    return click.option(
        flag, type=Pair(is_least), default=default, show_default=True, metavar="WARNING,CRITICAL", help=help_text
    )


@click.group()
def check() -> None:
    """Checks for Nagios, Icinga, Prometheus and scripts.

    Each ends with 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 (UNKNOWN), and writes a line with the numbers it looked at.
    """


def _told(result: Result, shape: str) -> int:
    """Print a result; returns the exit code."""
    click.echo(FORMATS[shape](result))
    return int(result.status)


def _check(name: str) -> Callable[[Callable[..., Result]], click.Command]:
    """Make a function of an open connection a check."""

    def register(function: Callable[..., Result]) -> click.Command:
        @functools.wraps(function)
        def run(*, url: str, shape: str, as_json: bool, **options: Any) -> int:
            try:
                began = time.monotonic()
                if name == "certificate":
                    return _told(function(url, **options), "json" if as_json else shape)
                with connected(url) as connection:
                    more: dict[str, Any] = {"vhost": parse(url).vhost}
                    if name in ("alive", "findings"):
                        more = {"began": began} if name == "alive" else {"url": url}
                    result = function(connection, **more, **options)
            except ShardmqError as fault:
                status = Status.CRITICAL if name == "alive" or isinstance(fault, NotFound) else Status.UNKNOWN
                result = Result(name, status, str(fault))
            except CommandFailed as fault:
                result = Result(name, Status.UNKNOWN, fault.message)
            return _told(result, "json" if as_json else shape)

        shaped = click.option(
            "--format",
            "shape",
            type=click.Choice(list(FORMATS)),
            default="nagios",
            show_default=True,
            help="How the result is written.",
        )(click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(run))
        return check.command(name)(URL(shaped))

    return register


@_check("alive")
@_limits("--seconds", "Seconds that it takes", "1,5")
def alive(connection: "Connection", began: float, seconds: Limits) -> Result:
    """Log in, publish a message through a queue of its own, and get it back."""
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).queue
    channel.basic_publish("", queue, PROBE)
    message = channel.basic_get(queue, auto_ack=True)
    took = time.monotonic() - began
    if message is None or message.body != PROBE:
        return Result("alive", Status.CRITICAL, "a message that was published did not come back")
    return judged("alive", f"a message came back {took:.2f} s after the login", Measure("took", took, seconds, "s"))


@_check("alarms")
def alarms(connection: "Connection", vhost: str) -> Result:
    """Whether memory or disk alarms block publishers. Needs the tag monitoring or administrator."""
    del vhost
    found = _of_processes(connection)["alarms"]
    text = "; ".join(found) or "no alarm is on"
    return judged("alarms", text, Measure("alarms", len(found), Limits(1, 1)))


@_check("queue")
@click.argument("name", shell_complete=completing("queues"))
@_limits("--ready", "Ready messages")
@_limits("--unacked", "Unacked messages")
@_limits("--consumers", "Consumers", is_least=True)
def queue(
    connection: "Connection",
    vhost: str,
    name: str,
    ready: Limits | None,
    unacked: Limits | None,
    consumers: Limits | None,
) -> Result:
    """Whether queue NAME is there and in service, its messages, and its consumers."""
    row = connection.stats_get("queues", vhost, name)
    limits = {"ready": ready, "unacked": unacked, "consumers": consumers}
    if row.get("state") != "running":
        return Result("queue", Status.CRITICAL, f"queue '{name}' is {row.get('state')}")
    text = (
        f"queue '{name}': {row['ready']:,} ready, {row['unacked']:,} unacked, {counted(row['consumers'], 'consumer')}"
    )
    return judged("queue", text, *(Measure(of, row[of], limit) for of, limit in limits.items()))


@_check("consumers")
@click.argument("queue", shell_complete=completing("queues"))
@_limits("--least", "Consumers", "1,1", is_least=True)
def consumers(connection: "Connection", vhost: str, queue: str, least: Limits) -> Result:
    """Whether QUEUE has consumers enough."""
    number = connection.stats_get("queues", vhost, queue)["consumers"]
    if number is None:
        text = f"queue '{queue}' is away, and nobody knows how many consumers it has; see `shardmq check shards`"
        return Result("consumers", Status.UNKNOWN, text)
    text = f"queue '{queue}' has {counted(number, 'consumer')}"
    return judged("consumers", text, Measure("consumers", number, least))


@_check("dead-letters")
@click.argument("queues", nargs=-1, required=True, metavar="QUEUE…", shell_complete=completing("queues"))
@_limits("--messages", "Messages in all of them", "1,1000")
def dead_letters(connection: "Connection", vhost: str, queues: tuple[str, ...], messages: Limits) -> Result:
    """Whether messages lie in the QUEUEs that dead letters are sent to."""
    rows = {name: connection.stats_get("queues", vhost, name) for name in dict.fromkeys(queues)}
    held = {name: row["messages"] for name, row in rows.items() if row["state"] == "running"}
    said = [f"'{name}' {number:,}" for name, number in held.items() if number]
    said += [f"queue '{name}' is {row['state']}" for name, row in rows.items() if name not in held]
    found = judged(
        "dead-letters", ", ".join(said) or "no dead letters", Measure("messages", sum(held.values()), messages)
    )
    if len(held) < len(rows) and found.status is not Status.CRITICAL:  # more of them make it no better
        return replace(found, status=Status.UNKNOWN)
    return found


@_check("disk")
@_limits("--free-gb", "Gigabytes that are free for the fullest shard", "5,1", is_least=True)
def disk(connection: "Connection", vhost: str, free_gb: Limits) -> Result:
    """How much the disks of the shards have left. Needs the tag monitoring or administrator."""
    del vhost
    rows = [row for row in _of_processes(connection)["processes"] if "disk_free_bytes" in row]
    if not rows:
        return Result("disk", Status.UNKNOWN, "no shard says how much its disk has left; see `shardmq check shards`")
    fullest = min(rows, key=lambda row: int(row["disk_free_bytes"]))
    free = fullest["disk_free_bytes"]
    limits = Limits(free_gb.warning * 10**9, free_gb.critical * 10**9, is_least=True)
    return judged("disk", f"{fullest['process']} has {size(free)} free", Measure("disk_free", free, limits, "B"))


@_check("certificate")
@_limits("--days", "Days until it expires", "30,7", is_least=True)
def certificate(url: str, days: Limits) -> Result:
    """How long the certificate of the URL's port is good for, and whether clients trust it."""
    try:
        left = days_left(url)
    except NotTrusted as fault:
        return Result("certificate", Status.CRITICAL, str(fault))
    return judged("certificate", f"the certificate expires in {left:,.1f} days", Measure("days", round(left, 2), days))


@_check("shards")
def shards(connection: "Connection", vhost: str) -> Result:
    """Whether the gateway that answers reaches all shards."""
    del vhost
    away = connection.stats_overview()["away"]
    text = f"away: {', '.join(away)}" if away else "all shards are reached"
    return judged("shards", text, Measure("away", len(away), Limits(1, 1)))


@_check("group")
@click.argument("topic", shell_complete=completing("topics"))
@click.argument("name", shell_complete=completing("groups"))
@_limits("--lag", "Messages before the group", "1000,100000")
@_limits("--members", "Consumers of the group", is_least=True)
def group(connection: "Connection", vhost: str, topic: str, name: str, lag: Limits, members: Limits | None) -> Result:
    """How far group NAME of TOPIC is behind, and how many consume in it."""
    wanted = (vhost, topic, name)
    found = [row for row in connection.topology("groups") if (row["vhost"], row["topic"], row["group"]) == wanted]
    if not found:
        text = f"no group '{name}' has read topic '{topic}' in vhost '{vhost}', or the topic is out of service"
        return Result("group", Status.CRITICAL, f"{text}; see `shardmq status`")
    (row,) = found
    text = f"group '{name}' of topic '{topic}': lag {row['lag']:,}, {counted(row['consumers'], 'consumer')}"
    measures = [Measure("lag", row["lag"], lag), Measure("members", row["consumers"], members)]
    if unknown := row.get("unknown"):  # gateways of earlier versions have no such field
        text += f", without partition {', '.join(map(str, unknown))}: out of service, or its shard does not answer"
        measures.append(Measure("unknown_partitions", len(unknown), Limits(1, row["partitions"])))
    return judged("group", text, *measures)


@_check("findings")
@click.option(
    "--after",
    type=WholeNumber(0, 10**6),
    metavar="SECONDS",
    help="How long something has to have lasted.  [default: what each rule says]",
)
def findings(connection: "Connection", url: str, after: int | None) -> Result:
    """What is wrong, by all rules, of what the user may see: errors are critical, the others are warnings."""
    from shardmq.cmd.check.findings import findings_result

    return findings_result(connection, url, after)


def _of_processes(connection: "Connection") -> dict[str, Any]:
    """The overview of a user who sees the processes."""
    overview = connection.stats_overview(is_detailed=True)
    if "alarms" not in overview:
        raise CommandFailed("this user does not see the processes; give it the tag 'monitoring' (`shardmq user tags`)")
    return overview
