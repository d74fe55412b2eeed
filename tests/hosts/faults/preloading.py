"""Builds what is preloaded into the processes of hosts."""

import os
import shutil
import subprocess
from pathlib import Path

from shardmq.cmd.bench.compare.rabbitmq import Absent


def library(name: str, folder: Path) -> Path:
    """Build one of the C files beside this one.

    Raises:
        Absent: there is no compiler.
    """
    built = folder / f"{name}.so"
    if not built.exists():
        compiler = os.environ.get("CC", "cc")
        if shutil.which(compiler) is None:
            raise Absent(f"{compiler} is not installed (Debian: gcc and libc6-dev)")
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", built, source, "-ldl", "-lpthread"],
            check=True,
        )
    return built
