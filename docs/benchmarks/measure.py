"""Measures every figure of the documents again, in one run: `make measure`.

One benchmark after another writes its file in results/; then `make figures` makes tables, plots and the figures in the
text from them. It takes a little more than an hour, and both cores. What is not installed (RabbitMQ, Redis, etcd), or
needs root (several hosts), ends its part with a sentence; what was measured of it before stays.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from shardmq.cmd.run.broker import Broker

RESULTS = Path(__file__).resolve().parent / "results"

Words = tuple[str, ...]

PARTS: dict[str, tuple[Words, ...]] = {
    "compare": (("compare", "--turns", "10", "--record", f"{RESULTS}/compare.json"),),
    "growth": (
        ("growth", "--turns", "3", "--messages", "100000", "--most", "100000000", "--record", f"{RESULTS}/growth.json"),
    ),
    "spark": (("spark", "--record", f"{RESULTS}/spark.json"),),
    "features": (("features", "--record", f"{RESULTS}/features.json"),),
    "scale": (
        ("queues", "--record", f"{RESULTS}/scale.json"),
        ("delays", "--record", f"{RESULTS}/scale.json"),
        ("delays", "--kill", "--record", f"{RESULTS}/scale.json"),
    ),
    "watched": (("watched", "--record", f"{RESULTS}/watched.json"),),
    "footprint": (("footprint", "--record", f"{RESULTS}"),),
    "streams": (("streams", "--record", f"{RESULTS}/streams.json"),),
    "scaling": (("scaling", "--record", f"{RESULTS}"),),
    "hosts": (("hosts", "--turns", "7", "--record", f"{RESULTS}/hosts.json"),),
}
"""The benchmarks of each part, as words of `shardmq bench`."""

ON_A_BROKER = ("features", "scale", "watched")
"""Parts that need a broker which runs; the others start their own."""


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(tuple(PARTS)), help="Only this; may be repeated.")
def main(parts: Words) -> None:
    """Measure every figure of the documents again."""
    began = time.monotonic()
    failed = []
    for part in parts or tuple(PARTS):
        with broker(part) as options:
            for words in PARTS[part]:
                minutes, seconds = divmod(int(time.monotonic() - began), 60)
                print(f"{minutes:02}:{seconds:02} shardmq bench {' '.join(words)}", flush=True)
                command = [sys.executable, "-P", "-m", "shardmq.cmd.main", "bench", *words, *options]
                if subprocess.run(command, check=False).returncode:
                    failed.append(" ".join(words[:2]))
    if failed:
        sys.exit(f"not measured whole: {'; '.join(failed)}; what is said above tells why")


@contextlib.contextmanager
def broker(part: str) -> Iterator[Words]:
    """A broker with 4 shards of its own, where a part needs one; yields the options that name it."""
    if part not in ON_A_BROKER:
        yield ()
        return
    has_page = part == "watched"
    with (
        tempfile.TemporaryDirectory(prefix="shardmq-measure-", dir="/var/tmp") as folder,
        Broker(Path(folder) / "data", shards=4, management=has_page) as running,
    ):
        yield ("--url", running.url, *(("--management", running.management_url) if has_page else ()))


if __name__ == "__main__":
    main()
