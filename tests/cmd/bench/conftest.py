"""Processes that make loads begin in a tenth of the time: as forks of one that has imported what they need."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.context import BaseContext

import pytest

LOADS = (
    "shardmq.client.aio.connection",
    "shardmq.client.sync.connection",
    "shardmq.cmd.bench.connection_holders",
    "shardmq.cmd.bench.streams.groups",
    "shardmq.cmd.bench.streams.sdk",
    "shardmq.cmd.bench.streams.tails",
    "shardmq.cmd.bench.streams.workers",
    "shardmq.cmd.bench.trial",
)

of_method = multiprocessing.get_context


def of_forks(method: str | None = None) -> BaseContext:
    """What `multiprocessing.get_context` returns; as with "spawn", what a process is given must be pickled."""
    return of_method("forkserver" if method == "spawn" else method)


@pytest.fixture(autouse=True, scope="module")
def _warm_loads() -> Iterator[None]:
    multiprocessing.set_forkserver_preload(list(LOADS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", of_forks)
        yield
