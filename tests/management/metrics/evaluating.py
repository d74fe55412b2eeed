"""PromQL as dashboards use it, evaluated over two scrapes: values, and the labels they have."""

import json
import operator
import re
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from shardmq.cmd.run.broker import Broker
from tests.house.tree import ROOT

ADDED_BY_PROMETHEUS = {"instance": "broker:15672", "job": "shardmq", "namespace": ""}
"""Labels that a scrape has, whatever it reads."""

Labels = dict[str, str]
Series = list[tuple[Labels, float]]

OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else float("nan"),
}
SUMS: Mapping[str, Callable[[list[float]], float]] = {"sum": sum, "count": len, "max": max, "min": min}
RATES = ("rate", "irate")


@dataclass(frozen=True)
class Scrape:
    """What was told at one moment, in seconds."""

    samples: list[Sample]
    at: float


@dataclass(frozen=True)
class Scrapes:
    """Two scrapes, as Prometheus keeps them."""

    before: Scrape
    now: Scrape


def scrape(broker: Broker) -> Scrape:
    return scrape_at(broker.management_url.rstrip("/") + "/metrics")


def scrape_at(url: str) -> Scrape:
    request = urllib.request.Request(url)
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return Scrape([sample for family in families for sample in family.samples], time.monotonic())


def panels(dashboard: str) -> dict[str, list[str]]:
    """The expressions of one of our dashboards, by its file's name: by title of the panel."""
    told = json.loads((ROOT / "deploy" / "grafana" / dashboard).read_text())
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in told["panels"]}


def expressions(dashboard: str) -> list[str]:
    return [expression for of in panels(dashboard).values() for expression in of]


def evaluated(expression: str, scrapes: Scrapes) -> Series:
    """The series that an expression gives; fails where a selector, a join or a grouping finds nothing."""
    return _series(promql.parse(expression), scrapes)


def _series(expression: Any, scrapes: Scrapes) -> Series:
    if isinstance(expression, promql.NumberLiteral):
        return [({}, expression.val)]
    if isinstance(expression, promql.ParenExpr):
        return _series(expression.expr, scrapes)
    if isinstance(expression, promql.VectorSelector):
        return _selected(expression, scrapes.now)
    if isinstance(expression, promql.Call):
        return _called(expression, scrapes)
    if isinstance(expression, promql.AggregateExpr):
        return _grouped(expression, _series(expression.expr, scrapes))
    assert isinstance(expression, promql.BinaryExpr), expression
    left, right = _series(expression.lhs, scrapes), _series(expression.rhs, scrapes)
    return _joined(expression, left, right)


def _selected(selector: Any, scrape: Scrape) -> Series:
    there = [
        ({**sample.labels, **ADDED_BY_PROMETHEUS}, sample.value)
        for sample in scrape.samples
        if sample.name == selector.name
    ]
    for matcher in selector.matchers.matchers:
        if "$" in matcher.value:
            assert all(matcher.name in labels for labels, _ in there), f"{selector.name} has no label {matcher.name}"
            continue
        is_regex = str(matcher.op).endswith("Re")
        there = [
            (labels, value)
            for labels, value in there
            if (is_regex and re.fullmatch(matcher.value, labels.get(matcher.name, "")) is not None)
            or labels.get(matcher.name, "") == matcher.value
        ]
    assert there, f"nothing is scraped for {selector}"
    return there


def _called(call: Any, scrapes: Scrapes) -> Series:
    """A function: how a counter grew; of others, the series that they are of."""
    argument = call.args[-1]
    if not isinstance(argument, promql.MatrixSelector):
        return _series(argument, scrapes)
    before = {
        tuple(sorted(labels.items())): value for labels, value in _selected(argument.vector_selector, scrapes.before)
    }
    seconds = scrapes.now.at - scrapes.before.at if call.func.name in RATES else 1.0
    return [
        (labels, (value - before.get(tuple(sorted(labels.items())), 0.0)) / seconds)
        for labels, value in _selected(argument.vector_selector, scrapes.now)
    ]


def _grouped(aggregate: Any, series: Series) -> Series:
    names: set[str] = set()
    if aggregate.modifier is not None:
        names = set(aggregate.modifier.labels)
        assert str(aggregate.modifier.type).endswith("By"), aggregate
        assert all(names <= labels.keys() for labels, _ in series), f"{aggregate}: a label to group by is missing"
    groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for labels, value in series:
        groups.setdefault(tuple((name, labels[name]) for name in sorted(names)), []).append(value)
    return [(dict(pairs), SUMS[str(aggregate.op)](values)) for pairs, values in groups.items()]


def _joined(binary: Any, left: Series, right: Series) -> Series:
    """Series of the left with the one of the right that matches; many to many is an error, as in Prometheus."""
    modifier, apply = binary.modifier, OPERATORS[str(binary.op)]
    on = set(modifier.matching.labels) if modifier is not None and modifier.matching is not None else None
    more = set(modifier.group_labels) if modifier is not None and modifier.group_labels else set()
    found: Series = []
    for labels, value in left:
        names = labels.keys() if on is None else on
        matches = [other for other in right if all(other[0].get(name) == labels.get(name) for name in names)]
        assert len(matches) <= 1, f"{binary}: many match {labels}"
        for other, factor in matches:
            found.append(({**labels, **{name: other[name] for name in more}}, apply(value, factor)))
    assert found, f"{binary}: nothing on the right matches"
    return found
