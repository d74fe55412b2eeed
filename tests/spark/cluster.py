"""A standalone Spark cluster of two hosts that are one: a master, and workers on 127.0.0.1 and 127.0.0.2."""

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import pyspark

from tests.ports import free_ports

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
START_SECONDS: Final = 120.0
QUICK: Final = os.environ["SPARK_SUBMIT_OPTS"]
LAUNCHER: Final = os.environ["SPARK_LAUNCHER_OPTS"]
"""Options of Java's for programs that end before they are warm: those of all tests."""

BARE: Final = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "pytz", "tzdata", "python-dateutil", "six")
"""What executors have: PySpark and what it needs, nothing of ours."""

INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For queries of few rows: Spark would spend more on compiling each of them than on running it. In clusters, from
the command line and from the wheel it compiles them."""

COMPILED: Final = Path(__file__).parent / "daemon" / "sitecustomize.py"
"""Has them find PySpark compiled."""


def bare_python(folder: Path) -> Path:
    """A Python that has PySpark and pyarrow, but neither shardmq nor msgpack nor any other package of these tests."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in BARE:
        try:
            found = distribution(name)
        except ImportError:
            continue  # not every version needs it
        tops = {file.parts[0] for file in found.files or () if not file.parts[0].startswith(("..", "__pycache__"))}
        for top in tops:
            source = Path(str(found.locate_file(top)))
            if not (site / top).exists() and source.exists():
                (site / top).symlink_to(source)
    (site / COMPILED.name).symlink_to(COMPILED)
    return python


class Cluster:
    """The processes; logs are in `folder`.

    Args:
        folder: for logs and work.
        python: what executors run.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self._folder = folder
        self._python = python
        self._home = Path(pyspark.__file__).parent
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            [port] = free_ports(1)
            self.url = f"spark://127.0.0.1:{port}"
            master = "org.apache.spark.deploy.master.Master"
            self._launch("master", "127.0.0.1", master, "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0")
            for number, host in enumerate(HOSTS):
                work = self._folder / f"work-{number}"
                self._launch(
                    f"worker-{number}",
                    host,
                    "org.apache.spark.deploy.worker.Worker",
                    "-h",
                    host,
                    "-c",
                    "2",
                    "-m",
                    "900m",
                    "-d",
                    str(work),
                    "--webui-port",
                    "0",
                    self.url,
                )
            for number in range(len(HOSTS)):
                self._wait_for(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()

    def submit(self, script: Path, archive: Path, *arguments: str, conf: dict[str, str] | None = None) -> str:
        """Run a program on the cluster to its end, its driver as bare as the executors; returns what it printed."""
        options = [word for name, value in self.settings(conf).items() for word in ("--conf", f"{name}={value}")]
        command = [
            str(self._home / "bin" / "spark-submit"),
            "--master",
            self.url,
            "--driver-memory",
            "600m",
            *options,
            "--py-files",
            str(archive),
            str(script),
            *arguments,
        ]
        return self._run(command, self._environment("127.0.0.1"))

    def drive(self, script: Path, *arguments: str) -> str:
        """Run a program whose driver is this Python; the executors are as bare as ever."""
        options = [word for name, value in self.settings().items() for word in ("--conf", f"{name}={value}")]
        given = shlex.join(["--master", self.url, "--driver-memory", "600m", *options, "pyspark-shell"])
        environment = {**self._environment("127.0.0.1"), "PYSPARK_DRIVER_PYTHON": sys.executable}
        return self._run([sys.executable, str(script), *arguments], {**environment, "PYSPARK_SUBMIT_ARGS": given})

    def kill_executor(self) -> int:
        """Kill one of the executors that run now; returns its process id."""
        workers = {process.pid for process in self._processes}
        for folder in Path("/proc").iterdir():
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent in workers and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
                    return int(folder.name)
            except OSError:
                continue  # no process, or one that has just ended
        raise AssertionError("no executor runs")

    def settings(self, conf: dict[str, str] | None = None) -> dict[str, str]:
        """What Spark is told."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.memory": "600m",
            "spark.executor.cores": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.driver.extraJavaOptions": QUICK,
            **(conf or {}),
        }

    def _run(self, command: list[str], environment: dict[str, str]) -> str:
        done = subprocess.run(
            command, env=environment, cwd=self._folder, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
        return done.stdout

    def _environment(self, host: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not re.match("PYTHON|SPARK|PYSPARK|VIRTUAL", name)}
        return {
            **kept,
            "SPARK_LOCAL_IP": host,
            "SPARK_HOME": str(self._home),
            "PYSPARK_PYTHON": str(self._python),
            "PYSPARK_DRIVER_PYTHON": str(self._python),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LAUNCHER_OPTS": LAUNCHER,
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_DAEMON_MEMORY": "256m",
        }

    def _launch(self, name: str, host: str, kind: str, *arguments: str) -> None:
        log = (self._folder / f"{name}.log").open("wb")
        self._logs.append(log)
        command = [str(self._home / "bin" / "spark-class"), kind, *arguments]
        self._processes.append(
            subprocess.Popen(command, env=self._environment(host), stdout=log, stderr=subprocess.STDOUT)
        )

    def _wait_for(self, name: str, words: str) -> None:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + START_SECONDS
        while words not in log.read_text(errors="replace"):
            assert time.monotonic() < deadline, f"{name} did not say '{words}': {log.read_text()[-3000:]}"
            time.sleep(0.1)
