"""What the documents say of Spark is so: the examples run, the tables name the options and columns there are."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AlreadyAcknowledged
from shardmq.spark.options import names
from shardmq.spark.read.columns import READ_SCHEMA
from shardmq.spark.topics.columns import COLUMNS
from tests.conftest import StartBroker
from tests.docs.commands import parse
from tests.docs.document import ROOT, Block, Document
from tests.docs.runner import Runner

PAGE = Document(ROOT / "docs/spark.md")
README = Document(ROOT / "README.md")


def blocks(title: str, language: str) -> list[str]:
    """The code of a language in a section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.section(title), re.MULTILINE | re.DOTALL)


def words(title: str) -> set[str]:
    """All that stands in backquotes in a section."""
    return set(re.findall(r"`([a-zA-Z_]+)`", PAGE.section(title)))


def ready(broker: Broker, queue: str) -> int:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        return channel.queue_declare(queue, passive=True).messages


def test_every_option_is_in_it() -> None:
    written = words("Writing a DataFrame") | words("Writing a stream")
    assert set(names("write")) | set(names("stream")) <= written
    assert set(names("read")) <= words("Reading a queue")
    of_topics = words("Reading a topic")
    assert set(names("topic")) <= of_topics
    assert set(names("readStream")) <= of_topics | words("Reading a topic as a stream")


def test_every_column_is_in_it() -> None:
    columns = {field.name for field in READ_SCHEMA.fields}
    assert columns <= words("Reading a queue")
    assert {field.name for field in COLUMNS} - {"body", "position"} <= words("Reading a topic")


def test_every_example_in_python_is_one_that_is_run_here() -> None:
    assert [block.code for block in PAGE.blocks if block.language == "python"] == [
        *blocks("Writing a DataFrame", "python"),
        *blocks("Writing a stream", "python"),
        *blocks("Reading a queue", "python"),
        *blocks("Taking messages out", "python"),
        *blocks("Reading a topic", "python"),
        *blocks("Reading a topic as a stream", "python"),
    ]


@pytest.mark.parametrize("block", [block for block in README.blocks if block.tool == "Spark"])
@pytest.mark.usefixtures("spark")
def test_the_readme_s_example_runs_alone(block: Block, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    exec(block.code.replace(":5672", f":{broker.port}"), {})
    assert capsys.readouterr().out == "1000\n"


@pytest.mark.usefixtures("spark")
def test_the_readme_s_examples_run_in_order(
    start_broker: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert README.is_in_order
    folder = tmp_path / "examples"
    folder.mkdir()
    runner = Runner(start_broker(), folder)
    for block in README.blocks:
        if block.tool == "Spark":
            exec(runner.translated(block.code), {})
        elif block.runs:
            runner.run(block)
    assert capsys.readouterr().out == "1000\n"


def test_the_examples_run_as_written(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    (prepare,) = (block for block in PAGE.blocks if block.runs and block.code in PAGE.section("Before you begin"))
    Runner(broker, tmp_path).run(prepare)
    spark.range(100).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "incoming"))
    given = {
        "spark": spark,
        "incoming": str(tmp_path / "incoming"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "archive": str(tmp_path / "archive-of-all"),
    }
    (write,), (stream,), (read,), (drain,) = (
        blocks(title, "python")
        for title in ("Writing a DataFrame", "Writing a stream", "Reading a queue", "Taking messages out")
    )
    for _ in range(2):
        exec(write.replace(":5672", f":{broker.port}"), given)
    assert (ready(broker, "united"), ready(broker, "all")) == (2, 3)
    exec(stream.replace(":5672", f":{broker.port}"), given)
    assert ready(broker, "ticks") == 100
    exec(read.replace(":5672", f":{broker.port}"), given)
    assert ready(broker, "united") == 2
    exec(drain.replace(":5672", f":{broker.port}"), given)
    assert ready(broker, "united") == 0
    assert spark.read.parquet(f"{given['archive']}/2026-11-20").count() == 2
    with pytest.raises(AlreadyAcknowledged, match="'united-2026-11-20'"):
        exec(drain.replace(":5672", f":{broker.port}"), given)


def test_the_examples_of_topics_run_as_written(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    given = {"spark": spark, "shardmq": shardmq, "counted": str(tmp_path / "counted")}
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("counted", durable=True)
    (batch,), (stream,) = (blocks(title, "python") for title in ("Reading a topic", "Reading a topic as a stream"))
    for code in (batch, stream):
        exec(code.replace(":5672", f":{broker.port}"), given)
    assert ready(broker, "counted") == 1000


@pytest.mark.parametrize("line", blocks("Whole jobs", "sh")[0].splitlines())
def test_its_commands_are_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights.csv").touch()
    (tmp_path / "archive").mkdir()
    parse(line)


def test_the_example_of_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _session: None)  # it goes on to other tests
    monkeypatch.setattr(sys, "argv", ["spark_stream.py", broker.url])
    runpy.run_path(str(ROOT / "docs/examples/spark_stream.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert re.findall(r"(\d+) flights in (\d) micro-batches", shown) == [("150", "2"), ("150", "2")]
    assert re.findall(r"  (\w\w): (\d+)", shown)[3:] == [("AA", "100"), ("B6", "100"), ("UA", "100")]
