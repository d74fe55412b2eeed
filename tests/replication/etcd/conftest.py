"""An etcd of three members, one for all tests of a file, and clients of it."""

from collections.abc import Iterator

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.members import Etcd
from tests.running import without

from .loop import Asker


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """Three members; tests that kill or freeze some bring them back."""
    try:
        with Etcd() as etcd:
            yield etcd
    except Absent as reason:
        without(reason)


@pytest.fixture
def asker(etcd: Etcd) -> Iterator[Asker]:
    """A client that knows all members."""
    with Asker(etcd.url) as asker:
        yield asker
