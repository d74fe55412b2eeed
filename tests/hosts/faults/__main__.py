"""Faults on three hosts, by a seed: `make hosts-faults FAULTS=1000 SEED=n`.

What befell whom is printed as it happens; what the clients saw, at the end. The exit code is 1 if something is wrong.
"""

import argparse
import random
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.faults.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(prog="make hosts-faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the schedule; any otherwise")
    parser.add_argument("--faults", type=int, default=1000, help="how many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after that")
    parser.add_argument("--spark", action="store_true", help="have Spark publish jobs, too; needs Java")
    parser.add_argument(
        "--build", type=Path, help="another version's tree, to upgrade to and back; else later versions of this one"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # hosts, disks and namespaces are taken away
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {given.seed}: make hosts-faults FAULTS={given.faults} SEED={given.seed}  repeats its faults")
    columns = (TextColumn("faults"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("faults", total=given.faults)

        def tell(line: str) -> None:
            console.print(line, markup=False)
            progress.update(task, completed=run.outcome.counts.total())

        run = Run(given.seed, tell, given.spark, given.build)
        try:
            outcome = run.run(given.faults, given.seconds)
        except Absent as reason:
            sys.exit(f"{reason}")
    for line in outcome.lines():
        console.print(line, markup=False)
    sys.exit(bool(outcome.wrongs))


if __name__ == "__main__":
    main()
