"""RabbitMQ's Java client, as Debian has it: a program with a scenario for each test, compiled and run once."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from shardmq.cmd.run.broker import Broker

SECONDS: Final = 300.0
PROGRAM: Final = Path(__file__).parent / "programs" / "Scenarios.java"
SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Neither the compiler nor the program lives long enough to be worth warming up."""


@pytest.fixture(scope="module")
def outcomes(
    find_peer: Callable[..., Path], broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What the program has said of each scenario."""
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler: install a JDK")
    jars = [
        str(find_peer("librabbitmq-client-java and libslf4j-java", f"debian{path}", Path(path)))
        for path in (f"/usr/share/java/{name}.jar" for name in ("amqp-client", "slf4j-api", "slf4j-nop"))
    ]
    classes = tmp_path_factory.mktemp("classes")
    path = ":".join([*jars, str(classes)])
    for command in (
        ["javac", *(f"-J{flag}" for flag in SHORT_LIVED), "-cp", path, "-d", str(classes), str(PROGRAM)],
        ["java", *SHORT_LIVED, "-cp", path, "Scenarios", broker.url.replace("shardmq://", "amqp://") + "%2f"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        print(done.stdout + done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "scenario",
    [
        "confirms",
        "acknowledgements",
        "properties",
        "returns",
        "refusals",
        "exchanges",
        "rpc",
        "transactions",
        "channel errors",
        "connection errors",
        "cancellation",
        "streams",
        "stream errors",
        "super streams",
        "groups",
    ],
)
def test_what_java_programs_do(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes[scenario] == "ok"
