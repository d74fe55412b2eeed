"""Installed as users install it, the data source is found by its name alone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

ROOT = Path(__file__).resolve().parent.parent.parent

JOB = """
import os, sys
from pyspark.sql import SparkSession

url, place = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
write = spark.sql("select 'found' as value").write.format("shardmq").option("url", url)
write.option("routing_key", "found").mode("append").save()
read = spark.read.format("shardmq").option("url", url).option("queue", "found").load()
assert [bytes(row.body) for row in read.collect()] == [b"found"]
import shardmq, pyspark_shardmq
assert os.path.dirname(os.path.dirname(shardmq.__file__)) == place, shardmq.__file__
assert os.path.dirname(os.path.dirname(pyspark_shardmq.__file__)) == place, pyspark_shardmq.__file__
spark.stop()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shardmq as its wheel has it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # Of what is tracked: a build in the tree itself would leave its traces there.
    copied = subprocess.run(
        ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(source)], capture_output=True, check=False
    )
    if copied.returncode:
        pytest.skip("not a git checkout")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    built = subprocess.run(wheel, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    [made] = folder.glob("shardmq-*.whl")
    place = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(made)], check=True, timeout=300)
    return place


def test_the_wheel_has_spark_and_what_spark_looks_for(installed: Path) -> None:
    assert (installed / "pyspark_shardmq" / "__init__.py").is_file()
    assert (installed / "shardmq" / "spark" / "write" / "writer.py").is_file()
    assert (installed / "shardmq" / "spark" / "jobs" / "__init__.py").is_file()
    assert not (installed / "shardmq" / "spark" / "pyspark_shardmq").exists()


def test_the_zip_of_an_installed_shardmq_is_complete(installed: Path, tmp_path: Path) -> None:
    archive = tmp_path / "shardmq.zip"
    code = "import sys; from shardmq.spark.bundle import make_zip; make_zip(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    subprocess.run([sys.executable, "-P", "-c", code, str(archive)], env=environment, check=True, timeout=120)
    with zipfile.ZipFile(archive) as bundled:
        assert {"shardmq/client/api/url.py", "pyspark_shardmq/__init__.py"} <= set(bundled.namelist())


def test_format_shardmq_is_found_without_registration(installed: Path, broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("found", durable=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(installed),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ran = subprocess.run(
        [sys.executable, "-P", "-c", JOB, broker.url, str(installed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
