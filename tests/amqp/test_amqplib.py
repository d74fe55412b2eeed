"""amqplib, Node's client: a program with a scenario for each test."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SECONDS = 120.0
PROGRAM = Path(__file__).parent / "programs" / "amqplib.js"


@pytest.mark.parametrize(
    "scenario",
    [
        "confirmsAndConsumers",
        "prefetchBoundsWhatIsOut",
        "everythingArrivesAsItWasSent",
        "exchangesRouteAndReturn",
        "refusalsAreErrorsOfTheirPublish",
        "mistakesAreErrorEventsOfTheirChannel",
        "aConsumerIsToldOfItsQueuesEnd",
        "repliesComeDirectly",
        "streamsAreReadFromAnywhere",
        "aGroupGoesOnWhereItsMemberLeftOff",
        "whatStreamsRefuseIsAnErrorOfItsChannel",
        "graveMistakesAreErrorEventsOfTheConnection",
    ],
)
def test_what_node_programs_do(find_peer: Callable[..., Path], url: str, scenario: str) -> None:
    amqplib = find_peer("amqplib", "node/node_modules/amqplib")
    node = shutil.which("node")
    assert node is not None, "npm is here, but node is not"
    done = subprocess.run(
        [node, str(PROGRAM), url, scenario],
        env={**os.environ, "AMQPLIB": str(amqplib)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
