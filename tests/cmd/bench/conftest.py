"""Processes that make loads begin in a tenth of the time: as forks of one that has imported what they need; and those
in C are compiled once for all tests of a worker.
"""

import multiprocessing
import shlex
import shutil
from collections.abc import Iterator
from multiprocessing.context import BaseContext

import pytest

LOADS = (
    "shardmq.client.aio.connection",
    "shardmq.client.sync.connection",
    "shardmq.cmd.bench.scale.connection_holders",
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


COMPILER = """#!/bin/sh
words= before=
for word; do
    if [ "$before" = -o ]; then program=$word; else words="$words $word"; fi
    before=$word
done
kept=$0-$(echo "$words" | cksum | tr ' ' -)
[ -e "$kept" ] || {compiler} "$@" || exit
[ -e "$kept" ] || { cp "$program" "$kept.$$" && mv "$kept.$$" "$kept"; }
cp "$kept" "$program"
"""
"""The machine's own compiler, once for the same words and sources; what fails fails each time."""


@pytest.fixture(scope="session")
def kept_compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What CC is to be; "" where there is no compiler."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        return ""
    path = tmp_path_factory.mktemp("compiler") / "cc"
    path.write_text(COMPILER.replace("{compiler}", shlex.quote(found)))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True, scope="module")
def _compiles_once(kept_compiler: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", kept_compiler)
        yield
