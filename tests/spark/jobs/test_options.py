"""Keywords of jobs: their signatures, their help, and what a wrong one says."""

import inspect
from typing import Any

import pytest

import shardmq.spark
from shardmq.errors import InvalidRequest
from shardmq.spark.jobs.options import (
    DeadLetterOptions,
    ExportOptions,
    PublishOptions,
    ReplayOptions,
    TopicExportOptions,
    TopicReplayOptions,
    check_session,
)

JOBS: list[tuple[Any, type, list[str]]] = [
    (shardmq.spark.publish, PublishOptions, ["spark", "paths"]),
    (shardmq.spark.export, ExportOptions, ["spark", "queue", "to"]),
    (shardmq.spark.replay, ReplayOptions, ["spark", "paths"]),
    (shardmq.spark.export_topic, TopicExportOptions, ["spark", "topic", "to"]),
    (shardmq.spark.replay_topic, TopicReplayOptions, ["spark", "topic"]),
    (shardmq.spark.deadletters, DeadLetterOptions, ["spark", "queue"]),
]


@pytest.mark.parametrize(("job", "options", "positional"), JOBS, ids=[job.__name__ for job, *_ in JOBS])
def test_a_jobs_keywords_are_in_its_signature_and_its_help(job: Any, options: type, positional: list[str]) -> None:
    parameters = inspect.signature(job).parameters
    assert [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == positional
    keywords = [name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY]
    fields = list(inspect.signature(options).parameters)
    assert keywords == [name for name in fields if name not in positional]
    assert all(f"    {name}: " in job.__doc__ for name in keywords)


@pytest.mark.parametrize(("job", "positional"), [(job, names) for job, _, names in JOBS])
def test_a_wrong_keyword_is_refused_before_anything_is_done(job: Any, positional: list[str]) -> None:
    given = dict.fromkeys([*positional, "exchange"] if job is shardmq.spark.publish else positional, "x")
    with pytest.raises(TypeError, match=r"missing a required .*argument: 'url'"):
        job(**given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        job(**given, url="x", nope=1)


def test_a_session_of_spark_connect_is_refused_with_what_works_there() -> None:
    elsewhere = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(InvalidRequest, match=r"shardmq\.spark\.export needs Spark's driver in this process"):
        check_session(elsewhere(), "export")
    check_session(object(), "export")
