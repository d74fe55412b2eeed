"""A clone that is installed as the Makefile does it: found from everywhere, with its types, and never a stale copy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.clean import Environment, clone, offline

PROGRAM = """
import shardmq

with shardmq.connect("shardmq://guest:guest@127.0.0.1:5672/") as connection:
    reveal_type(connection)
"""
WHERE = "import shardmq; print(shardmq.__file__)"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone named shardmq, as `git clone` names it."""
    return clone(tmp_path_factory.mktemp("beside") / "shardmq")


@pytest.fixture(scope="module")
def environment(tree: Path) -> Environment:
    """Its .venv, with the clone installed as `make up` does it."""
    environment = Environment(tree / ".venv")
    environment.pip("install", "--quiet", "--editable", tree)
    return environment


def make(tree: Path, *arguments: str) -> str:
    for stamp in ("installed", "installed-test"):
        (tree / ".venv" / stamp).touch()  # what they stand for lies beside the Python that runs this
    ran = subprocess.run(
        ["make", *arguments], cwd=tree, env=offline(), capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_it_is_found_beside_the_clone(tree: Path, environment: Environment) -> None:
    # There, the path's first entry has a folder shardmq that is no package.
    assert environment.run("-c", WHERE, cwd=tree.parent).strip() == str(tree / "shardmq/__init__.py")


def test_it_is_found_elsewhere_with_all_its_rooms(tree: Path, environment: Environment, tmp_path: Path) -> None:
    code = f"{WHERE}; import shardmq.gateway.process, shardmq.shards.process, shardmq.cmd.main, pyspark_shardmq"
    assert environment.run("-c", code, cwd=tmp_path).strip() == str(tree / "shardmq/__init__.py")


def test_mypy_finds_its_types_from_another_folder(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", environment.python, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert 'Revealed type is "shardmq.client.sync.connection.Connection"' in ran.stdout


def test_make_up_runs_this_tree_after_a_copy_was_installed_over_it(tree: Path, environment: Environment) -> None:
    environment.pip("install", "--quiet", tree)
    assert "site-packages" in environment.run("-c", WHERE)
    assert "installing this one" in make(tree, "up", "ARGS=--help")
    assert environment.run("-c", WHERE).strip() == str(tree / "shardmq/__init__.py")
    assert "installing" not in make(tree, "up", "ARGS=--help")
