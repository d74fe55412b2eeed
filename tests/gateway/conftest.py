"""Gateways whose coordinator and shards the test plays."""

from collections.abc import Callable, Iterator

import pytest

from tests.gateway.stage import Stage


@pytest.fixture
def start_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stage]]:
    """Starts them for one test: `start_stage([("q", 0, {})])`."""
    stages: list[Stage] = []

    def start(*args: object, **named: object) -> Stage:
        stage = Stage(tmp_path_factory.mktemp("g"), *args, **named)  # type: ignore[arg-type]
        stages.append(stage)
        return stage

    yield start
    for stage in stages:
        stage.close()
