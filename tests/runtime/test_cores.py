"""How many cores a process may use."""

import os
import subprocess
import sys

import pytest

from shardmq.runtime.cores import cores_of_quota

PROGRAM = "import os; os.sched_setaffinity(0, {%d}); from shardmq.runtime.cores import core_count; print(core_count())"


def test_a_process_that_is_bound_to_one_core_has_one() -> None:
    core = min(os.sched_getaffinity(0))
    ran = subprocess.run([sys.executable, "-c", PROGRAM % core], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "1\n"


@pytest.mark.parametrize(
    ("words", "cores"),
    [
        ([], None),
        (["max", "100000"], None),
        (["-1", "100000"], None),
        (["50000", "100000"], 1),
        (["100000", "100000"], 1),
        (["399999", "100000"], 3),
        (["800000", "100000"], 8),
    ],
)
def test_the_quota_of_a_control_group_is_whole_cores(words: list[str], cores: int | None) -> None:
    assert cores_of_quota(words) == cores
