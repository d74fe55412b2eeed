"""Spark's failures as typed errors of one sentence, and summaries."""

import pytest
from pyspark.errors import PySparkException

from shardmq.errors import InvalidRequest, NotFound, ShardmqError
from shardmq.spark.jobs.outcome import Summary, plain, plain_faults


def test_errors_of_tasks_and_of_the_driver_are_what_they_were() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to commit or abort Python data source write: Traceback (most recent call "
        'last):\n  File "x.py", line 20, in commit\n    raise\nshardmq.errors.NotFound: NOT_FOUND - no exchange '
        "'x'\n in vhost '/'\n SQLSTATE: 38000"
    )
    fault = plain("publishing", text, "PYTHON_DATA_SOURCE_ERROR")
    assert type(fault) is NotFound
    assert fault.text == "publishing: no exchange 'x' in vhost '/'"


def test_what_names_the_job_already_is_not_named_twice() -> None:
    text = "Traceback\nshardmq.errors.Unroutable: NO_ROUTE - publishing to exchange 'x' failed: no queue takes it"
    assert plain("publishing to exchange 'x'", text, "").text == "publishing to exchange 'x' failed: no queue takes it"


@pytest.mark.parametrize(
    ("text", "condition", "kind", "said"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nope. SQLSTATE: 42K03",
            "PATH_NOT_FOUND",
            InvalidRequest,
            "reading: Path does not exist: file:/nope.",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File\n"
            "OSError: full",
            "PYTHON_EXCEPTION",
            ShardmqError,
            "reading: OSError: full",
        ),
        (
            "An error occurred while calling o83.mkdirs.\n: java.io.IOException: Mkdirs failed to create file:/x\n"
            "\tat y",
            "",
            ShardmqError,
            "reading: Spark says: Mkdirs failed to create file:/x",
        ),
        ("Job aborted.\n\tat org.apache.spark.X", "", ShardmqError, "reading: Spark says: Job aborted."),
    ],
)
def test_other_errors_are_one_sentence(text: str, condition: str, kind: type[ShardmqError], said: str) -> None:
    fault = plain("reading", text, condition)
    assert (type(fault), fault.text) == (kind, said)


def test_what_is_noted_of_an_exception_of_spark_is_noted_of_the_error() -> None:
    def fail() -> None:
        fault = PySparkException("Job aborted.")
        fault.add_note("run it again")
        raise fault

    with pytest.raises(ShardmqError) as failed, plain_faults("exporting"):
        fail()
    assert failed.value.__notes__ == ["run it again"]


def test_a_summary_has_a_rate() -> None:
    assert Summary(job="publish", rows=10, seconds=4.0).as_table()["rows_per_s"] == 2.5
    assert Summary(job="publish").rows_per_s == 0.0
