"""Makes the tables and plots of the documents from the raw results: `make figures`.

results/*.json ──► tables between <!-- table: name --> and <!-- end of table --> in the documents
               ──► figures in their text, before <!--= name.row.key -->
               ──► plots/NAME-light.svg and plots/NAME-dark.svg

The tables need nothing but Python. The plots need matplotlib, of the extra `figures`: the same results and the same
matplotlib make the same bytes. Each plot carries a digest of what it was made from; a test compares it.
"""

import hashlib
import json
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardmq.cmd.bench.scaling.derived import beside_model, modelled_hosts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results"
PLOTS = HERE / "plots"

Row = Mapping[str, Any]

TIMES = " \N{MULTIPLICATION SIGN}"


def result(name: str) -> dict[str, Any]:
    """A raw result by its file's name."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def value(path: str) -> Any:
    """A raw figure: "amqp.at_once.shardmq" is that of the row `at_once`, "faults.counts.kills" one beside the rows."""
    name, *keys = path.split(".")
    found: Any = result(name)
    rows = {row["id"]: row for row in found["rows"]}
    for place, key in enumerate(keys):
        found = rows[key] if place == 0 and key in rows else found[key]
    return found


@dataclass(frozen=True)
class Table:
    """How a result looks as a table.

    Attributes:
        head: titles of the columns.
        cells: each a function of a row.
        rows: makes the rows of a result, where they are not those that it has.
    """

    head: Sequence[str]
    cells: Sequence[Callable[[Row], str]]
    rows: Callable[[dict[str, Any]], Iterable[Row]] = operator.itemgetter("rows")

    def lines(self, rows: Iterable[Row]) -> str:
        """The table in Markdown."""
        written = [self.head, ["---"] * len(self.head), *([cell(row) for cell in self.cells] for row in rows)]
        return "".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |\n") for line in written)


def text(key: str) -> Callable[[Row], str]:
    """A cell with a row's text."""
    return lambda row: str(row[key])


def number(key: str, bold: bool = False, unit: str = "") -> Callable[[Row], str]:
    """A cell with a row's number; empty where there is none."""
    mark = "**" if bold else ""
    return lambda row: "" if row[key] is None else f"{mark}{row[key]:,}{unit}{mark}"


def spread(key: str, digits: int, bold: bool = True, unit: str = "") -> Callable[[Row], str]:
    """A cell with a row's number, and the least and the most that it was."""
    mark = "**" if bold else ""
    return lambda row: (
        f"{mark}{row[key]:,.{digits}f}{unit}{mark} ({row['least']:,.{digits}f} … {row['most']:,.{digits}f})"
    )


def measured(name: str, bold: bool = False) -> Callable[[Row], str]:
    """A cell with a broker's median and worst turn."""

    def cell(row: Row) -> str:
        found = row[name]
        if found is None:
            return "not yet measured" if name == "shardmq" else ""
        mark = "**" if bold else ""
        worst = "" if found["worst"] is None else f" ({four_digits(found['worst'])})"
        return f"{mark}{four_digits(found['median'])}{mark} {row['unit']}".rstrip() + worst

    return cell


def four_digits(figure: float) -> str:
    """A figure for people, as "123,500" or "0.63"."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def advantage(row: Row) -> str:
    """The ratio to RabbitMQ, median and worst; bold where no goal was missed."""
    if row["ratio"] is None:
        return ""
    mark = "" if any(goal["is_met"] is False for goal in row["goals"]) else "**"
    worst = "" if row["ratio"]["worst"] is None else f" ({row['ratio']['worst']:.2f})"
    return f"{mark}{row['ratio']['median']:.2f}{TIMES}{mark}{worst}"


def goals(row: Row) -> str:
    """What was to be reached."""
    return ", ".join(goal["text"] for goal in row["goals"]).replace(" x", TIMES)


FIGURES = {
    "cpu_us": "processor time a message",
    "disk_bytes": "written to disk",
    "share_of_plain": "of plain",
    "shard_bytes": "memory of its shard",
    "last_tenth": "rate of the last tenth by the first's",
}
"""What figures are called whose names do not say it."""


def workload(row: Row) -> str:
    """What was measured; the figure's name where a workload has several, or it is no rate of messages."""
    if row["id"] == row["row"] and row["unit"] in ("msgs/s", "rows/s"):
        return str(row["text"])
    name = FIGURES.get(row["figure"]) or re.sub("(_msgs)?_per_s$|_ms$", "", row["figure"]).replace("_", " ")
    return f"{row['text']}: {name}"


def grown(row: Row) -> str:
    """What a message costs at a point."""
    return "not yet measured" if row["cpu_us"] is None else f"{row['cpu_us']:.3g} µs"


def of_broker(name: str) -> Callable[[Row], str]:
    """A cell with a broker's median and worst turn, and what a message cost it."""

    def cell(row: Row) -> str:
        found = row[name]
        if found is None:
            return ""
        mark = "**" if name == "shardmq" else ""
        cost = "" if found["cpu_us"] is None else f", {found['cpu_us']:.2g} µs"
        return f"{mark}{four_digits(found['median'])}{mark} ({four_digits(found['worst'])}){cost}"

    return cell


def of_hosts(name: str) -> Callable[[Row], str]:
    """A cell with a broker's median and worst turn, as it was measured on several hosts."""

    def cell(row: Row) -> str:
        found = row[name]
        if found is None:
            return ""
        mark = "**" if name == "two" and row["is_met"] is not False else ""
        return f"{mark}{four_digits(found['median'])}{mark} ({four_digits(found['worst'])})"

    return cell


NOT_YET = "not yet measured"


def scaled(key: str, role: str = "", digits: int = 2) -> Callable[[Row], str]:
    """A cell with a figure of `bench scaling`, such as what a role takes."""

    def cell(row: Row) -> str:
        if row[key] is None:
            return NOT_YET
        found = row[key][role] if role else row[key]
        return found if isinstance(found, str) else f"{found:,.{digits}f}"

    return cell


def memory_of(role: str) -> Callable[[Row], str]:
    """A cell with the memory that a role's process takes."""

    def cell(row: Row) -> str:
        return NOT_YET if row["resident_bytes"] is None else f"{row['resident_bytes'][role] / 1e6:,.0f} MB"

    return cell


def scaled_rate(row: Row) -> str:
    """A cell with a rate, and the least and the most of it."""
    if row["rate"] is None:
        return NOT_YET
    return f"**{row['rate']:,.0f}** ({row['least']:,.0f} … {row['most']:,.0f})"


BESIDE_RABBITMQ = Table(
    ("workload", "shardmq (worst turn)", "RabbitMQ 3.10.8", "ratio (worst)", "goal"),
    (workload, measured("shardmq", bold=True), measured("rabbitmq"), advantage, goals),
)

TABLES = {
    "scaling-spark": Table(
        ("", "gateways", "shards", "rows/s (least … most)", "cores: gateways", "shards", "Spark"),
        (
            lambda row: {"publish": "published exactly once", "read": "a topic read"}[row["load"]],
            number("gateways"),
            number("shards"),
            scaled_rate,
            *(scaled("cores", role) for role in ("gateway", "shard", "client")),
        ),
    ),
    "scaling-messages": Table(
        (
            "gateways",
            "shards",
            "msgs/s (least … most)",
            "µs: gateways",
            "shards",
            "clients",
            "the model",
            "its bound",
            "its error",
        ),
        (
            number("gateways"),
            number("shards"),
            scaled_rate,
            *(scaled("cpu_us", role) for role in ("gateway", "shard", "client")),
            scaled("model", digits=0),
            scaled("bound"),
            lambda row: NOT_YET if row["error"] is None else f"{row['error']:+.0f} %",
        ),
        beside_model,
    ),
    "scaling-copies": Table(
        ("copies", "msgs/s (least … most)", "µs: gateway", "primary", "follower", "written for each byte"),
        (
            number("replicas"),
            scaled_rate,
            *(scaled("cpu_us", role) for role in ("gateway", "primary", "follower")),
            scaled("written", digits=1),
        ),
    ),
    "scaling-copies.hosts": Table(
        ("hosts", "cores", "gateways", "shards", "network", "disks", "the least"),
        (
            number("hosts"),
            *(scaled(bound, digits=0) for bound in ("cores", "gateways", "shards", "network", "disk")),
            scaled("first"),
        ),
        modelled_hosts,
    ),
    "scaling-queues": Table(
        ("queues", "declared/s", "µs: coordinator", "gateway", "shards", "memory: coordinator", "gateway", "a start"),
        (
            number("queues"),
            scaled("declare_per_s", digits=0),
            *(scaled("cpu_us", role, 0) for role in ("coordinator", "gateway", "shard")),
            *(memory_of(role) for role in ("coordinator", "gateway")),
            lambda row: NOT_YET if row["start_cpu_ms"] is None else f"{row['start_cpu_ms']:,.0f} ms",
        ),
    ),
    "scaling-groups": Table(
        ("groups", "begun/s", "µs: coordinator", "gateway", "shards", "memory: coordinator", "gateway", "shard"),
        (
            number("groups"),
            scaled("begin_per_s", digits=0),
            *(scaled("cpu_us", role, 0) for role in ("coordinator", "gateway", "shard")),
            *(memory_of(role) for role in ("coordinator", "gateway", "shard")),
        ),
    ),
    "scaling-etcd": Table(
        ("processes that hear of it", "a change", "µs of etcd for it", "etcd's cores at rest"),
        (
            number("watchers"),
            lambda row: NOT_YET if row["swap_ms"] is None else f"{row['swap_ms']:.2f} ms",
            scaled("cpu_us", digits=0),
            scaled("rest_cores", digits=3),
        ),
    ),
    "rest": Table(("", "measured", "asked"), (text("what"), text("measured"), text("asked"))),
    "features": Table(
        ("", "msgs/s", "of the plain queue's rate (least … most)"),
        (text("what"), number("rate"), spread("share", 2)),
    ),
    "scale": Table(("", "measured"), (text("what"), text("measured"))),
    "compare": BESIDE_RABBITMQ,
    "compare-slower": replace(
        BESIDE_RABBITMQ, rows=lambda found: [row for row in found["rows"] if row["ratio"] is not None]
    ),
    "growth": Table(
        ("as these grow", "number", "processor time", "of the first"),
        (
            text("along"),
            number("at"),
            grown,
            lambda row: "" if row["of_first"] is None else f"{row['of_first']:.2f}{TIMES}",
        ),
    ),
    "streams": Table(
        ("", "unit", "shardmq (worst turn), CPU a message", "RabbitMQ 3.10.8", "Redis 7.0.15", "goal"),
        (
            text("text"),
            text("unit"),
            of_broker("shardmq"),
            of_broker("rabbitmq"),
            of_broker("redis"),
            lambda row: str(row["goal"]).replace(" x ", f"{TIMES} "),
        ),
    ),
    "hosts": Table(
        ("", "unit", "one host", "2 replicas (worst turn)", "3 replicas", "RabbitMQ 3.10.8, quorum queues", "goal"),
        (
            text("text"),
            text("unit"),
            of_hosts("one"),
            of_hosts("two"),
            of_hosts("three"),
            of_hosts("rabbitmq"),
            lambda row: str(row["goal"]).replace(" x ", f"{TIMES} "),
        ),
    ),
    "spark": Table(
        ("published or read by", "rows/s (least … most)", "exactly once is"),
        (text("what"), spread("rate", 0), number("times", unit=TIMES)),
    ),
    "faults": Table(("", "outcome"), (text("what"), text("outcome"))),
    "large-messages": Table(("128 MiB", "gateway", "shard"), (text("what"), text("gateway"), text("shard"))),
}

TABLE = re.compile(r"(<!-- table: ([\w.-]+) -->\n)(.*?)(<!-- end of table -->)", re.S)


def with_tables(page: str) -> str:
    """A page with all its tables made anew."""

    def made(found: re.Match[str]) -> str:
        name = found[2]
        table, whole = TABLES[name], result(name.partition(".")[0])  # "compare.best" is another look at "compare"
        return f"{found[1]}\n{table.lines(table.rows(whole))}\n{found[4]}"

    return TABLE.sub(made, page)


QUOTED = re.compile(r"[\d.,]+(?P<unit>[^\d<\n]{0,6}<!--= (?P<path>[\w.-]+) -->)")
"""A figure in the text, as "4.476 µs<!--= compare.both.shardmq_cpu_us -->"."""


def with_quoted(page: str) -> str:
    """A page with all figures in its text written anew."""
    return QUOTED.sub(lambda found: f"{value(found['path']):,}".removesuffix(".0") + found["unit"], page)


def digest(name: str) -> str:
    """What a plot carries: a digest of the results and of the code that it is made from."""
    parts = [(RESULTS / f"{name}.json").read_bytes(), (HERE / "plots.py").read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def main() -> None:
    """Make tables and plots."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        page = path.read_text()
        made = with_quoted(with_tables(page))
        if made != page:
            path.write_text(made)
            print(f"wrote the figures of {path.relative_to(ROOT)}")
    sys.path.insert(0, str(HERE))
    import plots  # matplotlib is not installed where tests read the tables

    for name, result_name, draw in plots.PLOTS:
        for scheme in plots.SCHEMES:
            path = PLOTS / f"{name}-{scheme}.svg"
            plots.save(draw, result(result_name), scheme, f"{digest(result_name)} {result_name}", path)
            print(f"drew {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
