"""Figures in the documents are those of the raw results, and plots are made from them."""

import copy
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardmq.cmd.bench.compare.growth import SERIES
from shardmq.cmd.bench.compare.record import row_id
from shardmq.cmd.bench.compare.rows import ROWS
from tests.docs.document import ROOT, Document, documents

DOCUMENTS = [document for document in documents() if document.name.startswith(("README.md", "docs/"))]


def module(name: str) -> ModuleType:
    """A program of docs/benchmarks, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


figures: Any = module("figures")
RESULTS = sorted((ROOT / "docs/benchmarks/results").glob("*.json"))
SVGS = sorted((ROOT / "docs/benchmarks/plots").glob("*.svg"))


@pytest.mark.parametrize("document", [pytest.param(document, id=document.name) for document in DOCUMENTS])
def test_tables_and_quoted_figures_are_those_of_the_raw_results(document: Document) -> None:
    assert figures.with_tables(document.text) == document.text, "`make figures` writes the tables anew"
    assert figures.with_quoted(document.text) == document.text, "`make figures` writes them anew"
    assert len(figures.QUOTED.findall(document.text)) == document.text.count("<!--=")


def test_a_figure_in_the_text_is_written_anew() -> None:
    cost, bulk = figures.value("compare.both.shardmq_cpu_us"), figures.value("compare.bulk-1.shardmq.median")
    page = "99.9 µs<!--= compare.both.shardmq_cpu_us -->, and 1<!--= compare.bulk-1.shardmq.median --> a second"
    assert figures.with_quoted(page) == page.replace("99.9", f"{cost}").replace(" 1<", f" {bulk:,.0f}<")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_says_when_and_where_it_was_measured(path: Path) -> None:
    result = figures.result(path.stem)
    for key in ("title", "recorded", "machine", "versions", "settings", "statistic", "kept"):
        assert key in result
    assert len({row["id"] for row in result["rows"]}) == len(result["rows"])


def test_every_result_is_shown() -> None:
    shown = set(re.findall(r"<!-- table: ([\w-]+) -->", "".join(document.text for document in DOCUMENTS)))
    shown |= {path.partition(".")[0] for document in DOCUMENTS for _, path in figures.QUOTED.findall(document.text)}
    assert shown == {path.stem for path in RESULTS}


@pytest.mark.parametrize("path", SVGS, ids=lambda path: path.stem)
def test_plots_are_made_from_the_raw_results(path: Path) -> None:
    found = re.search(r"<dc:source>results (\w+) ([\w-]+)</dc:source>", path.read_text())
    assert found is not None
    assert figures.digest(found[2]) == found[1], "`make figures` draws it anew"


def test_every_plot_has_a_light_and_a_dark_one() -> None:
    names = {path.stem for path in SVGS}
    plots = {name.rpartition("-")[0] for name in names}
    assert names == {f"{plot}-{scheme}" for plot in plots for scheme in ("light", "dark")}


def test_the_same_results_draw_the_same_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `figures` is not installed")
    plots: Any = module("plots")
    name, result, draw = plots.PLOTS[0]
    for path in (tmp_path / "one.svg", tmp_path / "other.svg"):
        plots.save(draw, figures.result(result), "light", figures.digest(result), path)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes(), name


def test_the_published_comparison_has_every_row_and_every_point() -> None:
    wanted = [row_id(name, figure.name) for name, row in ROWS.items() for figure in row.figures]
    assert [row["id"] for row in figures.result("compare")["rows"]] == wanted
    points = [f"{name}-{at}" for name, series in SERIES.items() for at in series.points]
    assert [row["id"] for row in figures.result("growth")["rows"]] == points


@pytest.mark.parametrize("place", range(3), ids=["beside", "workloads", "growth"])
def test_what_was_recorded_can_be_drawn(tmp_path: Path, place: int) -> None:
    pytest.importorskip("matplotlib", reason="the extra `figures` is not installed")
    plots: Any = module("plots")
    _, name, draw = plots.PLOTS[place]
    result = copy.deepcopy(figures.result(name))
    turns = {"median": 2.5, "worst": 2.0, "turns": [2.0, 2.5]}
    for row in result["rows"]:
        row.update({"shardmq": turns, "rabbitmq": turns, "ratio": turns, "cpu_us": 5.0, "of_first": 1.0})
    plots.save(draw, result, "dark", figures.digest(name), tmp_path / "all.svg")
    drawn = (tmp_path / "all.svg").read_text()
    assert "not yet measured" not in drawn
    assert all(text in drawn for text in (["queues", "backlog"] if name == "growth" else ["one in flight"]))
