"""Many seeds over all processors, or the trace of one: `make simulate`, `make simulate SEED=n`."""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from time import monotonic

from tests.replication.simulator.checker import Violation
from tests.replication.simulator.world import run_seed

CHUNK = 500
TOLD_SECONDS = 5.0


def run_chunk(first: int, count: int) -> tuple[int, int, dict[int, str]]:
    """Run seeds, and return how many steps and confirms there were, and which seeds found something."""
    steps = confirms = 0
    found = {}
    for seed in range(first, first + count):
        try:
            world = run_seed(seed)
        except Exception as fault:  # noqa: BLE001 - whatever a seed finds is told with its number
            found[seed] = f"{type(fault).__name__}: {fault}"
        else:
            steps += world.steps
            confirms += world.checker.confirms
    return steps, confirms, found


def chunks(first: int, seeds: int) -> Iterator[tuple[int, int]]:
    for start in range(first, first + seeds, CHUNK):
        yield start, min(CHUNK, first + seeds - start)


def run_all(first: int, seeds: int, processes: int) -> int:
    """Run seeds over all processes, tell how it goes, and return how many found something."""
    began = told = monotonic()
    done = steps = confirms = failures = 0
    queue = chunks(first, seeds)
    with ProcessPoolExecutor(processes) as pool:
        running: dict[Future[tuple[int, int, dict[int, str]]], int] = {}
        while True:
            while len(running) < 2 * processes and failures == 0 and (chunk := next(queue, None)) is not None:
                running[pool.submit(run_chunk, *chunk)] = chunk[1]
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                done += running.pop(future)
                more_steps, more_confirms, found = future.result()
                steps += more_steps
                confirms += more_confirms
                failures += len(found)
                for seed, fault in found.items():
                    print(f"seed {seed}: {fault}\n  make simulate SEED={seed}  tells it step by step", flush=True)
            if monotonic() - told >= TOLD_SECONDS:
                told = monotonic()
                print(f"{done:,} of {seeds:,} seeds, {done / (told - began):,.0f} a second", flush=True)
    seconds = monotonic() - began
    print(f"{done:,} seeds, {steps:,} steps, {confirms:,} confirms in {seconds:,.0f} s: {failures} found something")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="tell this one step by step")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is None:
        sys.exit(run_all(options.first, options.seeds, options.processes) > 0)
    try:
        run_seed(options.seed, print)
    except Violation as violation:
        sys.exit(f"seed {options.seed}: {violation}")
    print(f"seed {options.seed}: nothing found")


if __name__ == "__main__":
    main()
