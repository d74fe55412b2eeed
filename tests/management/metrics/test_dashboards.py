"""The expressions of Grafana's dashboards, parsed, and what they select looked for in what Prometheus scrapes."""

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.house.tree import ROOT
from tests.management.metrics.test_endpoints import READ_BY_GRAFANA

ADDED_BY_PROMETHEUS = {"instance": "broker:15672", "job": "shardmq", "namespace": ""}
"""Labels that a scrape has, whatever it reads."""

VARIABLES = {"$__rate_interval": "60s", "$__range": "3600s", "$__interval": "60s"}

JOIN = "on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node)"
IDENTITY = 'rabbitmq_identity_info{rabbitmq_cluster="$cluster"}'
"""How dashboard 10991 picks a cluster: each metric is joined with the identity of the node that tells it."""

Labels = dict[str, str]


def like_10991(name: str) -> str:
    """An expression as dashboard 10991 has it for a metric: rates of counters, the join, a sum by node."""
    metric = f"rate(rabbitmq_{name}[60s])" if name.endswith(("_total", "_bucket")) else f"rabbitmq_{name}"
    return f"sum({metric} * {JOIN} {IDENTITY}) by (rabbitmq_node)"


def of_our_dashboard() -> list[str]:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "shardmq.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def scraped(managed: Broker) -> Iterator[list[Sample]]:
    """What a broker with a topic and a group tells, as Prometheus keeps it."""
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.topic_declare("events", 1)
        channel.basic_publish("events", "key", b"x")
        channel.group_commit("events", "readers", {0: 0})
        request = urllib.request.Request(managed.management_url.rstrip("/") + "/metrics")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        yield [sample for family in families for sample in family.samples]


def label_sets(expression: Any, scraped: list[Sample]) -> list[Labels]:
    """The labels of the series that an expression gives; fails where a selector, a join or a grouping finds nothing."""
    if isinstance(expression, promql.NumberLiteral):
        return [{}]
    if isinstance(expression, promql.ParenExpr):
        return label_sets(expression.expr, scraped)
    if isinstance(expression, promql.MatrixSelector):
        return label_sets(expression.vector_selector, scraped)
    if isinstance(expression, promql.VectorSelector):
        return selected(expression, scraped)
    if isinstance(expression, promql.Call):
        return label_sets(expression.args[-1], scraped)
    if isinstance(expression, promql.AggregateExpr):
        return grouped(expression, label_sets(expression.expr, scraped))
    assert isinstance(expression, promql.BinaryExpr), expression
    left, right = label_sets(expression.lhs, scraped), label_sets(expression.rhs, scraped)
    return joined(expression, left, right)


def selected(selector: Any, scraped: list[Sample]) -> list[Labels]:
    there = [{**sample.labels, **ADDED_BY_PROMETHEUS} for sample in scraped if sample.name == selector.name]
    for matcher in selector.matchers.matchers:
        if "$" in matcher.value:
            assert all(matcher.name in labels for labels in there), f"{selector.name} has no label {matcher.name}"
            continue
        is_regex = str(matcher.op).endswith("Re")
        there = [
            labels
            for labels in there
            if (re.fullmatch(matcher.value, labels.get(matcher.name, "")) is not None if is_regex else False)
            or labels.get(matcher.name, "") == matcher.value
        ]
    assert there, f"nothing is scraped for {selector}"
    return there


def grouped(aggregate: Any, series: list[Labels]) -> list[Labels]:
    if aggregate.modifier is None:
        return [{}]
    names = set(aggregate.modifier.labels)
    assert str(aggregate.modifier.type).endswith("By"), aggregate
    assert all(names <= labels.keys() for labels in series), f"{aggregate}: a label to group by is missing"
    return [dict(pairs) for pairs in {tuple((name, labels[name]) for name in sorted(names)) for labels in series}]


def joined(binary: Any, left: list[Labels], right: list[Labels]) -> list[Labels]:
    """Series of the left with the one of the right that matches; many to many is an error, as in Prometheus."""
    modifier = binary.modifier
    on = set(modifier.matching.labels) if modifier is not None and modifier.matching is not None else None
    more = set(modifier.group_labels) if modifier is not None and modifier.group_labels else set()
    found = []
    for labels in left:
        names = labels.keys() if on is None else on
        matches = [other for other in right if all(other.get(name) == labels.get(name) for name in names)]
        assert len(matches) <= 1, f"{binary}: many match {labels}"
        found += [{**labels, **{name: match[name] for name in more}} for match in matches]
    assert found, f"{binary}: nothing on the right matches"
    return found


@pytest.mark.parametrize("expression", [*map(like_10991, READ_BY_GRAFANA), *of_our_dashboard()])
def test_a_dashboards_expression_finds_what_it_reads(scraped: list[Sample], expression: str) -> None:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert label_sets(promql.parse(expression), scraped)
