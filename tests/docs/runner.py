"""Runs examples as people would: programs in Python, commands in a shell, on the broker of a test."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.docs.document import Block

SECONDS = 120
DEFAULT_PORT = ":5672"


class Runner:
    """Runs blocks on a broker, in a folder.

    Args:
        broker: what the examples find at the default port.
        folder: where they are run.
        ports: further ports as they stand in examples, and what they are here.
    """

    def __init__(self, broker: Broker, folder: Path, ports: dict[str, str] | None = None) -> None:
        self._folder = folder
        self._ports = {DEFAULT_PORT: f":{broker.port}", **(ports or {})}
        self._environment = environment(
            SHARDMQ_URL=broker.url,
            PATH=os.pathsep.join([str(self._commands()), os.environ["PATH"]]),
            COLUMNS="120",
        )

    def run(self, block: Block) -> str:
        """Run a block, and return what it wrote.

        Raises:
            AssertionError: it failed, or showed something else than the document says.
        """
        if block.language == "python":
            return self._run([sys.executable, "-W", "error", "-c", self.translated(block.code)], block)
        if block.language == "sh":
            return self._run(["sh", "-e", "-c", self.translated(block.code)], block)
        assert block.language == "console", block.language
        lines = [line for line in block.code.splitlines() if line.startswith("$ ")]
        shown = self._run(["sh", "-e", "-c", self.translated("\n".join(line[2:] for line in lines))], block)
        expected = [line for line in block.code.splitlines() if not line.startswith("$ ") and line.strip()]
        written = [line for line in shown.splitlines() if line.strip()]
        assert len(written) == len(expected), shown
        for line, pattern in zip(written, expected, strict=True):
            assert re.fullmatch(as_pattern(pattern), line.strip()), f"the page shows {pattern!r}, the command {line!r}"
        return shown

    def translated(self, code: str) -> str:
        """The code with this broker's ports in it."""
        for written, here in self._ports.items():
            code = code.replace(written, here)
        return code

    def _commands(self) -> Path:
        """A folder with `shardmq` and `python` that are this test's own."""
        folder = self._folder / ".commands"
        folder.mkdir(exist_ok=True)
        for name, started in (
            ("shardmq", command()),
            ("python", [sys.executable]),
            ("celery", [sys.executable, "-m", "celery"]),
        ):
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(started)} "$@"\n')
            path.chmod(0o755)
        return folder

    def _run(self, program: list[str], block: Block) -> str:
        ran = subprocess.run(
            program,
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"line {block.line}: {ran.stdout}{ran.stderr}"
        return ran.stdout


def as_pattern(line: str) -> str:
    """A line as a page shows it, as a pattern: … stands for anything, spaces for any number of them."""
    words = [re.escape(word).replace("…", ".*") for word in line.split()]
    return r"\s+".join(words)
