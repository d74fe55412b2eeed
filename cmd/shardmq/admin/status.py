"""`shardmq status`: the processes, queues and stores of a broker, with rates from two looks."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.terminal.connection import JSON, URL, connected, counted, new_table, print_json
from shardmq.cmd.terminal.values import duration, size
from shardmq.topology.entities import DEFAULT_VHOST

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from shardmq.client.sync.connection import Connection

RATES: Final = {"published": "publish_rate", "delivered": "deliver_rate", "acked": "ack_rate"}
"""A shard's running totals, and the rates that two looks at them give."""

HELD: Final = {
    "gateway": ("connection", "consumer"),
    "coordinator": ("exchange", "queue", "binding"),
    "shard": (),
}
"""What processes of each role hold; their tables name it in the plural."""

Status = dict[str, Any]


@click.command(short_help="Show processes, queues and stores.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between the two looks that rates come from.",
)
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@URL
@JSON
def status(*, interval: float, watch: bool, url: str, as_json: bool) -> None:
    """Show processes, queues (ready, unacked, consumers, rates, bytes) and stores.

    Users without the tag monitoring or administrator see the queues of their virtual hosts, and what they hold.
    """
    with connected(url) as connection:
        looks = Looks(connection, interval)
        if as_json:
            print_json(looks.next())
            while watch:
                print_json(looks.next())
            return
        from rich.console import Console
        from rich.live import Live

        if not watch:
            Console().print(tables(looks.next()))
            return
        with Live(tables(looks.next()), auto_refresh=False, screen=True) as live:
            while True:
                live.update(tables(looks.next()), refresh=True)


class Looks:
    """Looks at a broker, each with the rates since the one before."""

    def __init__(self, connection: "Connection", interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._last = self._look()

    def _look(self) -> tuple[float, Status]:
        return time.monotonic(), self._connection.status()

    def next(self) -> Status:
        """The state one interval later, with rates and CPU shares."""
        before_at, before = self._last
        time.sleep(max(0.0, before_at + self._interval - time.monotonic()))
        self._last = now_at, now = self._look()
        return with_rates(before, now, now_at - before_at)


def with_rates(before: Status, now: Status, seconds: float) -> Status:
    """The later of two looks, with `…_rate` (per second) in its queues and `cpu_percent` in its processes.

    A process that was restarted between the looks counts from zero; so does a queue that is new.
    """
    queues = {queue["id"]: queue for queue in before["queues"]}
    processes = {process["pid"]: process for process in before["processes"]}

    def risen(total: str, row: dict[str, Any], old: dict[str, Any]) -> float:
        gain = float(row[total] - old.get(total, 0))
        return (gain if gain >= 0 else float(row[total])) / seconds

    return {
        **now,
        "processes": [
            {**row, "cpu_percent": round(100 * risen("cpu_seconds", row, processes[row["pid"]]), 1)}
            if row["pid"] in processes
            else {**row, "cpu_percent": None}
            for row in now["processes"]
        ],
        "queues": [
            {**row, **{rate: round(risen(total, row, queues.get(row["id"], row)), 1) for total, rate in RATES.items()}}
            for row in now["queues"]
        ],
    }


def tables(state: Status) -> "Group":
    """What people see."""
    from rich.console import Group
    from rich.text import Text

    alarms = [
        Text(f"publishers wait: {alarm}", style="red") for row in state["processes"] for alarm in row.get("alarms", [])
    ]
    alarms += [Text(found["text"], style="red") for row in state["processes"] for found in row.get("damaged", [])]
    staged = [Text(sentence) for sentence in transactions(state["processes"])]
    refused = [Text(sentence, style="yellow") for sentence in logins(state["processes"])]
    head = Text(own(state["own"])) if "own" in state else process_table(state["processes"])
    return Group(head, *alarms, *refused, *staged, queue_table(state["queues"]))


def own(held: dict[str, int]) -> str:
    """What a user holds who does not see the processes."""
    words = [counted(number, noun.removesuffix("s")) for noun, number in held.items()]
    return f"this user has {words[0]}, {words[1]} and {words[2]}; processes are shown to the tag 'monitoring'"


def logins(processes: list[dict[str, Any]]) -> list[str]:
    """What is to be said of logins: nothing where none were refused and none wait."""
    refused, delayed, waiting = (
        sum(process.get(f"logins_{what}", 0) for process in processes) for what in ("refused", "delayed", "waiting")
    )
    if not refused and not waiting:
        return []
    return [
        f"refused since the gateways began: {counted(refused, 'login')}, {delayed:,} of them late; "
        f"waiting now: {waiting:,}"
    ]


def transactions(processes: list[dict[str, Any]]) -> list[str]:
    """What is to be said of transactions: nothing where there are none."""
    staged = [row for process in processes for row in process.get("staged", ())]
    undecided = sum(process.get("transactions", 0) for process in processes)
    concluding = sum(process.get("concluding", 0) for process in processes)
    said = []
    if undecided or staged:
        messages, count = (sum(row[name] for row in staged) for name in ("messages", "bytes"))
        said.append(
            f"staged: {counted(messages, 'message')}, {size(count)}; undecided: {counted(undecided, 'transaction')} "
            "(`shardmq transaction list`)"
        )
    if concluding:
        said.append(f"decided, and not yet so on every shard: {counted(concluding, 'transaction')}")
    return said


def process_table(processes: list[dict[str, Any]]) -> "Table":
    """A line for each process; stores are the shards', what the others hold stands below."""
    held: dict[str, int] = {}
    for row in processes:
        for noun in HELD[row["role"]]:
            held[noun] = held.get(noun, 0) + row[f"{noun}s"]
    caption = ", ".join(counted(number, noun) for noun, number in held.items())
    table = new_table("processes", ("",), ("pid", "up", "cpu", "memory", "store", "in use"), caption)
    for row in processes:
        store = row.get("store")
        share = row["cpu_percent"]
        table.add_row(
            row["process"],
            str(row["pid"]),
            duration(row["uptime_seconds"]),
            "-" if share is None else f"{share:.1f} %",
            size(row["rss_bytes"]),
            size(store["file_bytes"]) if store else "",
            size(store["used_bytes"]) if store else "",
        )
    return table


def queue_table(queues: list[dict[str, Any]]) -> "Table":
    """A line for each queue, with its virtual host where that is not the default."""
    from rich.markup import escape

    columns = ("ready", "unacked", "consumers", "in/s", "out/s", "ack/s", "bytes")
    table = new_table("queues", ("",), columns, counted(len(queues), "queue"))
    for row in queues:
        name = escape(row["name"] if row["vhost"] == DEFAULT_VHOST else f"{row['vhost']}: {row['name']}")
        table.add_row(
            f"[red]{name} (out of service)[/red]" if "out_of_service" in row else name,
            *(f"{row[name]:,}" for name in ("ready", "unacked", "consumers")),
            *(f"{row[rate]:,.0f}" for rate in RATES.values()),
            size(row["bytes"]),
        )
    return table
