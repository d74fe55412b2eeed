"""A replica group in a simulated world: 10,000 seeds, each with its own hosts, work and faults."""

import subprocess
import sys

import pytest

from tests.house.tree import ROOT
from tests.replication.simulator.world import run_seed

SEEDS = 10_000
CHUNK = 500


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_that_is_promised_is_broken_whatever_fails(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try:
            run_seed(seed)
        except Exception as fault:
            fault.add_note(f"seed {seed}; make simulate SEED={seed} tells it step by step")
            raise


def test_a_seed_runs_the_same_way_twice() -> None:
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run_seed(7, trace.append)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


def test_runs_are_full_of_work_and_faults() -> None:
    worlds = [run_seed(seed) for seed in range(100)]
    assert sum(world.checker.confirms for world in worlds) > 1000
    assert sum(world.etcd.revision for world in worlds) > 500, "sets change and primaries are elected"


def simulate(*options: str) -> list[str]:
    command = [sys.executable, "-m", "tests.replication.simulator", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_make_simulate_counts_what_it_ran() -> None:
    assert simulate("--seeds", "20", "--processes", "2")[-1].startswith("20 seeds, ")


def test_make_simulate_tells_one_seed_step_by_step() -> None:
    lines = simulate("--seed", "3")
    assert lines[-1] == "seed 3: nothing found"
    assert any("swapped by" in line for line in lines)
