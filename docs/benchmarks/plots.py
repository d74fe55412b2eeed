"""How the plots are drawn: bars with their numbers written out, light and dark."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SCHEMES = {
    "light": {"ink": "#24292f", "faint": "#6e7781", "ours": "#0969da", "theirs": "#afb8c1", "second": "#54aeff"},
    "dark": {"ink": "#e6edf3", "faint": "#8b949e", "ours": "#388bfd", "theirs": "#484f58", "second": "#1f6feb"},
}

FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
INCHES_WIDE = 8.4
"""At 96 pixels an inch, about what a README is wide."""

Colours = dict[str, str]
Draw = Callable[[dict[str, Any], Colours], Figure]

README_ROWS = ("at_once", "kilobyte", "many", "publish", "window_1")
"""What the C client measured, without consuming alone: its scale would hide the others. The other plot has all."""


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


def canvas(rows: int, result: dict[str, Any], note: str, colours: Colours) -> tuple[Figure, Axes]:
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


def beside_rabbitmq(names: Sequence[str] | None) -> Draw:
    """Pairs of bars: shardmq's and RabbitMQ's, messages a second."""

    def draw(result: dict[str, Any], colours: Colours) -> Figure:
        by_name = {row["id"]: row for row in result["rows"]}
        rows = [by_name[name] for name in names or by_name]
        note = "messages a second, same machine (2 cores), same client; persistent messages with confirms"
        figure, axes = canvas(len(rows), result, f"{note}: shardmq's after fsync, RabbitMQ's before", colours)
        places = list(range(len(rows)))
        bars(
            axes,
            [place - 0.2 for place in places],
            [row["shardmq"] for row in rows],
            colours["ours"],
            colours["ink"],
            0.36,
        )
        bars(
            axes,
            [place + 0.2 for place in places],
            [row["rabbitmq"] for row in rows],
            colours["theirs"],
            colours["faint"],
            0.36,
        )
        axes.set_yticks(places, [row["label"] for row in rows])
        axes.invert_yaxis()
        legend(figure, colours, (("shardmq", "ours"), (f"RabbitMQ {result['versions']['rabbitmq']}", "theirs")))
        return figure

    return draw


def legend(figure: Figure, colours: Colours, names: Sequence[tuple[str, str]]) -> None:
    """What the colours mean, at the upper right."""
    height = figure.get_figheight()
    for place, (name, colour) in zip((0.66, 0.79), names, strict=True):
        figure.text(place, 1 - 0.22 / height, "■", color=colours[colour], size=12, va="center")
        figure.text(place + 0.025, 1 - 0.22 / height, name, color=colours["ink"], size=10, va="center")


def spark(result: dict[str, Any], colours: Colours) -> Figure:
    """Rows a second that a job publishes."""
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


PLOTS: tuple[tuple[str, str, Draw], ...] = (
    ("beside-rabbitmq", "amqp", beside_rabbitmq(README_ROWS)),
    ("amqp", "amqp", beside_rabbitmq(None)),
    ("spark", "spark", spark),
    ("features", "features", features),
)
"""Each plot's name, the result it shows, and how it is drawn."""
