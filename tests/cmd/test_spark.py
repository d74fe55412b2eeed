"""`shardmq spark`: what is refused before Spark starts, where Spark runs, and all four jobs by their command lines."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import shardmq
from shardmq.cmd.bench.compare import rabbitmq
from shardmq.cmd.bench.compare.load import spark_figures
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.spark.dead_letters import moment
from shardmq.cmd.spark.session import check_installed, is_local, master_of
from shardmq.errors import StartupRefused

Refused = Callable[..., str]

needs_java = pytest.mark.skipif(
    shutil.which("java") is None and "JAVA_HOME" not in os.environ,
    reason="Spark needs Java 17 or newer, and there is no java here",
)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["publish", "nope.csv", "--exchange", "amq.topic"], 1, "there is no file or folder nope.csv"),
        (["publish", "plain", "--exchange", "amq.topic"], 1, "ends in no known format"),
        (["publish", "here.csv", "--exchange", "nope"], 1, "no exchange 'nope'"),
        (["publish", "here.csv", "--exchange", "amq.topic", "--key", "{a"], 1, "a brace is doubled"),
        (["publish", "here.csv", "--exchange", "", "--key", "a", "--routing-key", "b"], 2, "give one of them"),
        (["publish", "here.csv"], 2, "--exchange"),
        (["publish", "here.csv", "--exchange", "amq.topic", "--conf", "x"], 2, "NAME=VALUE"),
        (["export", "--queue", "nope", "--to", "out"], 1, "no queue 'nope'"),
        (["export", "--queue", "nope", "--to", "."], 1, "exists; name another"),
        (["export", "--queue", "nope", "--to", "out", "--by", "year"], 2, "--by"),
        (["export", "--to", "out"], 2, "give --queue NAME or --topic NAME, one of the two"),
        (["export", "--queue", "q", "--topic", "t", "--to", "out"], 2, "one of the two"),
        (["export", "--topic", "t", "--to", "out", "--drain"], 2, "--drain is for queues"),
        (["export", "--topic", "nope", "--to", "out"], 1, "'nope'"),
        (["replay", "--keep-exchange"], 2, "give PATHS of files or --topic NAME, one of the two"),
        (["replay", "here.csv", "--topic", "t", "--keep-exchange"], 2, "one of the two"),
        (["replay", "here.csv", "--since", "2026-11-20", "--keep-exchange"], 2, "--since is for --topic"),
        (["replay", "--topic", "nope", "--keep-exchange"], 1, "'nope'"),
        (["replay", "here.csv"], 2, "one of the two"),
        (["replay", "here.csv", "--exchange", "a", "--keep-exchange"], 2, "one of the two"),
        (["replay", "nope", "--keep-exchange"], 1, "there is no file or folder nope"),
        (["replay", "here.csv", "--keep-exchange", "--rate", "0"], 2, "--rate"),
        (["deadletters", "--queue", "nope"], 1, "no queue 'nope'"),
        (["deadletters", "--queue", "q", "--limit", "3"], 2, "go together with --republish"),
        (["deadletters", "--queue", "q", "--since", "yesterday"], 2, "is no time"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("at")
@needs_java
def test_what_is_wrong_is_said_before_spark_starts(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.csv").write_text("a\n1\n")
    (tmp_path / "plain").touch()
    assert said in refused("spark", *arguments, code=code)


@needs_java
def test_without_a_broker_the_job_ends_at_once(refused: Refused, tmp_path: Path) -> None:
    arguments = ["export", "--queue", "q", "--to", str(tmp_path / "out"), "--url", "shardmq://guest:guest@127.0.0.1:1/"]
    assert "`shardmq up` starts a broker" in refused("spark", *arguments)


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupRefused, match=f"JAVA_HOME is {tmp_path}"):
        check_installed()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartupRefused, match="install one, as openjdk-17-jre-headless"):
        check_installed()


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:2])  # frozen and built-in modules alone
    with pytest.raises(StartupRefused, match=r"pyspark.* is not installed: pip install 'shardmq\[spark\]'"):
        check_installed()


@pytest.mark.parametrize(
    ("given", "environment", "master"),
    [
        (None, {}, "local[*]"),
        (None, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, None),
        (None, {"PYSPARK_GATEWAY_PORT": "1234"}, None),
        ("local[2]", {"PYSPARK_GATEWAY_PORT": "1234"}, "local[2]"),
    ],
)
def test_spark_runs_where_somebody_said_else_here(
    given: str | None, environment: dict[str, str], master: str | None
) -> None:
    assert master_of(given, environment) == master


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,600]", True),
        ("yarn", False),
        ("spark://localhost:7077", False),
        (None, False),
    ],
)
def test_local_masters_are_told_from_clusters(master: str | None, here: bool) -> None:
    assert is_local(master) is here


def test_moments_are_utc_unless_they_say_another_zone() -> None:
    context, option = click.Context(click.Command("x")), click.Option(["--since"])
    read = [moment(context, option, text) for text in ("2026-11-20", "2026-11-20T02:00+02:00")]
    assert read[0] == read[1] is not None
    assert moment(context, option, None) is None


@pytest.fixture(scope="module")
def nobodys_spark() -> None:
    """Stops the session that other files have left: commands start their own then, with their own settings."""
    session = pytest.importorskip("pyspark.sql").SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture
def keep_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """From when it is called on, commands leave Spark running, and those that follow use it: for each of them to start
    its own takes longer than the jobs.
    """
    pyspark_sql = pytest.importorskip("pyspark.sql")
    stop = pyspark_sql.SparkSession.stop
    yield lambda: monkeypatch.setattr(pyspark_sql.SparkSession, "stop", lambda _session: None)
    session = pyspark_sql.SparkSession.getActiveSession()
    if session is not None:
        stop(session)


@needs_java
@pytest.mark.usefixtures("nobodys_spark")
def test_all_jobs_run_from_the_command_line(
    at: Broker,
    parsed: Callable[..., Any],
    printed: Callable[..., bytes],
    refused: Refused,
    keep_spark: Callable[[], None],
    capsysbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> None:
    with shardmq.connect(at.url) as connection:
        channel = connection.channel()
        channel.queue_declare("spark-dead", durable=True)
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "spark-dead"}
        channel.queue_declare("spark-jobs", durable=True, arguments=dead)
        (tmp_path / "jobs.csv").write_text("job;size\n" + "".join(f"j{number};{number}\n" for number in range(10)))
        here = ("--master", "local[2]", "--log", str(tmp_path / "log"))

        publish = (
            "spark",
            "publish",
            str(tmp_path / "jobs.csv"),
            "--exchange",
            "",
            "--routing-key",
            "spark-jobs",
            "--read-option",
            "sep=;",
            "--header",
            "size={size}",
            "--txn-id",
            "jobs",
            *here,
        )
        done = parsed(*publish)
        assert (done["rows"], done["messages"], done["transaction"]) == (10, 10, "jobs")
        assert channel.queue_declare("spark-jobs", passive=True).messages == 10
        keep_spark()  # once it has been stopped, and the next command has to start it again
        said = printed(*publish).decode()
        assert "published to the default exchange" in said
        assert "was committed before" in said
        assert "the files have no column 'nope'" in refused(*publish[:5], *here, "--value", "nope")

        done = parsed("spark", "export", "--queue", "spark-jobs", "--to", str(tmp_path / "jobs"), *here)
        assert (done["rows"], done["messages"], done["queues"]) == (10, 0, {"spark-jobs": 10})
        for message in channel.consume("spark-jobs", inactivity_timeout=2.0):
            message.nack(requeue=False)
        said = printed("spark", "replay", str(tmp_path / "jobs"), "--keep-exchange", *here).decode()
        assert "replayed" in said
        assert channel.queue_declare("spark-jobs", passive=True).messages == 10

        letters = ("spark", "deadletters", "--queue", "spark-dead", *here)
        said = printed(*letters).decode()
        assert all(word in said for word in ("rejected", "spark-jobs", "10 messages"))
        assert run([*letters, "--republish", "--reason", "rejected", "--limit", "3", "--json"]) == 0
        shown = capsysbinary.readouterr()
        done = json.loads(shown.out)
        assert (done["messages"], done["queues"]) == (3, {"spark-dead": 7})
        assert f"republishing as '{done['transaction']}': after a crash run it again" in shown.err.decode()
        assert sum(group["count"] for group in done["groups"]) == 3
        assert channel.queue_declare("spark-jobs", passive=True).messages == 13
    assert (tmp_path / "log").exists()


@needs_java
@pytest.mark.usefixtures("nobodys_spark")
def test_publishing_and_reading_are_measured_and_nothing_is_left(
    tmp_path: Path, at: Broker, parsed: Callable[..., Any]
) -> None:
    options = ("--rows", "3000", "--queues", "2", "--partitions", "2", "--turns", "1", "--no-rabbitmq")
    path = tmp_path / "spark.json"
    figures = parsed("bench", "spark", *options, "--url", at.url, "--record", str(path))
    recorded = {row["id"]: row["rate"] for row in json.loads(path.read_bytes())["rows"]}
    assert [name for name, rate in recorded.items() if rate is None] == ["rabbitmq_confirms", "rabbitmq"]
    assert recorded["read"] == round(figures["spark"][2]["rows_per_s"])
    assert [row["sink"].partition(", ")[2] for row in figures["spark"]] == [
        "exactly-once",
        "at-least-once",
        "read",
        "readStream",
    ]
    assert all(row["rows"] == 3000 and row["rows_per_s"] > 0 for row in figures["spark"])
    assert spark_figures(figures)["exactly_once_rows_per_s"] == figures["spark"][0]["rows_per_s"]
    with shardmq.connect(at.url) as connection:
        assert [row["name"] for row in connection.topology("queues") if row["name"].startswith("bench-")] == []
        assert connection.topology("transactions") == []


def test_publishing_is_measured_at_the_broker_of_the_environment(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMQ_URL", "shardmq://guest:guest@127.0.0.1:1/")
    said = refused("bench", "spark", "--no-rabbitmq")
    assert "a broker at 127.0.0.1:1/; starting Spark" in said
    assert "no broker answers at 127.0.0.1:1" in said, "before Spark is started"


def test_where_there_is_no_rabbitmq_it_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rabbitmq, "PLACES", ())
    with pytest.raises(rabbitmq.Absent, match="is not installed"):
        rabbitmq.Server()
