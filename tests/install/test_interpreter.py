"""Which Python `make` takes: the system's, where that can be used and nobody has said otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_VERSION")
TOO_OLD = "#!/bin/sh\nexit 1\n"
"""What a Python does that is older, or cannot make environments: the question ends with an error."""


def taken(*said: str, **variables: str) -> str:
    known = {name: value for name, value in os.environ.items() if name not in (*ENVIRONMENTS, "PYTHON", "MAKEFLAGS")}
    command = ["make", "--no-print-directory", "--eval=taken: ; @echo $(PYTHON)", "taken", *said]
    return subprocess.run(
        command, cwd=ROOT, env=known | variables, stdout=subprocess.PIPE, check=True, text=True
    ).stdout.strip()


def test_the_systems_is_taken_before_another_on_the_path() -> None:
    assert taken(f"SYSTEM={sys.executable}") == sys.executable


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_one_of_an_environment_is_taken_before_the_systems(name: str) -> None:
    assert taken(f"SYSTEM={sys.executable}", **{name: "mine"}) == "python3"


def test_the_one_that_is_named_is_taken() -> None:
    assert taken(f"SYSTEM={sys.executable}", "PYTHON=python3.12") == "python3.12"
    assert taken(f"SYSTEM={sys.executable}", PYTHON="python3.12") == "python3.12"


def test_one_that_is_too_old_or_missing_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(TOO_OLD)
    old.chmod(0o755)
    assert taken(f"SYSTEM={old}") == "python3"
    assert taken(f"SYSTEM={tmp_path / 'missing'}") == "python3"
