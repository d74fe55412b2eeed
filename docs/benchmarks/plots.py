"""How the plots are drawn: bars with their numbers written out, light and dark."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shardmq.cmd.bench.scaling.derived import modelled_hosts

SCHEMES = {
    "light": {"ink": "#24292f", "faint": "#6e7781", "ours": "#0969da", "theirs": "#afb8c1", "second": "#54aeff"},
    "dark": {"ink": "#e6edf3", "faint": "#8b949e", "ours": "#388bfd", "theirs": "#484f58", "second": "#1f6feb"},
}

FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
INCHES_WIDE = 8.4
"""At 96 pixels an inch, about what a README is wide."""

Colours = dict[str, str]
Draw = Callable[[dict[str, Any], Colours], Figure]

README_ROWS = ("both", "1-kb", "distinct", "alone.publish_msgs_per_s", "one-in-flight")
"""What the C client measured, without consuming alone: its scale would hide the others. The other plot has all."""

GROWTH_MAX = 1.5
"""What the last point of a series may cost, in multiples of the first."""


def save(draw: Draw, result: dict[str, Any], scheme: str, digest: str, path: Path) -> None:
    """Draw a plot and write it.

    Args:
        draw: makes the figure.
        result: the raw result.
        scheme: "light" or "dark".
        digest: of what the plot is made from; it is written into the file.
        path: of the file.
    """
    with matplotlib.rc_context({"svg.hashsalt": "shardmq", "svg.fonttype": "none", "font.size": 10}):
        figure = draw(result, SCHEMES[scheme])
        buffer = io.StringIO()
        about = {"Date": None, "Title": result["title"], "Source": f"results {digest}"}
        figure.savefig(buffer, format="svg", transparent=True, metadata=about)
    drawn = re.sub(r"font-family: [^;\"]*", f"font-family: {FONT}", buffer.getvalue())
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


def canvas(rows: float, result: dict[str, Any], note: str, colours: Colours) -> tuple[Figure, Axes]:
    """A figure for so many bars' rows, with a title above and a note below."""
    height = 0.52 * rows + 1.25
    figure = Figure(figsize=(INCHES_WIDE, height))
    axes = figure.add_axes((0.34, 0.62 / height, 0.56, 1 - 1.15 / height))
    figure.text(0.012, 1 - 0.22 / height, result["title"], color=colours["ink"], weight="bold", size=12, va="center")
    figure.text(0.012, 0.2 / height, note, color=colours["faint"], size=8, va="center")
    axes.patch.set_visible(False)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0, labelcolor=colours["ink"])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure, axes


def bars(axes: Axes, places: Sequence[float], lengths: Sequence[float], colour: str, ink: str, height: float) -> None:
    """Bars, each with its number at the end."""
    axes.barh(places, lengths, height=height, color=colour)
    for place, length in zip(places, lengths, strict=True):
        axes.annotate(
            f"{length:,.0f}", (length, place), (4, 0), textcoords="offset points", va="center", color=ink, size=9
        )


def beside_rabbitmq(result: dict[str, Any], colours: Colours) -> Figure:
    """Pairs of bars: shardmq's and RabbitMQ's, messages a second."""
    by_name = {row["id"]: row for row in result["rows"]}
    rows = [by_name[name] for name in README_ROWS if by_name[name]["rabbitmq"] is not None]
    note = "messages a second, same machine (2 cores), same client; persistent messages with confirms"
    figure, axes = canvas(len(rows), result, f"{note}: shardmq's after fsync, RabbitMQ's before", colours)
    for name, shift, colour, ink in (("shardmq", -0.2, "ours", "ink"), ("rabbitmq", 0.2, "theirs", "faint")):
        places = [place + shift for place in range(len(rows))]
        bars(axes, places, [row[name]["median"] for row in rows], colours[colour], colours[ink], 0.36)
    axes.set_yticks(range(len(rows)), [label(row) for row in rows])
    axes.invert_yaxis()
    legend(figure, colours, (("shardmq", "ours"), (f"RabbitMQ {result['versions']['rabbitmq']}", "theirs")))
    return figure


def label(row: dict[str, Any]) -> str:
    """A workload's name beside its bar."""
    name = re.sub("(_msgs)?_per_s$|_[mu]s$", "", row["figure"]).replace("_", " ")
    return row["text"] if row["id"] == row["row"] else f"{row['text']}: {name}"


def workloads(result: dict[str, Any], colours: Colours) -> Figure:
    """How many times as good as RabbitMQ each workload is, the worst turn, and the goal, on a logarithmic scale."""
    rows = [row for row in result["rows"] if row["ratio"] is not None]
    note = "times as good as RabbitMQ (rates: more, times: less); line: to the worst turn; tick: the goal; dots: equal"
    figure, axes = canvas(0.55 * len(rows), result, note, colours)
    axes.set_xscale("log")
    for place, row in enumerate(rows):
        median, worst = (as_advantage(row, row["ratio"][which]) for which in ("median", "worst"))
        axes.barh([place], [median - LEAST], left=LEAST, height=0.6, color=colours["ours"])
        if worst is not None:
            axes.plot([worst, median], [place, place], color=colours["ink"], linewidth=1)
        for goal in row["goals"]:
            if goal["text"].endswith(" x") and not goal["text"].startswith("worst"):
                wanted = as_advantage(row, float(goal["text"].split()[1]))
                axes.plot([wanted, wanted], [place - 0.38, place + 0.38], color=colours["faint"], linewidth=2)
        axes.annotate(
            f"{median:.1f}", (median, place), (4, 0), textcoords="offset points", va="center", color=colours["ink"]
        )
    axes.axvline(1.0, color=colours["faint"], linewidth=0.8, linestyle=":")
    axes.set_xlim(left=LEAST)
    axes.minorticks_off()
    axes.set_xticks([])
    axes.set_yticks(range(len(rows)), [label(row) for row in rows], size=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return figure


LEAST = 0.1
"""Where the bars of `workloads` begin."""


def as_advantage(row: dict[str, Any], ratio: float | None) -> float | None:
    """A ratio by which more is better, also where the figure is a time."""
    if ratio is None:
        return None
    return 1 / ratio if row["figure"].endswith(("_ms", "_us", "_bytes")) else ratio


def growth(result: dict[str, Any], colours: Colours) -> Figure:
    """Processor time for each message along each series, in multiples of the first point's."""
    names = list(dict.fromkeys(row["along"] for row in result["rows"]))
    figure = Figure(figsize=(INCHES_WIDE, 2.6))
    figure.text(0.012, 0.93, result["title"], color=colours["ink"], weight="bold", size=12, va="center")
    note = f"µs of the broker's processes, all together; the dotted line is {GROWTH_MAX} times the first point"
    figure.text(0.012, 0.05, note, color=colours["faint"], size=8, va="center")
    for place, name in enumerate(names):
        axes = figure.add_axes((0.05 + place * 0.95 / len(names), 0.26, 0.95 / len(names) - 0.045, 0.5))
        panel(axes, name, [row for row in result["rows"] if row["along"] == name], colours)
    return figure


def panel(axes: Axes, name: str, rows: list[dict[str, Any]], colours: Colours) -> None:
    """One series of `growth`."""
    points = [row for row in rows if row["cpu_us"] is not None]
    axes.set_title(name, color=colours["ink"], size=9)
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, labelsize=7, labelcolor=colours["faint"])
    places = {row["at"]: place for place, row in enumerate(rows)}
    axes.set_xticks(list(places.values()), [short(at) for at in places])
    axes.set_xlim(-0.3, len(rows) - 0.7)
    if not points:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not yet measured", color=colours["faint"], size=8, ha="center", transform=axes.transAxes)
        return
    axes.axhline(points[0]["cpu_us"] * GROWTH_MAX, color=colours["faint"], linewidth=0.8, linestyle=":")
    axes.plot(
        [places[row["at"]] for row in points], [row["cpu_us"] for row in points], color=colours["ours"], marker="o"
    )
    axes.set_ylim(bottom=0)


def short(count: int) -> str:
    """A number for an axis, as "10k"."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count // unit}{name}"
    return str(count)


def legend(figure: Figure, colours: Colours, names: Sequence[tuple[str, str]]) -> None:
    """What the colours mean, at the upper right."""
    height = figure.get_figheight()
    for place, (name, colour) in zip((0.66, 0.79), names, strict=True):
        figure.text(place, 1 - 0.22 / height, "■", color=colours[colour], size=12, va="center")
        figure.text(place + 0.025, 1 - 0.22 / height, name, color=colours["ink"], size=10, va="center")


def spark(result: dict[str, Any], colours: Colours) -> Figure:
    """Rows a second that a job publishes or reads."""
    note = "rows a second, 2,000,000 rows of 100 bytes, PySpark local[2] and the broker on the same two cores"
    figure, axes = canvas(len(result["rows"]), result, note, colours)
    for place, row in enumerate(result["rows"]):
        ours = row["label"].startswith("shardmq")
        bars(axes, [place], [row["rate"]], colours["ours" if ours else "theirs"], colours["ink"], 0.6)
    axes.set_yticks(range(len(result["rows"])), [row["label"] for row in result["rows"]])
    axes.invert_yaxis()
    return figure


def features(result: dict[str, Any], colours: Colours) -> Figure:
    """Shares of a plain queue's rate, with the least and the most."""
    note = "share of a plain queue's rate; the line is from the least to the most of 5 runs"
    figure, axes = canvas(len(result["rows"]), result, note, colours)
    for place, row in enumerate(result["rows"]):
        axes.barh([place], [row["share"]], height=0.6, color=colours["ours"])
        axes.plot([row["least"], row["most"]], [place, place], color=colours["ink"], linewidth=1)
        end = max(row["most"], row["share"])
        axes.annotate(
            f"{row['share']:.2f}",
            (end, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=colours["ink"],
            size=9,
        )
    axes.axvline(1.0, color=colours["faint"], linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(result["rows"])), [row["label"] for row in result["rows"]])
    axes.invert_yaxis()
    return figure


def hosts(result: dict[str, Any], colours: Colours) -> Figure:
    """Rates by the model as hosts are added: the part that is used up first, and the others."""
    rows = modelled_hosts(result)
    figure = Figure(figsize=(INCHES_WIDE, 3.2))
    title = "Messages a second by the model, as hosts are added"
    figure.text(0.012, 0.94, title, color=colours["ink"], weight="bold", size=12, va="center")
    note = "100 bytes over AMQP, two copies; at which each part of all hosts is used up: the least counts"
    figure.text(0.012, 0.04, note, color=colours["faint"], size=8, va="center")
    axes = figure.add_axes((0.09, 0.2, 0.72, 0.64))
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(which="both", length=0, labelsize=8, labelcolor=colours["faint"])
    places = [row["hosts"] for row in rows]
    axes.set_xticks(places, [str(place) for place in places])
    if rows[0]["first"] is None:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not yet measured", color=colours["faint"], ha="center", transform=axes.transAxes)
        return figure
    last = rows[-1]["first"]
    for bound in ("cores", "gateways", "shards", "disk", "network"):
        is_first = bound == last
        axes.plot(
            places,
            [row[bound] for row in rows],
            color=colours["ours" if is_first else "theirs"],
            linewidth=1 + is_first,
        )
        axes.annotate(
            bound,
            (places[-1], rows[-1][bound]),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=colours["ink" if is_first else "faint"],
            size=9,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda rate, _place: short(int(rate)))
    return figure


PLOTS: tuple[tuple[str, str, Draw], ...] = (
    ("beside-rabbitmq", "compare", beside_rabbitmq),
    ("workloads", "compare", workloads),
    ("growth", "growth", growth),
    ("spark", "spark", spark),
    ("features", "features", features),
    ("hosts", "scaling-copies", hosts),
)
"""Each plot's name, the result it shows, and how it is drawn."""
