"""The source distribution, the wheel that is built of it, and what works where nothing but that wheel is installed."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.version import VERSION
from tests.house.tree import PACKAGES, PROJECT, ROOT
from tests.install.clean import Environment, clone, offline
from tests.spark.cluster import COMPILED

EXAMPLE = ROOT / "docs/examples/spark_job.py"
SDIST = "from setuptools.build_meta import build_sdist; import sys; build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of the tree."""
    folder = tmp_path_factory.mktemp("sdist")
    built = subprocess.run(
        [sys.executable, "-P", "-c", SDIST, folder],
        cwd=clone(folder / "tree"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    [made] = folder.glob("shardmq-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that has shardmq's dependencies."""
    return Environment(tmp_path_factory.mktemp("clean") / "venv")


@pytest.fixture(scope="module")
def wheel(sdist: Path, environment: Environment) -> Path:
    """The wheel of the source distribution, installed in the environment."""
    environment.pip("wheel", "--quiet", "--wheel-dir", sdist.parent, sdist)
    [made] = sdist.parent.glob("shardmq-*.whl")
    environment.pip("install", "--quiet", made)
    return made


def test_the_source_distribution_has_the_packages_and_what_goes_with_them(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"{package.replace('.', '/')}/__init__.py" for package in PACKAGES} <= names
    assert {"CHANGELOG.md", "LICENSE", "deploy/README.md", "docs/examples/orders.py"} <= names
    assert [name for name in names if name.startswith("tests/")] == []


def test_the_wheel_has_the_packages_once_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    code = {name for name in names if ".dist-info/" not in name and name.endswith(".py")}
    assert {name.rpartition("/")[0].replace("/", ".") for name in code} == set(PACKAGES)
    page = PACKAGES["shardmq.management.page"]
    assert {f"shardmq/management/page/{each.relative_to(page).as_posix()}" for each in page.rglob("*.js")} <= set(names)
    data = {"shardmq/py.typed", "shardmq/protocol/native/SPEC.md", "shardmq/cmd/bench/compare/amqpload/main.c"}
    assert data <= set(names)
    others = [name for name in names if not name.endswith(".py") and ".dist-info/" not in name]
    wanted = PROJECT["tool"]["setuptools"]["package-data"].items()
    files = [
        f"{package.replace('.', '/')}/{file.relative_to(PACKAGES[package]).as_posix()}"
        for package, patterns in wanted
        for pattern in patterns
        for file in PACKAGES[package].glob(pattern)
    ]
    assert sorted(others) == sorted(files)


def test_its_metadata_say_whose_it_is_and_whom_it_is_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = HeaderParser().parsestr(archive.read(f"shardmq-{VERSION}.dist-info/METADATA").decode())
    assert told["Version"] == VERSION
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Author"]
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert told["Description-Content-Type"] == "text/markdown"


@pytest.mark.usefixtures("wheel")
def test_the_command_and_every_process_run_from_the_wheel(environment: Environment, tmp_path: Path) -> None:
    shown = subprocess.run([environment.bin / "shardmq", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip().endswith(VERSION)
    code = """
import sys
from pathlib import Path
import shardmq
from shardmq.cmd.run.broker import Broker
assert Path(shardmq.__file__).is_relative_to(sys.prefix), shardmq.__file__
broker = Broker(Path(sys.argv[1]), shards=1).start()
try:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("installed", durable=True)
        channel.basic_publish("", "installed", b"it works")
        print(channel.basic_get("installed", auto_ack=True).body.decode())
finally:
    broker.close()
"""
    assert environment.run("-W", "error", "-c", code, tmp_path / "data").strip() == "it works"


@pytest.mark.usefixtures("wheel")
def test_the_zip_of_an_installed_shardmq_is_complete(environment: Environment, tmp_path: Path) -> None:
    archive = tmp_path / "shardmq.zip"
    environment.run("-c", "import sys; from shardmq.spark.bundle import make_zip; make_zip(sys.argv[1])", archive)
    with zipfile.ZipFile(archive) as bundled:
        assert {"shardmq/client/api/url.py", "pyspark_shardmq/__init__.py"} <= set(bundled.namelist())


@pytest.mark.usefixtures("wheel")
def test_the_spark_example_finds_the_format_without_registration(environment: Environment, broker: Broker) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and there is no java here")
    compiled = environment.site / COMPILED.name  # a third of the time goes into compiling PySpark, which Spark zips
    compiled.symlink_to(COMPILED)
    twice = "import runpy, sys; [runpy.run_path(sys.argv[2], run_name='__main__') for _ in range(2)]"
    where = "import pyspark_shardmq; print(pyspark_shardmq.__file__)"
    ran = subprocess.run(
        [environment.python, "-P", "-c", f"{twice}; {where}", broker.url, EXAMPLE],
        env={**offline(), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # The second run's transaction was committed by the first: nothing is there twice.
    assert re.findall(r"\|(\w+\.\w+) ", ran.stdout) == ["UA.EWR", "B6.EWR"] * 2
    assert ran.stdout.strip().endswith(str(environment.site / "pyspark_shardmq/__init__.py"))
